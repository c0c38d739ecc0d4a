"""The operator through what users do to a spec: some fields in each run of the tests, all by ``make simulate``."""

from __future__ import annotations

import os
import sys

import pytest

from database_support.simulation.explored_kinds import hints, systems
from steersman_databases.api import Database
from steersman_testing import run_virtual
from steersman_testing.transitions import Budget, ExplorationReport, explore

WHOLE = os.environ.get("SIMULATE") == "whole"


@pytest.mark.timeout(1800 if WHOLE else 600)
@pytest.mark.parametrize("deletion_policy", ["Retain", "Delete"] if WHOLE else ["Retain"])
def test_every_transition_is_followed(deletion_policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    budget = Budget(changes=1500 if WHOLE else 7)
    report = run_virtual(explore(Database, systems(Database), hints("mysql", deletion_policy), budget=budget))
    told(deletion_policy, report, capsys)
    if WHOLE:
        assert report.coverage.missing() == []


def told(what: str, report: ExplorationReport, capsys: pytest.CaptureFixture[str]) -> None:
    """Fails where the operator did not follow; a whole run shows what it tried."""
    with capsys.disabled():
        sys.stdout.write(f"\n{what}:\n{report}\n" if WHOLE else "")
    report.check()
