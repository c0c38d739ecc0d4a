"""Command line of ``steersman``."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from framework_support.help_texts import all_commands, first_sentence, help_problems, subcommands
from framework_support.projects import write_project
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
    paths = [path for path, command in all_commands(get_command(app)) if not subcommands(command)]
    assert {("init",), ("create", "api"), ("testing", "serve")} < set(paths)
    for path in paths:
        result = steersman(*path, "--help")
        assert result.exit_code == 0
        assert f"Example: steersman {' '.join(path)}" in " ".join(result.output.split())


def test_summaries_are_first_sentences() -> None:
    group: Any = get_command(app)
    commands = subcommands(group)
    assert {n: first_sentence(c) for n, c in commands.items()} == {
        n: lazy.summary for n, lazy in group.lazy_commands.items()
    }


def test_version_option_prints_version() -> None:
    result = steersman("--version")
    assert (result.exit_code, result.output.strip()) == (0, version("steersman"))


def test_unknown_command_exits_2() -> None:
    result = steersman("nowhere")
    assert result.exit_code == 2
    assert "No such command 'nowhere'" in result.output


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_command(option: str) -> None:
    code = """
import sys
from steersman_cli import app
app([sys.argv[1]], standalone_mode=False)
allowed = {"steersman_cli", "steersman_cli.app", "steersman_cli.lazy_group"}
heavy = ("steersman", "steersman_cli", "steersman_manifests", "yaml", "msgspec", "asyncio", "rich")
print({name for name in sys.modules if name.partition(".")[0] in heavy} - allowed)
"""
    completed = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines()[-1] == "set()"


def test_no_arguments_prints_command_list() -> None:
    output = steersman().output
    assert "manifests" in output
    assert "version" in output


def test_help_at_80_columns_is_complete() -> None:
    assert help_problems(app) == []


def test_help_shows_square_brackets() -> None:
    assert "role-name in [tool.steersman]" in " ".join(steersman("manifests", "--help").output.split())


def test_create_api_prints_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_project(tmp_path / "shop", ("init", "--domain", "example.com", "--project-name", "shop"))
    monkeypatch.chdir(root)
    monkeypatch.setattr("steersman_cli.manifests.generate_in_subprocess", Mock())
    result = steersman("create", "api", "--group", "shop", "--version", "v1", "--kind", "Cart")
    assert result.exit_code == 0
    assert "Next: edit src/shop/api/v1/cart.py (types) and src/shop/controllers/cart.py (logic)." in result.output
