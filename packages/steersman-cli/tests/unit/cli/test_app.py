"""Command line of ``steersman``."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from framework_support.widget import Widget
from steersman_cli import app
from steersman_manifests.crd import definition


def steersman(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="steersman")


@pytest.mark.parametrize("place", ["framework_support.widget:Widget", "framework_support.widget"])
def test_manifests(place: str) -> None:
    result = steersman("manifests", place)
    assert result.exit_code == 0
    assert result.output.startswith("---\n")
    assert list(yaml.safe_load_all(result.output)) == [definition(Widget)]


def test_several_manifests_are_several_documents() -> None:
    found = list(
        yaml.safe_load_all(
            steersman("manifests", "framework_support.widget", "framework_support.crd_twins.v1:Task").output
        )
    )
    assert [f["spec"]["names"]["kind"] for f in found] == ["Widget", "Task"]


def test_versions_of_one_kind_are_one_document() -> None:
    references = [
        f"framework_support.crd_twins.{version}:Versioned" for version in ("v1alpha1", "v1", "v1beta1", "v1")
    ]
    (found,) = yaml.safe_load_all(steersman("manifests", *references).output)
    assert [v["name"] for v in found["spec"]["versions"]] == ["v1", "v1beta1", "v1alpha1"]


def test_manifests_builtin_descriptions_are_optional() -> None:
    short, long = (
        steersman("manifests", "framework_support.crd_twins.v1:Builtins", *extra).output
        for extra in ((), ("--builtin-descriptions",))
    )
    assert len(long) > 2 * len(short)
    # Repeated values are written in full instead of YAML anchors.
    assert "&id" not in long


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "the module nowhere does not exist"),
        ("framework_support.widget.nowhere", "the module framework_support.widget.nowhere does not exist"),
        ("framework_support.widget:Whale", r"framework_support.widget declares no kind Whale (it declares: Widget)"),
        ("framework_support.widget:widget", "framework_support.widget declares no kind widget"),
        ("steersman.meta", "steersman.meta declares no kind: put @resource"),
        (":Widget", "is not a module: write package.module:Kind"),
    ],
)
def test_manifests_unknown_target_exits_2(place: str, message: str) -> None:
    result = steersman("manifests", place)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_version() -> None:
    assert steersman("version").output.strip() == version("steersman")


def test_every_help_has_an_example() -> None:
    group: Any = get_command(app)
    command_paths = [(name,) for name, command in group.commands.items() if not hasattr(command, "commands")]
    command_paths += [("create", name) for name in group.commands["create"].commands]
    assert ("init",) in command_paths
    for command_path in command_paths:
        result = steersman(*command_path, "--help")
        assert result.exit_code == 0
        assert f"Example: steersman {' '.join(command_path)}" in " ".join(result.output.split())


def test_help_imports_no_heavy_modules() -> None:
    code = """
import sys
from steersman_cli import app
heavy = ("copier", "jinja2", "watchfiles", "cryptography", "steersman.manager", "steersman_testing")
print([name for name in heavy if name in sys.modules])
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout == "[]\n"


def test_no_arguments_prints_command_list() -> None:
    output = steersman().output
    assert "manifests" in output
    assert "version" in output


def test_help_at_80_columns_is_complete() -> None:
    commands = [
        "",
        "create api",
        "create webhook",
        "manifests",
        "run",
        "deploy",
        "models",
        "rbac check",
        "testing serve",
    ]
    for command in commands:
        result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80"})
        assert result.exit_code == 0
        assert not re.search(r"[a-z]\.\.\.$|…", result.output, re.MULTILINE), result.output
        assert max(map(len, result.output.splitlines())) <= 80
