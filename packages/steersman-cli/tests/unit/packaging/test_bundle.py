"""Bundles: what they say, what they leave to the Operator Lifecycle Manager, and what is refused."""

from __future__ import annotations

import base64
import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steersman import Manager, Reconciler, Request, Resource, Result, Spec, Status, resource
from steersman.api.core_v1 import ConfigMap
from steersman.errors import ConfigurationError
from steersman.manager import ManagerOptions
from steersman.meta.documents import documents
from steersman.webhook import WebhookServing
from steersman_cli.packaging import About, Installation, Person
from steersman_cli.packaging.bundle import Bundle, BundleSettings, Operator, bundle
from steersman_testing import InMemoryApiServer

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")

IMAGE = "registry.example.com/databaseuser:v1.0.0"
CSV = "manifests/databaseuser.clusterserviceversion.yaml"
SERVING = WebhookServing(service="databaseuser-webhook", namespace="databaseuser-system")
Change = Callable[[list[dict[str, Any]]], None]


@resource(group="mygroup.handsomeguy.cn", version="v1alpha1")
class DatabaseUser(Resource[Spec, Status]):
    """A DatabaseUser."""


class Idle(Reconciler[DatabaseUser]):
    async def reconcile(self, request: Request) -> Result:
        return Result()


@pytest.fixture
def operator(installation: Installation, webhooked: Path) -> Operator:
    manager = Manager(InMemoryApiServer(), ManagerOptions(webhooks=SERVING))
    manager.controller(DatabaseUser).owns(ConfigMap).complete(Idle)
    manager.webhook(DatabaseUser).defaults(lambda found: found).validates(lambda found, former: ())
    (sample,) = documents((webhooked / "config/samples/mygroup_v1alpha1_databaseuser.yaml").read_text())
    return Operator(
        root=webhooked,
        about=About("databaseuser", "1.0.0", "Users of databases."),
        domain="handsomeguy.cn",
        installation=installation,
        manager=manager,
        samples=(sample, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "needed-by-it"}}),
        image=IMAGE,
    )


def service_version(made: Bundle) -> dict[str, Any]:
    (found,) = documents(made.files[CSV])
    return found


def changed(operator: Operator, change: Change) -> Operator:
    manifests = copy.deepcopy(list(operator.installation.manifests))
    change(manifests)
    return replace(operator, installation=replace(operator.installation, manifests=tuple(manifests)))


def test_its_files(operator: Operator) -> None:
    made = bundle(operator, BundleSettings())
    assert sorted(made.files) == [
        "manifests/databaseuser-databaseuser-editor_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        "manifests/databaseuser-databaseuser-viewer_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        "manifests/databaseuser-metrics-reader_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        CSV,
        "manifests/mygroup.handsomeguy.cn_databaseusers.yaml",
        "metadata/annotations.yaml",
        "tests/scorecard/config.yaml",
    ]
    assert made.notes == ()
    (annotations,) = documents(made.files["metadata/annotations.yaml"])
    prefix = "operators.operatorframework.io.bundle"
    assert annotations["annotations"][f"{prefix}.package.v1"] == "databaseuser"
    assert f"LABEL {prefix}.channels.v1=candidate" in made.containerfile
    (scorecard,) = documents(made.files["tests/scorecard/config.yaml"])
    assert len(scorecard["stages"][0]["tests"]) == 6


def test_what_it_says(operator: Operator) -> None:
    found = service_version(bundle(operator, BundleSettings()))
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


def test_what_is_deployed(operator: Operator) -> None:
    install = service_version(bundle(operator, BundleSettings()))["spec"]["install"]["spec"]
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


def test_rights_are_no_more_than_needed(operator: Operator) -> None:
    """OLM keeps the certificates, so the operator needs neither its Secret nor its webhook configurations."""
    install = service_version(bundle(operator, BundleSettings()))["spec"]["install"]["spec"]
    (cluster,), (own,) = install["clusterPermissions"], install["permissions"]
    assert cluster["serviceAccountName"] == own["serviceAccountName"] == "databaseuser"
    assert {r for rule in cluster["rules"] for r in rule["resources"]} == {
        "events",
        "databaseusers",
        "databaseusers/finalizers",
        "databaseusers/status",
    }
    assert {r for rule in own["rules"] for r in rule["resources"]} == {"leases"}


def test_webhooks_are_olms(operator: Operator) -> None:
    mutating, validating = service_version(bundle(operator, BundleSettings()))["spec"]["webhookdefinitions"]
    assert (mutating["type"], validating["type"]) == ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    assert (mutating["containerPort"], mutating["targetPort"]) == (443, "webhook")
    assert mutating["webhookPath"] == "/mutate-mygroup-handsomeguy-cn-v1alpha1-databaseuser"
    assert mutating["deploymentName"] == "databaseuser"
    assert mutating["rules"][0]["resources"] == ["databaseusers"]


def test_what_no_bundle_can_say_is_told(operator: Operator) -> None:
    def change(manifests: list[dict[str, Any]]) -> None:
        (mutating,) = (m for m in manifests if m["kind"] == "MutatingWebhookConfiguration")
        mutating["webhooks"][0]["matchConditions"] = [{"name": "all", "expression": "true"}]
        manifests.append({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "sweep"}})

    made = bundle(changed(operator, change), BundleSettings())
    assert [note.partition(":")[0] for note in made.notes] == [
        "the matchConditions of the webhook mutate.databaseuser.v1alpha1.mygroup.handsomeguy.cn",
        "CronJob sweep",
    ]


def test_accounts_of_others_go_with_it(operator: Operator) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent"}}
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": "databaseuser-system"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    }
    made = bundle(changed(operator, lambda manifests: manifests.extend((account, binding))), BundleSettings())
    assert "manifests/agent_v1_serviceaccount.yaml" in made.files
    assert [f for f in made.files if "databaseuser_v1_serviceaccount" in f] == []
    # OLM puts accounts where users install the operator, and leaves subjects as they are.
    assert made.notes == ("ClusterRoleBinding agent is for accounts in databaseuser-system, wherever OLM installs",)


def test_names_of_webhooks_that_no_label_takes(operator: Operator) -> None:
    names = [f"validate.{'databaseuser' * 4}.v1.{place}.example.com" for place in ("here", "there")]

    def change(manifests: list[dict[str, Any]]) -> None:
        (validating,) = (m for m in manifests if m["kind"] == "ValidatingWebhookConfiguration")
        validating["webhooks"] = [{**validating["webhooks"][0], "name": name} for name in names]

    definitions = service_version(bundle(changed(operator, change), BundleSettings()))["spec"]["webhookdefinitions"]
    labels = {d["generateName"] for d in definitions}
    assert len(labels) == 3
    assert max(map(len, labels)) <= 63


def test_conversions(operator: Operator) -> None:
    def change(manifests: list[dict[str, Any]]) -> None:
        (definition,) = (m for m in manifests if m["kind"] == "CustomResourceDefinition")
        client = SERVING.client_config("/convert")
        webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
        definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}

    converting = changed(operator, change)
    spec = service_version(bundle(converting, BundleSettings()))["spec"]
    conversion = spec["webhookdefinitions"][-1]
    assert conversion["type"] == "ConversionWebhook"
    assert conversion["conversionCRDs"] == ["databaseusers.mygroup.handsomeguy.cn"]
    assert [m["type"] for m in spec["installModes"] if m["supported"]] == ["AllNamespaces"]
    with pytest.raises(ConfigurationError, match="OLM converts for AllNamespaces only"):
        bundle(converting, BundleSettings(install_modes=("OwnNamespace",)))


def test_settings(operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "hub.md").write_text("# Users\n\nOf databases.\n")
    settings = BundleSettings.of(
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
    people = (Person("Jane Doe", "jane@example.com"), Person("Nobody"))
    about = replace(operator.about, people=people, urls={"homepage": "https://example.com/users"})
    made = bundle(replace(operator, root=tmp_path, about=about), settings)
    (found,) = documents(made.files["manifests/db-users.clusterserviceversion.yaml"])
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
    # What watches all namespaces need not be told which.
    (deployment,) = spec["install"]["spec"]["deployments"]
    assert "WATCH_NAMESPACE" not in str(deployment)
    assert "LABEL operators.operatorframework.io.bundle.channel.default.v1=stable" in made.containerfile


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"icon": "icon.txt"}, "icon.txt is none of .svg"),
        ({"icon": "none.svg"}, "none.svg: No such file"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"capabilities": "All of them"}, "capabilities"),
    ],
)
def test_settings_that_cannot_be(operator: Operator, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        bundle(operator, BundleSettings.of(settings))


def test_what_is_refused(operator: Operator) -> None:
    def namespaces(manifests: list[dict[str, Any]]) -> None:
        (deployment,) = (m for m in manifests if m["kind"] == "Deployment")
        deployment["spec"]["template"]["spec"]["containers"][0]["args"].append("--namespaces=shop")

    def elsewhere(manifests: list[dict[str, Any]]) -> None:
        (validating,) = (m for m in manifests if m["kind"] == "ValidatingWebhookConfiguration")
        validating["webhooks"][0]["clientConfig"] = {"url": "https://example.com/validate"}

    refused = [
        (changed(operator, elsewhere), "https://example.com/validate: OLM has the operator's own webhooks only"),
        (replace(operator, image=""), "give --image"),
        (replace(operator, about=replace(operator.about, version="1.0")), "needs a semantic version"),
        (changed(operator, namespaces), "config/manager says --namespaces"),
    ]
    for wrong, told in refused:
        with pytest.raises(ConfigurationError, match=told):
            bundle(wrong, BundleSettings())
