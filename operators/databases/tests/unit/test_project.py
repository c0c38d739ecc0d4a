"""The operator is a project of the `steersman` command."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from steersman_cli import app

OPERATOR = Path(__file__).parents[4] / "operators/databases"


def test_generated_manifests_match_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(OPERATOR)
    result = CliRunner().invoke(app, ["manifests", "--check"], prog_name="steersman")
    assert (result.exit_code, result.output) == (0, "")
