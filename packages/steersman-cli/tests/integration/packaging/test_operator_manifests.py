"""Parts of an installation, and errors for missing ones."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steersman.errors import ConfigurationError
from steersman_cli.packaging import Maintainer, OperatorManifests, ProjectMetadata


def without_kind(installation: OperatorManifests, kind: str) -> OperatorManifests:
    return replace(installation, manifests=tuple(m for m in installation.manifests if m["kind"] != kind))


def test_operator_manifests_finds_parts(installation: OperatorManifests) -> None:
    assert installation.namespace == "databaseuser-system"
    assert installation.container["name"] == "manager"
    assert installation.service_account["metadata"]["name"] == "databaseuser"
    assert [d["spec"]["names"]["kind"] for d in installation.crds] == ["DatabaseUser"]
    assert [w["kind"] for w in installation.webhooks] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    granted = {(b["kind"], r["metadata"]["name"]) for b, r in installation.role_bindings()}
    assert granted == {
        ("ClusterRoleBinding", "databaseuser-manager-role"),
        ("RoleBinding", "databaseuser-leader-election"),
        ("RoleBinding", "databaseuser-webhook-certificate"),
    }
    # Roles for users do not belong to the operator.
    others = {r["metadata"]["name"] for r in installation.roles} - {name for _, name in granted}
    assert {"databaseuser-databaseuser-editor", "databaseuser-databaseuser-viewer"} <= others


def test_components_that_default_leaves_out(
    installation: OperatorManifests, webhook_project: Path, tmp_path: Path
) -> None:
    assert [m["kind"] for m in installation.components["prometheus"]] == ["PodMonitor"]
    assert {m["kind"] for m in installation.components["certmanager"]} == {"Issuer", "Certificate"}
    config = Path(shutil.copytree(webhook_project / "config", tmp_path / "config"))
    default = config / "default/kustomization.yaml"
    default.write_text(default.read_text().replace("# - ../prometheus", "- ../prometheus"))
    shutil.rmtree(config / "network-policy")
    listed = OperatorManifests.read(config, "databaseuser")
    assert listed.components["prometheus"] == ()
    assert "network-policy" not in listed.components


def test_with_image_replaces_only_the_image(installation: OperatorManifests) -> None:
    before = copy.deepcopy(installation.manifests)
    found = installation.with_image("example.com/shop:v1")
    images: list[Any] = [
        m["spec"]["template"]["spec"]["containers"][0]["image"] for m in found if m["kind"] == "Deployment"
    ]
    assert images == ["example.com/shop:v1"]
    assert installation.manifests == before


def test_deployment_is_found_by_operator_container(installation: OperatorManifests) -> None:
    other = copy.deepcopy(installation.deployment)
    pod = other["spec"]["template"]["spec"]
    pod["initContainers"] = [{"name": "before", "image": "controller:latest"}]
    pod["containers"] = [{"name": "agent", "image": "example.com/agent:v1"}]
    found = replace(installation, manifests=(other, *installation.manifests))
    assert found.deployment is installation.deployment
    assert "controller:latest" not in str(found.with_image("example.com/shop:v1"))


def test_installation_missing_part_raises(installation: OperatorManifests) -> None:
    with pytest.raises(ConfigurationError, match=r"add it to config/rbac/kustomization\.yaml"):
        _ = without_kind(installation, "ServiceAccount").service_account
    with pytest.raises(ConfigurationError, match="no Deployment in config/default"):
        without_kind(installation, "Deployment")
    homeless = copy.deepcopy(installation.manifests)
    for manifest in homeless:
        manifest["metadata"].pop("namespace", "")
    with pytest.raises(ConfigurationError, match="has no namespace"):
        _ = replace(installation, manifests=homeless).namespace


@pytest.mark.parametrize(
    ("version", "semantic"),
    [("0.1.0", "0.1.0"), ("1.2", "1.2.0"), ("1.2.3rc1", "1.2.3-rc.1"), ("1.0.dev4", "1.0.0-dev.4")],
)
def test_project_metadata_is_read_from_pyproject(tmp_path: Path, version: str, semantic: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"""
[project]
name = "shop"
version = "{version}"
authors = [{{name = "Jane Doe", email = "jane@example.com"}}]
urls = {{Homepage = "https://example.com"}}
""")
    about = ProjectMetadata.read(tmp_path)
    assert about.version == semantic
    assert about.maintainers == (Maintainer("Jane Doe", "jane@example.com"),)
    assert about.urls == {"homepage": "https://example.com"}


@pytest.mark.parametrize("version", ["1!2.0", "1.0.post1", "later"])
def test_versions_that_no_package_can_have(tmp_path: Path, version: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "shop"\nversion = "{version}"\n')
    with pytest.raises(ConfigurationError, match=r"such as 1\.2\.3"):
        ProjectMetadata.read(tmp_path)
