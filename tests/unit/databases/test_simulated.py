"""The operator under every fault: a part of the sweep in each run of the tests, all of it by ``make simulate``."""

from __future__ import annotations

import os
import sys

import pytest

from simulated_databases import SCENARIOS, sweep

WHOLE = os.environ.get("SIMULATE") == "whole"
EFFORT = {"postgresql": (1, 2), "mysql": (1, 3)}
"""Random runs, and faults at most, in each run of the tests. A cluster's life costs more."""


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("engine", EFFORT)
@pytest.mark.parametrize("name", SCENARIOS)
def test_comes_through(name: str, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    random_runs, most = (200, None) if WHOLE else EFFORT[engine]
    report = sweep(SCENARIOS[name](engine), random_runs=random_runs, most=most)
    with capsys.disabled():
        sys.stdout.write(f"\n{name}, {engine}:\n{report}\n" if WHOLE else "")
    assert report.complete is WHOLE


def test_a_claim_that_is_gone_is_not_made_again() -> None:
    # The apply that grows the claim arrives when the Database, its claim and the leader that sent it are gone.
    sweep(SCENARIOS["life"]("mysql"), replay="late:27+60")
