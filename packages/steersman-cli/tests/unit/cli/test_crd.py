"""``steersman crd diff``, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from framework_support.crd_twins import TWINS, v1
from steersman.crd import definition
from steersman_cli import app


def diff(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["crd", "diff", *arguments], prog_name="steersman", input=stdin)


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """The definition of Task when a schedule could be shorter, and of a kind that is gone."""
    manifest = definition(v1.Task)
    spec = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["schedule"]["minLength"] = 5
    file = tmp_path / "tasks.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return file


def test_what_breaks_is_told_with_the_remedy(former: Path) -> None:
    result = diff(str(former), "framework_support.crd_twins.v1:Task")
    assert result.exit_code == 1
    assert result.output == (
        "tasks.twins.example.com v1 .spec.schedule: minLength changes from 5 to 9: values beyond are refused "
        "[bound-tightened]\n"
        "    keep the bound as it was, or let in more; or do it in a new version of the kind, and convert\n"
        "1 breaking change.\n"
    )


def test_json(former: Path) -> None:
    result = diff(str(former), "framework_support.crd_twins.v1:Task", "-o", "json")
    assert result.exit_code == 1
    (change,) = json.loads(result.output)
    assert change.keys() == {"definition", "version", "field", "rule", "message", "fix"}
    assert (change["field"], change["rule"]) == (".spec.schedule", "bound-tightened")
    assert (
        json.loads(
            diff("framework_support.crd_twins.v1:Task", "framework_support.crd_twins.v1:Task", "-o", "json").output
        )
        == []
    )


def test_nothing_breaks() -> None:
    result = diff("framework_support.crd_twins.v1:Task", "framework_support.crd_twins.v1:Task")
    assert (result.exit_code, result.output) == (0, "Nothing breaks.\n")


def test_standard_input(former: Path) -> None:
    assert diff("-", "framework_support.crd_twins.v1:Task", stdin=former.read_text()).exit_code == 1


def test_directories_and_definitions_that_go(former: Path, tmp_path: Path) -> None:
    (tmp_path / "fixeds.yaml").write_text(yaml.safe_dump(definition(*TWINS["fixeds"])))
    result = diff(str(tmp_path), str(former))
    assert result.exit_code == 1
    assert "fixeds.twins.example.com: the definition goes" in result.output


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere.yaml", "nowhere.yaml does not exist"),
        ("nowhere", "there is no module nowhere"),
        ("framework_support.crd_twins.v1:Nothing", "declares no kind Nothing"),
    ],
)
def test_what_cannot_be_compared(place: str, message: str, former: Path) -> None:
    result = diff(place, str(former))
    assert result.exit_code == 2
    assert message in result.stderr


def test_only_v1_is_compared(tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(definition(v1.Task, api_version="v1beta1")))
    result = diff(str(file), "framework_support.crd_twins.v1:Task")
    assert result.exit_code == 2
    assert "only v1 can be compared" in result.stderr
    file.write_text("kind: ConfigMap\napiVersion: v1\n")
    assert "has no CustomResourceDefinition" in diff(str(file), "framework_support.crd_twins.v1:Task").stderr
