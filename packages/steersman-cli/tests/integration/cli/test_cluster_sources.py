"""Commands that read from the cluster of the kubeconfig."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from framework_support.widget import Widget
from steersman import SyncClient
from steersman.api.rbac_v1 import ClusterRole
from steersman.meta import decode_builtins
from steersman_cli import app
from steersman_manifests.crd import definition
from steersman_manifests.rbac import ResourceAccess
from steersman_testing.access_recording import write_accesses
from steersman_testing.envtest import Envtest


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="steersman")


@pytest.fixture
def envtest_kubeconfig(envtest: Envtest, monkeypatch: pytest.MonkeyPatch) -> Envtest:
    monkeypatch.setenv("KUBECONFIG", str(envtest.kubeconfig))
    return envtest


def test_rbac_check_reads_role_from_cluster(envtest_kubeconfig: Envtest, tmp_path: Path) -> None:
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "checked"}}
    with SyncClient(envtest_kubeconfig.config) as client:
        client.create(decode_builtins({**role, "rules": [rule]}, ClusterRole))
    record = tmp_path / "rbac.json"
    write_accesses(record, {ResourceAccess("", "secrets", "get"), ResourceAccess("", "pods", "get")})
    result = run_command("rbac", "check", "cluster:checked", "--recorded", str(record), "-o", "json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.output)
    assert [(a["verb"], a["resource"]) for part in ("missing", "superfluous") for a in found[part]] == [
        ("get", "pods"),
        ("list", "secrets"),
    ]
    nobody = run_command("rbac", "check", "cluster:nobody", "--recorded", str(record))
    assert nobody.exit_code == 2 and "nobody" in nobody.output


def test_models_reads_crds_from_cluster(envtest_kubeconfig: Envtest, tmp_path: Path) -> None:
    envtest_kubeconfig.install_crds(definition(Widget))
    result = run_command("models", "cluster", "--kind", "Widget", "--output", str(tmp_path / "foreign"))
    assert result.exit_code == 0, result.output
    assert "class Widget(Object):" in (tmp_path / "foreign" / "shop_example_com_v1.py").read_text()
