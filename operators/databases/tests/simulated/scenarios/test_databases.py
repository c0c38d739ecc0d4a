"""The operator under every fault: a part of the sweep in each run of the tests, all of it by ``make simulate``."""

from __future__ import annotations

import os
import sys

import pytest

from database_support.simulation.databases import SCENARIOS, VERSIONS, sweep

WHOLE = os.environ.get("SIMULATE") == "whole"

_ALL = [(name, engine) for name in SCENARIOS for engine in VERSIONS]


# Otherwise each scenario with one engine, in turn.
@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("name, engine", _ALL if WHOLE else [*_ALL[0::4], *_ALL[3::4]])
def test_scenario_survives_faults(name: str, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = sweep(SCENARIOS[name](engine), random_runs=200 if WHOLE else 1, max_places=None if WHOLE else 0)
    with capsys.disabled():
        sys.stdout.write(f"\n{name}, {engine}:\n{report}\n" if WHOLE else "")
    assert report.is_complete is WHOLE
