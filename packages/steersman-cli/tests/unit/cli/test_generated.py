"""``steersman manifests`` in a project."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from framework_support.projects import KIND, create_project, ours, steersman

CRD = "config/crd/bases/mygroup.handsomeguy.cn_databaseusers.yaml"
WEBHOOKS = "config/webhook/manifests.yaml"
CONTROLLER = "src/databaseuser/controllers/databaseuser.py"


def load_documents(root: Path, name: str) -> list[Any]:
    return list(yaml.safe_load_all((root / name).read_text()))


@pytest.mark.requirement("user/manifests")
def test_manifests_shows_and_rewrites_stale_files(project: Path) -> None:
    controller = project / CONTROLLER
    imports, declares = "from steersman import", "manager.controller(DatabaseUser)"
    code = controller.read_text().replace(declares, f"{declares}.owns(ConfigMap)")
    controller.write_text(code.replace(imports, f"from steersman.api.core_v1 import ConfigMap\n{imports}"))
    stale = steersman(project, "manifests", "--check")
    assert stale.returncode == 1
    assert "+  - configmaps" in stale.stdout
    assert "run `make manifests`" in stale.stderr
    create_project(project, ("manifests",), ("manifests", "--check"))
    (role,) = load_documents(project, "config/rbac/role.yaml")
    assert any("configmaps" in rule["resources"] for rule in role["rules"])


@pytest.mark.requirement("user/role-and-webhook")
def test_manifests_role_name_option_sets_role_name(project: Path) -> None:
    create_project(project, ("manifests", "--role-name", "my-crd-manager"))
    (role,) = load_documents(project, "config/rbac/role.yaml")
    (binding,) = load_documents(project, "config/rbac/role_binding.yaml")
    assert role["metadata"]["name"] == binding["roleRef"]["name"] == "my-crd-manager"
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace("databaseuser-manager-role", "my-crd-manager"))
    create_project(project, ("manifests", "--check"))


@pytest.mark.parametrize("serving", [True, False])
def test_manifests_without_webhooks_empties_configurations(project: Path, serving: bool) -> None:
    create_project(project, ("create", "webhook", *KIND, "--programmatic-validation"))
    assert load_documents(project, WEBHOOKS)
    main = project / "src/databaseuser/main.py"
    main.write_text(re.sub(r"\n.*databaseuser_webhook_with_manager.*", "", main.read_text()))
    if not serving:
        settings = project / "pyproject.toml"
        settings.write_text(re.sub(r"\nwebhooks = .*", "", settings.read_text()))
    assert f"wrote {WEBHOOKS}" in manifests_output(project, "manifests")
    assert load_documents(project, WEBHOOKS) in ([], [None])


@pytest.mark.requirement("user/both-crd-versions")
def test_manifests_crd_version_option_writes_v1beta1(project: Path) -> None:
    create_project(project, ("manifests", "--crd-version", "v1,v1beta1"))
    assert load_documents(project, CRD)[0]["apiVersion"] == "apiextensions.k8s.io/v1"
    old = CRD.replace(".yaml", ".v1beta1.yaml")
    assert load_documents(project, old)[0]["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    # Without the option, the previous layout is restored and stale files are deleted.
    assert f"removed {old}" in manifests_output(project, "manifests")
    settings = project / "pyproject.toml"
    settings.write_text(
        settings.read_text().replace("[tool.steersman]", '[tool.steersman]\ncrd-version = "v1,v1beta1"')
    )
    assert f"wrote {old}" in manifests_output(project, "manifests")


def manifests_output(root: Path, *command: str) -> str:
    result = steersman(root, *command)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.requirement("user/crd-version")
def test_manifests_keep_crd_versions_of_create_api(project: Path) -> None:
    kind = ("--group", "old", "--version", "v1", "--kind", "Relic", "--crd-version", "v1,v1beta1")
    create_project(project, ("create", "api", *kind), ("manifests", "--check"))
    assert (project / "config/crd/bases/old.handsomeguy.cn_relics.v1beta1.yaml").exists()


def test_manifests_remove_files_of_deleted_kind(project: Path) -> None:
    (project / CONTROLLER).unlink()
    (project / "src/databaseuser/api/v1alpha1/databaseuser.py").unlink()
    main = project / "src/databaseuser/main.py"
    main.write_text("\n".join(line for line in main.read_text().splitlines() if "Reconciler" not in line))
    assert f"removed {CRD}" in manifests_output(project, "manifests")


@pytest.mark.requirement("user/role-and-webhook")
def test_webhooks(project: Path) -> None:
    create_project(project, ("create", "webhook", *KIND, "--defaulting"), ("manifests", "--check"))
    (mutating,) = load_documents(project, "config/webhook/manifests.yaml")
    assert mutating["kind"] == "MutatingWebhookConfiguration"
    service = {"name": "databaseuser-webhook", "namespace": "databaseuser-system"}
    assert mutating["webhooks"][0]["clientConfig"]["service"].items() >= service.items()
    role, binding = load_documents(project, "config/webhook/certificate_role.yaml")
    assert role["rules"][1]["resourceNames"] == ["databaseuser-webhook-cert"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert "../webhook" in load_documents(project, "config/default/kustomization.yaml")[0]["resources"]


def test_code_that_cannot_be_imported(project: Path) -> None:
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace("databaseuser.main:setup", "databaseuser.main:begin"))
    result = steersman(project, "manifests")
    assert result.returncode == 2
    assert "databaseuser.main has no 'begin'" in result.stderr


def test_manifests_dry_run_writes_no_files(project: Path) -> None:
    (project / CRD).unlink()
    assert f"# {CRD}" in manifests_output(project, "manifests", "--dry-run")
    assert not (project / CRD).exists()


def test_integration_test_shows_last_status_on_timeout(project: Path) -> None:
    program = """
import runpy
from types import SimpleNamespace
from steersman import ObjectKey
from steersman_testing import virtual_time

generated = runpy.run_path("tests/integration/test_databaseuser.py")

class Client:
    async def get(self, kind, key):
        return SimpleNamespace(status=SimpleNamespace(conditions=(), phase="Waiting"))

@virtual_time
async def main():
    await generated["wait_until_ready"](Client(), ObjectKey("default", "sample"))

main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=project, env=ours(project / "src"), capture_output=True, text=True
    )
    assert "default/sample is not Ready after 30 s; its last status is namespace(" in ended.stderr
    assert "phase='Waiting'" in ended.stderr
