"""MySQL clusters under every fault: one scenario in each run of the tests, all of them in ``make simulate``."""

from __future__ import annotations

import os
import sys

import pytest

from database_support.simulation.mysql_clusters import agent_calls, sweep
from database_support.simulation.mysql_scenarios import SCENARIOS

WHOLE = os.environ.get("SIMULATE") == "whole"


@pytest.mark.timeout(3600 if WHOLE else 120)
@pytest.mark.parametrize("name", SCENARIOS if WHOLE else ["operated", "backed_up", "maintained"])
def test_scenario_survives_faults(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = sweep(SCENARIOS[name], random_runs=50 if WHOLE else 1, max_places=None if WHOLE else 0)
    with capsys.disabled():
        sys.stdout.write(f"\n{name}:\n{report}\n" if WHOLE else "")
    assert report.is_complete is WHOLE


@pytest.mark.timeout(7200 if WHOLE else 120)
@pytest.mark.parametrize("name", SCENARIOS if WHOLE else ["failover"])
def test_scenario_survives_killed_agent(name: str) -> None:
    """Before any of its calls; its server ends with it."""
    calls = agent_calls(SCENARIOS[name])
    for call in range(1, calls + 1) if WHOLE else [calls * 2 // 3]:
        sweep(SCENARIOS[name], crash=call, random_runs=0, max_places=0)


_RELISTS = [("operated", "relist:pods:31+300"), ("configured", "relist:pods:36+300")]


@pytest.mark.parametrize("name, replay", _RELISTS if WHOLE else _RELISTS[:1])
def test_pod_set_changes_are_detected(name: str, replay: str) -> None:
    """-rw was taken from the primary as often as it wrote it, and servers were restarted again and again."""
    sweep(SCENARIOS[name], replay=replay)
