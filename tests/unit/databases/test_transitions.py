"""The operator through what users do to a spec: each field in each run of the tests, more by ``make simulate``."""

from __future__ import annotations

import os
import sys

import pytest

from explored_databases import NEWER, hints, systems
from steersman.testing import run_virtual
from steersman.testing.transitions import Budget, explore
from steersman_databases.api import Database
from steersman_databases.engines import SUPPORTED_VERSIONS, versions

WHOLE = os.environ.get("SIMULATE") == "whole"


@pytest.fixture(autouse=True)
def two_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {e: {**known, NEWER[e]: f"steersman.dev/{e}:{NEWER[e]}"} for e, known in SUPPORTED_VERSIONS.items()}
    monkeypatch.setattr(versions, "SUPPORTED_VERSIONS", more)


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("deletion_policy", ["Retain", "Delete"] if WHOLE else ["Retain"])
def test_follows_every_change(deletion_policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    budget = Budget(changes=1500 if WHOLE else 110)
    report = run_virtual(explore(Database, systems(), hints("mysql", deletion_policy), budget=budget))
    with capsys.disabled():
        sys.stdout.write(f"\n{deletion_policy}:\n{report}\n" if WHOLE else "")
    report.check()
    assert report.coverage.missing() == []
