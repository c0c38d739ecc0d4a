"""Content of bundles, tasks of the Operator Lifecycle Manager, and errors."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steersman import Manager, Request, RequestReconciler, Resource, Result, Spec, Status, resource
from steersman.api.core_v1 import ConfigMap
from steersman.errors import ConfigurationError
from steersman.manager import ManagerOptions
from steersman.webhook import WebhookServerOptions
from steersman_cli.packaging import Maintainer, OperatorManifests, ProjectMetadata
from steersman_cli.packaging.bundle import Bundle, BundleSettings, OperatorInfo, build_bundle
from steersman_manifests.yaml_codec import load_yaml_documents
from steersman_testing import InMemoryApiServer

IMAGE = "registry.example.com/databaseuser:v1.0.0"
CSV = "manifests/databaseuser.clusterserviceversion.yaml"
SERVING = WebhookServerOptions(service="databaseuser-webhook", namespace="databaseuser-system")
Change = Callable[[list[dict[str, Any]]], None]


@resource(group="mygroup.handsomeguy.cn", version="v1alpha1")
class DatabaseUser(Resource[Spec, Status]):
    """A DatabaseUser."""


class IdleReconciler(RequestReconciler[DatabaseUser]):
    async def reconcile(self, request: Request) -> Result:
        return Result()


@pytest.fixture
def operator(installation: OperatorManifests, webhook_project: Path) -> OperatorInfo:
    manager = Manager(InMemoryApiServer(), ManagerOptions(webhooks=SERVING))
    manager.controller(DatabaseUser).owns(ConfigMap).complete(IdleReconciler)
    manager.webhook(DatabaseUser).defaults(lambda found: found).validates(lambda found, former: ())
    (sample,) = load_yaml_documents(
        (webhook_project / "config/samples/mygroup_v1alpha1_databaseuser.yaml").read_text()
    )
    return OperatorInfo(
        root=webhook_project,
        metadata=ProjectMetadata("databaseuser", "1.0.0", "Users of databases."),
        domain="handsomeguy.cn",
        manifests=installation,
        manager=manager,
        samples=(sample, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "needed-by-it"}}),
        image=IMAGE,
    )


def csv_of(built: Bundle) -> dict[str, Any]:
    (found,) = load_yaml_documents(built.files[CSV])
    return found


def with_changed_manifests(operator: OperatorInfo, change: Change) -> OperatorInfo:
    manifests = copy.deepcopy(list(operator.manifests.manifests))
    change(manifests)
    return replace(operator, manifests=replace(operator.manifests, manifests=tuple(manifests)))


def test_bundle_contains_expected_files(operator: OperatorInfo) -> None:
    built = build_bundle(operator, BundleSettings())
    assert sorted(built.files) == [
        "manifests/databaseuser-databaseuser-editor_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        "manifests/databaseuser-databaseuser-viewer_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        "manifests/databaseuser-metrics-reader_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        CSV,
        "manifests/databaseuser_policy_v1_poddisruptionbudget.yaml",
        "manifests/mygroup.handsomeguy.cn_databaseusers.yaml",
        "metadata/annotations.yaml",
        "tests/scorecard/config.yaml",
    ]
    assert built.warnings == ()
    (annotations,) = load_yaml_documents(built.files["metadata/annotations.yaml"])
    prefix = "operators.operatorframework.io.bundle"
    assert annotations["annotations"][f"{prefix}.package.v1"] == "databaseuser"
    assert f"LABEL {prefix}.channels.v1=candidate" in built.containerfile
    (scorecard,) = load_yaml_documents(built.files["tests/scorecard/config.yaml"])
    assert len(scorecard["stages"][0]["tests"]) == 6


@pytest.mark.requirement("overview/olm")
def test_bundle_csv_has_metadata_and_owned_crds(operator: OperatorInfo) -> None:
    found = csv_of(build_bundle(operator, BundleSettings()))
    assert found["metadata"]["name"] == "databaseuser.v1.0.0"
    annotations = found["metadata"]["annotations"]
    assert [s["kind"] for s in json.loads(annotations["alm-examples"])] == ["DatabaseUser"]
    assert (annotations["capabilities"], annotations["containerImage"]) == ("Basic Install", IMAGE)
    spec = found["spec"]
    assert (spec["displayName"], spec["description"]) == ("Databaseuser", "Users of databases.")
    assert (spec["version"], spec["minKubeVersion"]) == ("1.0.0", "1.30.0")
    assert spec["provider"] == {"name": "handsomeguy.cn"}
    assert spec["install"]["strategy"] == "deployment"
    (owned,) = spec["customresourcedefinitions"]["owned"]
    assert (owned["name"], owned["displayName"]) == ("databaseusers.mygroup.handsomeguy.cn", "Database User")
    assert owned["resources"] == [{"kind": "ConfigMap", "name": "", "version": "v1"}]


@pytest.mark.requirement("overview/olm")
def test_bundle_csv_has_deployment(operator: OperatorInfo) -> None:
    install = csv_of(build_bundle(operator, BundleSettings()))["spec"]["install"]["spec"]
    (deployment,) = install["deployments"]
    assert deployment["spec"]["selector"]["matchLabels"]["control-plane"] == "controller-manager"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    assert container["args"] == [
        "--leader-elect",
        "--namespaces=$(WATCH_NAMESPACE)",
        "--webhook-cert-path=/tmp/k8s-webhook-server/serving-certs",
    ]
    watched = next(v for v in container["env"] if v["name"] == "WATCH_NAMESPACE")
    assert watched["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['olm.targetNamespaces']"


def test_bundle_csv_permissions_are_minimal(operator: OperatorInfo) -> None:
    """OLM manages the certificates.

    The operator needs no permissions for its Secret and its webhook configurations.
    """
    install = csv_of(build_bundle(operator, BundleSettings()))["spec"]["install"]["spec"]
    (cluster,), (namespaced,) = install["clusterPermissions"], install["permissions"]
    assert cluster["serviceAccountName"] == namespaced["serviceAccountName"] == "databaseuser"
    assert {r for rule in cluster["rules"] for r in rule["resources"]} == {
        "events",
        "databaseusers",
        "databaseusers/finalizers",
        "databaseusers/status",
    }
    assert {r for rule in namespaced["rules"] for r in rule["resources"]} == {"leases"}


def test_webhooks_are_olms(operator: OperatorInfo) -> None:
    mutating, validating = csv_of(build_bundle(operator, BundleSettings()))["spec"]["webhookdefinitions"]
    assert (mutating["type"], validating["type"]) == ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    assert (mutating["containerPort"], mutating["targetPort"]) == (443, "webhook")
    assert mutating["webhookPath"] == "/mutate-mygroup-handsomeguy-cn-v1alpha1-databaseuser"
    assert mutating["deploymentName"] == "databaseuser"
    assert mutating["rules"][0]["resources"] == ["databaseusers"]


def test_bundle_reports_unsupported_manifests(operator: OperatorInfo) -> None:
    def change(manifests: list[dict[str, Any]]) -> None:
        (mutating,) = (m for m in manifests if m["kind"] == "MutatingWebhookConfiguration")
        mutating["webhooks"][0]["matchConditions"] = [{"name": "all", "expression": "true"}]
        manifests.append({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "sweep"}})

    built = build_bundle(with_changed_manifests(operator, change), BundleSettings())
    assert [note.partition(":")[0] for note in built.warnings] == [
        "the matchConditions of the webhook mutate.databaseuser.v1alpha1.mygroup.handsomeguy.cn",
        "CronJob sweep",
    ]


def test_bundle_keeps_foreign_service_accounts(operator: OperatorInfo) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent"}}
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": "databaseuser-system"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    }
    built = build_bundle(
        with_changed_manifests(operator, lambda manifests: manifests.extend((account, binding))), BundleSettings()
    )
    assert "manifests/agent_v1_serviceaccount.yaml" in built.files
    assert [f for f in built.files if "databaseuser_v1_serviceaccount" in f] == []
    # OLM creates ServiceAccounts in the installation namespace, but does not change subjects.
    (warning,) = built.warnings
    assert warning.startswith("ClusterRoleBinding agent refers to accounts in databaseuser-system, ")


def test_bundle_long_webhook_names_are_shortened(operator: OperatorInfo) -> None:
    names = [f"validate.{'databaseuser' * 4}.v1.{place}.example.com" for place in ("here", "there")]

    def change(manifests: list[dict[str, Any]]) -> None:
        (validating,) = (m for m in manifests if m["kind"] == "ValidatingWebhookConfiguration")
        validating["webhooks"] = [{**validating["webhooks"][0], "name": name} for name in names]

    definitions = csv_of(build_bundle(with_changed_manifests(operator, change), BundleSettings()))["spec"][
        "webhookdefinitions"
    ]
    labels = {d["generateName"] for d in definitions}
    assert len(labels) == 3
    assert max(map(len, labels)) <= 63


def test_conversions(operator: OperatorInfo) -> None:
    def change(manifests: list[dict[str, Any]]) -> None:
        (definition,) = (m for m in manifests if m["kind"] == "CustomResourceDefinition")
        client = SERVING.client_config("/convert")
        webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
        definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}

    converting = with_changed_manifests(operator, change)
    spec = csv_of(build_bundle(converting, BundleSettings()))["spec"]
    conversion = spec["webhookdefinitions"][-1]
    assert conversion["type"] == "ConversionWebhook"
    assert conversion["conversionCRDs"] == ["databaseusers.mygroup.handsomeguy.cn"]
    assert [m["type"] for m in spec["installModes"] if m["supported"]] == ["AllNamespaces"]
    with pytest.raises(ConfigurationError, match="with conversion webhooks, OLM supports AllNamespaces only"):
        build_bundle(converting, BundleSettings(install_modes=("OwnNamespace",)))


def test_settings(operator: OperatorInfo, tmp_path: Path) -> None:
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "hub.md").write_text("# Users\n\nOf databases.\n")
    settings = BundleSettings.from_toml(
        {
            "package": "db-users",
            "display-name": "Database users",
            "description": "hub.md",
            "capabilities": "Auto Pilot",
            "categories": ["Database", "Security"],
            "icon": "icon.svg",
            "provider": {"name": "Example", "url": "https://example.com"},
            "channels": ["stable", "candidate"],
            "install-modes": ["AllNamespaces"],
            "replaces": "db-users.v0.9.0",
            "skips": ["db-users.v0.9.1"],
            "skip-range": "<0.9.0",
            "annotations": {"support": "Example"},
            "display-names": {"DatabaseUser": "User"},
            "spec": {"cleanup": {"enabled": True}, "install": {"strategy": "deployment"}},
        }
    )
    people = (Maintainer("Jane Doe", "jane@example.com"), Maintainer("Nobody"))
    about = replace(operator.metadata, maintainers=people, urls={"homepage": "https://example.com/users"})
    built = build_bundle(replace(operator, root=tmp_path, metadata=about), settings)
    (found,) = load_yaml_documents(built.files["manifests/db-users.clusterserviceversion.yaml"])
    spec = found["spec"]
    assert found["metadata"]["name"] == "db-users.v1.0.0"
    assert (
        found["metadata"]["annotations"].items()
        >= {
            "capabilities": "Auto Pilot",
            "categories": "Database, Security",
            "olm.skipRange": "<0.9.0",
            "support": "Example",
        }.items()
    )
    assert (spec["displayName"], spec["description"]) == ("Database users", "# Users\n\nOf databases.\n")
    assert spec["icon"] == [{"base64data": base64.b64encode(b"<svg/>").decode(), "mediatype": "image/svg+xml"}]
    assert spec["provider"] == {"name": "Example", "url": "https://example.com"}
    assert spec["maintainers"] == [{"name": "Jane Doe", "email": "jane@example.com"}]
    assert spec["links"] == [{"name": "Homepage", "url": "https://example.com/users"}]
    assert (spec["replaces"], spec["skips"]) == ("db-users.v0.9.0", ["db-users.v0.9.1"])
    assert [m["type"] for m in spec["installModes"] if m["supported"]] == ["AllNamespaces"]
    assert spec["customresourcedefinitions"]["owned"][0]["displayName"] == "User"
    assert spec["cleanup"] == {"enabled": True}
    # An operator that watches all namespaces needs no namespace list.
    (deployment,) = spec["install"]["spec"]["deployments"]
    assert "WATCH_NAMESPACE" not in str(deployment)
    assert "LABEL operators.operatorframework.io.bundle.channel.default.v1=stable" in built.containerfile


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"icon": "icon.txt"}, "icon.txt is none of .svg"),
        ({"icon": "none.svg"}, "none.svg: No such file"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"capabilities": "All of them"}, "capabilities"),
    ],
)
def test_settings_that_cannot_be(operator: OperatorInfo, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        build_bundle(operator, BundleSettings.from_toml(settings))


def test_bundle_invalid_configuration_raises(operator: OperatorInfo) -> None:
    def namespaces(manifests: list[dict[str, Any]]) -> None:
        (deployment,) = (m for m in manifests if m["kind"] == "Deployment")
        deployment["spec"]["template"]["spec"]["containers"][0]["args"].append("--namespaces=shop")

    def elsewhere(manifests: list[dict[str, Any]]) -> None:
        (validating,) = (m for m in manifests if m["kind"] == "ValidatingWebhookConfiguration")
        validating["webhooks"][0]["clientConfig"] = {"url": "https://example.com/validate"}

    refused = [
        (
            with_changed_manifests(operator, elsewhere),
            "https://example.com/validate: OLM supports only webhooks behind a Service",
        ),
        (replace(operator, image=""), "give --image"),
        (replace(operator, metadata=replace(operator.metadata, version="1.0")), "needs a semantic version"),
        (with_changed_manifests(operator, namespaces), "config/manager sets --namespaces"),
    ]
    for wrong, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            build_bundle(wrong, BundleSettings())
