"""Command line of ``steersman crd diff``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from framework_support.crd_twins import TWINS, v1
from steersman_cli import app
from steersman_manifests.crd import definition


def diff(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["crd", "diff", *arguments], prog_name="steersman", input=stdin)


@pytest.fixture
def old_definitions(tmp_path: Path) -> Path:
    """Write an older definition of Task with a looser schedule."""
    manifest = definition(v1.Task)
    spec = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["schedule"]["minLength"] = 5
    file = tmp_path / "tasks.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return file


@pytest.mark.requirement("user/compatibility")
def test_crd_diff_prints_breaking_change_and_remedy(old_definitions: Path) -> None:
    result = diff(str(old_definitions), "framework_support.crd_twins.v1:Task")
    assert result.exit_code == 1
    assert result.output == (
        "tasks.twins.example.com v1 .spec.schedule: minLength changes from 5 to 9: values outside are rejected "
        "[bound-tightened]\n"
        "    keep the bound, or relax it; or do it in a new version of the kind with a conversion\n"
        "1 breaking change.\n"
    )


def test_json(old_definitions: Path) -> None:
    result = diff(str(old_definitions), "framework_support.crd_twins.v1:Task", "-o", "json")
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


def test_crd_diff_of_equal_schemas_succeeds() -> None:
    result = diff("framework_support.crd_twins.v1:Task", "framework_support.crd_twins.v1:Task")
    assert (result.exit_code, result.output) == (0, "No breaking changes.\n")


def test_standard_input(old_definitions: Path) -> None:
    assert diff("-", "framework_support.crd_twins.v1:Task", stdin=old_definitions.read_text()).exit_code == 1


def test_crd_diff_of_directories_reports_removed_crd(old_definitions: Path, tmp_path: Path) -> None:
    (tmp_path / "fixeds.yaml").write_text(yaml.safe_dump(definition(*TWINS["fixeds"])))
    result = diff(str(tmp_path), str(old_definitions))
    assert result.exit_code == 1
    assert "fixeds.twins.example.com: the CRD is removed" in result.output


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere.yaml", "nowhere.yaml does not exist"),
        ("nowhere", "the module nowhere does not exist"),
        ("framework_support.crd_twins.v1:Nothing", "declares no kind Nothing"),
    ],
)
def test_crd_diff_unreadable_input_exits_2(place: str, message: str, old_definitions: Path) -> None:
    result = diff(place, str(old_definitions))
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
