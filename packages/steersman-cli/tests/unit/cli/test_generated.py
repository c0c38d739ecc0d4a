"""``steersman manifests`` in a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from framework_support.projects import KIND, made, steersman

CRD = "config/crd/bases/mygroup.handsomeguy.cn_databaseusers.yaml"
CONTROLLER = "src/databaseuser/controllers/databaseuser.py"


def documents(root: Path, name: str) -> list[Any]:
    return list(yaml.safe_load_all((root / name).read_text()))


def test_what_is_stale_is_shown_and_written(project: Path) -> None:
    controller = project / CONTROLLER
    imports, declares = "from steersman import", "manager.controller(DatabaseUser)"
    code = controller.read_text().replace(declares, f"{declares}.owns(ConfigMap)")
    controller.write_text(code.replace(imports, f"from steersman.api.core_v1 import ConfigMap\n{imports}"))
    stale = steersman(project, "manifests", "--check")
    assert stale.returncode == 1
    assert "+  - configmaps" in stale.stdout
    assert "run `make manifests`" in stale.stderr
    made(project, ("manifests",), ("manifests", "--check"))
    (role,) = documents(project, "config/rbac/role.yaml")
    assert any("configmaps" in rule["resources"] for rule in role["rules"])


def test_the_name_of_the_role(project: Path) -> None:
    made(project, ("manifests", "--role-name", "my-crd-manager"))
    (role,) = documents(project, "config/rbac/role.yaml")
    (binding,) = documents(project, "config/rbac/role_binding.yaml")
    assert role["metadata"]["name"] == binding["roleRef"]["name"] == "my-crd-manager"
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace("databaseuser-manager-role", "my-crd-manager"))
    made(project, ("manifests", "--check"))


def test_both_forms_of_a_definition(project: Path) -> None:
    made(project, ("manifests", "--crd-version", "v1,v1beta1"))
    assert documents(project, CRD)[0]["apiVersion"] == "apiextensions.k8s.io/v1"
    old = CRD.replace(".yaml", ".v1beta1.yaml")
    assert documents(project, old)[0]["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    # Without the option it is as before, and what is left over goes.
    assert f"removed {old}" in made_output(project, "manifests")
    settings = project / "pyproject.toml"
    settings.write_text(
        settings.read_text().replace("[tool.steersman]", '[tool.steersman]\ncrd-version = "v1,v1beta1"')
    )
    assert f"wrote {old}" in made_output(project, "manifests")


def made_output(root: Path, *command: str) -> str:
    ended = steersman(root, *command)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_forms_that_create_api_was_told(project: Path) -> None:
    kind = ("--group", "old", "--version", "v1", "--kind", "Relic", "--crd-version", "v1,v1beta1")
    made(project, ("create", "api", *kind), ("manifests", "--check"))
    assert (project / "config/crd/bases/old.handsomeguy.cn_relics.v1beta1.yaml").exists()


def test_a_kind_that_goes(project: Path) -> None:
    (project / CONTROLLER).unlink()
    (project / "src/databaseuser/api/v1alpha1/databaseuser.py").unlink()
    main = project / "src/databaseuser/main.py"
    main.write_text("\n".join(line for line in main.read_text().splitlines() if "Reconciler" not in line))
    assert f"removed {CRD}" in made_output(project, "manifests")


def test_webhooks(project: Path) -> None:
    made(project, ("create", "webhook", *KIND, "--defaulting"), ("manifests", "--check"))
    (mutating,) = documents(project, "config/webhook/manifests.yaml")
    assert mutating["kind"] == "MutatingWebhookConfiguration"
    service = {"name": "databaseuser-webhook", "namespace": "databaseuser-system"}
    assert mutating["webhooks"][0]["clientConfig"]["service"].items() >= service.items()
    role, binding = documents(project, "config/webhook/certificate_role.yaml")
    assert role["rules"][1]["resourceNames"] == ["databaseuser-webhook-cert"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert "../webhook" in documents(project, "config/default/kustomization.yaml")[0]["resources"]


def test_code_that_cannot_be_imported(project: Path) -> None:
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace("databaseuser.main:setup", "databaseuser.main:begin"))
    ended = steersman(project, "manifests")
    assert ended.returncode == 2
    assert "databaseuser.main has no 'begin'" in ended.stderr


def test_a_dry_run_writes_nothing(project: Path) -> None:
    (project / CRD).unlink()
    assert f"# {CRD}" in made_output(project, "manifests", "--dry-run")
    assert not (project / CRD).exists()
