"""Help and version of the command lines that use the framework's flags."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import typer
from typer.testing import CliRunner

from framework_support.help_texts import help_problems
from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman_databases import main as databases
from steersman_databases.kubectl import app as plugin

COMMAND_LINES = {"steersman-databases": databases.app, "kubectl steersman": plugin.app}


@pytest.mark.parametrize("app", COMMAND_LINES.values(), ids=COMMAND_LINES.keys())
def test_help_at_80_columns_is_complete(app: typer.Typer) -> None:
    assert help_problems(app) == []


@pytest.mark.parametrize("app", COMMAND_LINES.values(), ids=COMMAND_LINES.keys())
def test_version_option_prints_distribution(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert f"steersman-databases {version('steersman-databases')}" in result.output.splitlines()


def test_version_of_operator_that_is_not_installed() -> None:
    app = typer.Typer()

    @app.command()
    @with_manager_flags
    def run(flags: ManagerFlags) -> None:  # pyright: ignore[reportUnusedFunction]
        raise AssertionError(flags)

    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output.strip()) == (0, f"steersman {version('steersman')}")


def test_operator_with_a_version_option_keeps_it() -> None:
    app, seen = typer.Typer(), list[str]()

    @app.command()
    @with_manager_flags
    def run(flags: ManagerFlags, version: str = "") -> None:  # pyright: ignore[reportUnusedFunction]
        seen.append(version)

    assert CliRunner().invoke(app, ["--version", "8.0"]).exit_code == 0
    assert seen == ["8.0"]
