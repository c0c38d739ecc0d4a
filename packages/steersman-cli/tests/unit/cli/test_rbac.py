"""Command line of ``steersman rbac check``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from steersman_cli import app
from steersman_manifests.rbac import ResourceAccess
from steersman_testing.access_recording import write_accesses


def check(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rbac", "check", *arguments], prog_name="steersman")


OPERATOR = Path(__file__).parents[5] / "operators/databases"
DECLARED = ("--declared", "steersman_databases.main:setup", "--webhooks", "steersman_databases.main:WEBHOOKS")


@pytest.fixture
def role() -> str:
    return str(OPERATOR / "config/rbac/role.yaml")


def test_rbac_check_exact_role_succeeds(role: str) -> None:
    result = check(role, *DECLARED)
    assert (result.exit_code, result.output) == (0, "The role grants exactly the required permissions.\n")


def test_rbac_check_in_project_uses_its_setup(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(OPERATOR)
    result = check(role)
    assert (result.exit_code, result.output) == (0, "The role grants exactly the required permissions.\n")


def test_rbac_check_reports_undeclared_test_access(role: str, tmp_path: Path) -> None:
    record = tmp_path / ".steersman" / "rbac.json"
    write_accesses(record, {ResourceAccess("batch", "cronjobs", "create")})
    write_accesses(record, {ResourceAccess("", "secrets", "get", "a")})
    result = check(role, *DECLARED, "--recorded", str(record))
    assert (result.exit_code, result.output) == (1, "missing: create cronjobs.batch\n")
    found = json.loads(check(role, *DECLARED, "--recorded", str(record), "-o", "json").output)
    assert found["missing"] == [{"group": "batch", "resource": "cronjobs", "verb": "create", "name": ""}]


def test_rbac_check_reports_superfluous_rules(role: str, tmp_path: Path) -> None:
    record = tmp_path / "rbac.json"
    write_accesses(record, {ResourceAccess("", "secrets", "get", "a")})
    lines = check(role, "--recorded", str(record)).output.splitlines()
    assert "superfluous: delete secrets" in lines and "superfluous: get secrets" not in lines


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "no PROJECT file in this directory"),
        (("--declared", "nowhere:setup"), "nowhere:setup cannot be loaded"),
        (("--recorded", "absent.json"), "cannot read absent.json"),
        (("--webhooks", "steersman_databases.main:WEBHOOKS"), "--webhooks requires --declared"),
    ],
)
def test_rbac_check_without_input_exits_2(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = check(role, *arguments)
    assert result.exit_code == 2 and text in result.output
