"""The operator's command."""

from __future__ import annotations

from typer.testing import CliRunner

from redis_operator.main import app


def test_help() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "--leader-elect" in result.output
