"""Test of the operator's command."""

from __future__ import annotations

from typer.testing import CliRunner

from monitoring_operator.main import app


def test_help_lists_manager_flags() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "--leader-elect" in result.output
