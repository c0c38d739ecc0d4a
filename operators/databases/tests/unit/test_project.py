"""The operator is a project of the `steersman` command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steersman_cli import app
from steersman_databases.cluster.state import FENCED_INSTANCE, IMAGE, PULL_HASH, RESIZABLE_HASH, RESTART_HASH
from steersman_databases.engines.naming import ROLE_LABEL
from steersman_databases.features.in_place_resize.model import RESIZE
from steersman_manifests.yaml_codec import load_yaml_documents

OPERATOR = Path(__file__).parents[4] / "operators/databases"


def test_generated_manifests_match_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(OPERATOR)
    result = CliRunner().invoke(app, ["manifests", "--check"], prog_name="steersman")
    assert (result.exit_code, result.output) == (0, "")


def test_admission_policy_protects_operator_annotations() -> None:
    policies = (OPERATOR / "config/admission-policy/policies.yaml").read_text()
    [pods, _] = [each for each in load_yaml_documents(policies) if each["kind"] == "ValidatingAdmissionPolicy"]
    variables = {each["name"]: each["expression"] for each in pods["spec"]["variables"]}
    protected = (FENCED_INSTANCE, IMAGE, PULL_HASH, RESIZE, RESIZABLE_HASH, RESTART_HASH)
    assert set(re.findall("'([^']+)'", variables["readOnly"])) == set(protected)
    assert set(re.findall("'([^']+)'", variables["writable"])) == {"status", ROLE_LABEL}
