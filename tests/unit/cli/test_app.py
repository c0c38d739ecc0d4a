"""The command, as it is typed."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import yaml
from typer.testing import CliRunner, Result

from buoy import Buoy
from steersman.cli import app
from steersman.crd import definition


def steersman(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="steersman")


@pytest.mark.parametrize("place", ["buoy:Buoy", "buoy"])
def test_manifests(place: str) -> None:
    result = steersman("manifests", place)
    assert result.exit_code == 0
    assert result.output.startswith("---\n")
    assert list(yaml.safe_load_all(result.output)) == [definition(Buoy)]


def test_several_manifests_are_several_documents() -> None:
    assert len(list(yaml.safe_load_all(steersman("manifests", "buoy", "buoy:Buoy").output))) == 2


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "there is no module nowhere"),
        ("buoy.nowhere", "there is no module buoy.nowhere"),
        ("buoy:Whale", r"buoy declares no kind Whale (it declares: Buoy)"),
        ("buoy:buoy", "buoy declares no kind buoy"),
        ("steersman.meta", "steersman.meta declares no kind: put @resource"),
        (":Buoy", "is not a module: write package.module:Kind"),
    ],
)
def test_what_cannot_be_found_is_said(place: str, message: str) -> None:
    result = steersman("manifests", place)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_version() -> None:
    assert steersman("version").output.strip() == version("steersman")


@pytest.mark.parametrize("command", ["manifests", "version"])
def test_help_gives_an_example(command: str) -> None:
    result = steersman(command, "--help")
    assert result.exit_code == 0
    assert f"Example: steersman {command}" in result.output


def test_nothing_typed_shows_the_commands() -> None:
    output = steersman().output
    assert "manifests" in output
    assert "version" in output
