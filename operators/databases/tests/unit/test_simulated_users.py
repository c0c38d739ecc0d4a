"""Databases and users on servers under every fault: a part of the sweep here, all of it by ``make simulate``."""

from __future__ import annotations

import os
import sys

import pytest

from database_support.simulated_users import SCENARIOS, sweep

WHOLE = os.environ.get("SIMULATE") == "whole"


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_comes_through(name: str, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = sweep(SCENARIOS[name], engine, random_runs=200 if WHOLE else 1, max_places=None if WHOLE else 1)
    with capsys.disabled():
        sys.stdout.write(f"\n{name}, {engine}:\n{report}\n" if WHOLE else "")
    assert report.is_complete is WHOLE
