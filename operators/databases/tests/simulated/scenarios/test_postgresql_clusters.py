"""Clusters under every fault: a part of the sweep in each run of the tests, all of it by ``make simulate``."""

from __future__ import annotations

import os
import sys

import pytest

from database_support.simulation.postgresql_clusters import SCENARIOS, sweep

WHOLE = os.environ.get("SIMULATE") == "whole"
SAMPLE = ("life", "backed_up", "maintained", "resized")


@pytest.mark.timeout(3600 if WHOLE else 120)
@pytest.mark.parametrize("name", SCENARIOS if WHOLE else SAMPLE)
def test_scenario_survives_faults(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = sweep(SCENARIOS[name], random_runs=50 if WHOLE else 1, max_places=None if WHOLE else 0)
    with capsys.disabled():
        sys.stdout.write(f"\n{name}:\n{report}\n" if WHOLE else "")
    assert report.is_complete is WHOLE
