"""The command, as it is typed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from framework_support.buoy import Buoy
from steersman.crd import definition
from steersman_cli import app


def steersman(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="steersman")


@pytest.mark.parametrize("place", ["framework_support.buoy:Buoy", "framework_support.buoy"])
def test_manifests(place: str) -> None:
    result = steersman("manifests", place)
    assert result.exit_code == 0
    assert result.output.startswith("---\n")
    assert list(yaml.safe_load_all(result.output)) == [definition(Buoy)]


def test_several_manifests_are_several_documents() -> None:
    found = list(
        yaml.safe_load_all(
            steersman("manifests", "framework_support.buoy", "framework_support.crd_twins.v1:Task").output
        )
    )
    assert [f["spec"]["names"]["kind"] for f in found] == ["Buoy", "Task"]


def test_versions_of_one_kind_are_one_document() -> None:
    places = [f"framework_support.crd_twins.{version}:Versioned" for version in ("v1alpha1", "v1", "v1beta1", "v1")]
    (found,) = yaml.safe_load_all(steersman("manifests", *places).output)
    assert [v["name"] for v in found["spec"]["versions"]] == ["v1", "v1beta1", "v1alpha1"]


def test_descriptions_of_built_in_types_are_printed_on_request() -> None:
    short, long = (
        steersman("manifests", "framework_support.crd_twins.v1:Builtins", *extra).output
        for extra in ((), ("--builtin-descriptions",))
    )
    assert len(long) > 2 * len(short)
    # What occurs twice is written twice: nobody reads anchors of YAML.
    assert "&id" not in long


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "there is no module nowhere"),
        ("framework_support.buoy.nowhere", "there is no module framework_support.buoy.nowhere"),
        ("framework_support.buoy:Whale", r"framework_support.buoy declares no kind Whale (it declares: Buoy)"),
        ("framework_support.buoy:buoy", "framework_support.buoy declares no kind buoy"),
        ("steersman.meta", "steersman.meta declares no kind: put @resource"),
        (":Buoy", "is not a module: write package.module:Kind"),
    ],
)
def test_what_cannot_be_found_is_said(place: str, message: str) -> None:
    result = steersman("manifests", place)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_version() -> None:
    assert steersman("version").output.strip() == version("steersman")


def test_every_help_gives_an_example() -> None:
    group: Any = get_command(app)
    places = [(name,) for name, command in group.commands.items() if not hasattr(command, "commands")]
    places += [("create", name) for name in group.commands["create"].commands]
    assert ("init",) in places
    for place in places:
        result = steersman(*place, "--help")
        assert result.exit_code == 0
        assert f"Example: steersman {' '.join(place)}" in " ".join(result.output.split())


def test_help_imports_nothing_heavy() -> None:
    code = """
import sys
from steersman_cli import app
heavy = ("copier", "jinja2", "watchfiles", "cryptography", "steersman.manager", "steersman_testing")
print([name for name in heavy if name in sys.modules])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_nothing_typed_shows_the_commands() -> None:
    output = steersman().output
    assert "manifests" in output
    assert "version" in output
