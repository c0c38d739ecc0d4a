"""``steersman doctor`` on an in-memory cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from framework_support.widget import Widget
from steersman import Client, Manager, ManagerOptions, Request, RequestReconciler, Result
from steersman.api.core_v1 import ConfigMap
from steersman.meta import ApiResource, Unstructured, unstructured
from steersman.webhook import WebhookServerOptions
from steersman_cli.doctor_checks import CheckResult, ProjectChecks
from steersman_cli.project import Project
from steersman_manifests.crd import definition
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_time

SERVING = WebhookServerOptions(service="shop-webhook", namespace="shop-system")


def api_resource_type(group: str, name: str, plural: str) -> type[Unstructured]:
    return unstructured(ApiResource(group, "v1", name, plural, namespaced=False))


ROLE = api_resource_type("rbac.authorization.k8s.io", "ClusterRole", "clusterroles")
BINDING = api_resource_type("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings")
CRD = api_resource_type("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
WEBHOOK = api_resource_type(
    "admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"
)


class WidgetReconciler(RequestReconciler[Widget]):
    async def reconcile(self, request: Request) -> Result:
        return Result()


def setup(manager: Manager) -> None:
    manager.controller(Widget).needs(ConfigMap, "create").complete(WidgetReconciler)
    manager.webhook(Widget).defaults(lambda widget: widget)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    bases = tmp_path / "config/crd/bases"
    bases.mkdir(parents=True)
    (bases / "widgets.yaml").write_text(yaml.safe_dump(definition(Widget)))
    return Project(tmp_path, {"projectName": "shop", "domain": "example.com"}, {"setup": "shop.main:setup"})


async def run_checks(server: InMemoryApiServer, project: Project) -> dict[str, CheckResult]:
    manager = Manager(server, ManagerOptions(name="shop", webhooks=SERVING))
    setup(manager)
    diagnosis = ProjectChecks(Client(server), project, manager, SERVING)
    return {f.subject: f async for f in diagnosis.run()}


NAME = definition(Widget)["metadata"]["name"]


@virtual_time
async def test_doctor_on_empty_cluster_reports_missing_objects(project: Project) -> None:
    found = await run_checks(InMemoryApiServer(), project)
    assert found["cluster"].status == "ok"
    wrong = {subject: f.message for subject, f in found.items() if f.status == "wrong"}
    assert wrong[f"definition {NAME}"] == "not installed"
    assert wrong["deployment shop-system/shop"] == "not deployed"
    assert wrong["rights"].startswith("system:serviceaccount:shop-system:shop lacks permission to ")
    assert wrong["MutatingWebhookConfiguration shop-webhook"] == "not installed"
    assert wrong["certificate in the Secret shop-system/shop-webhook-cert"] == "not found"


@virtual_time
async def test_definitions(project: Project) -> None:
    server = InMemoryApiServer()
    client = Client(server)
    manifest = definition(Widget)
    await client.apply(CRD.of(manifest))
    assert (await run_checks(server, project))[f"definition {NAME}"].status == "ok"
    schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["description"] = "another one"
    await client.apply(CRD.of(manifest))
    found = (await run_checks(server, project))[f"definition {NAME}"]
    assert (found.status, found.fix) == ("wrong", "make install")
    assert "the cluster's CRD differs" in found.message


@virtual_time
async def test_rights(project: Project) -> None:
    server = InMemoryApiServer()
    manager = Manager(server, ManagerOptions(name="shop", webhooks=SERVING))
    setup(manager)
    role = cluster_role("shop", manager.permissions)
    client = Client(server)
    await client.apply(ROLE.of(role))
    binding = {
        "metadata": {"name": "shop"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "shop"},
        "subjects": [{"kind": "ServiceAccount", "name": "shop", "namespace": "shop-system"}],
    }
    await client.apply(BINDING.of(binding))
    assert (await run_checks(server, project))["rights"].status == "ok"
    role["rules"] = [r for r in role["rules"] if "configmaps" not in r["resources"]]
    await client.apply(ROLE.of(role))
    assert "lacks permission to create configmaps" in (await run_checks(server, project))["rights"].message


@virtual_time
async def test_doctor_reports_webhook_without_ca_bundle(project: Project) -> None:
    server = InMemoryApiServer()
    manager = Manager(server, ManagerOptions(name="shop", webhooks=SERVING))
    setup(manager)
    (configuration,) = manager.webhooks.configurations(SERVING)
    await Client(server).apply(WEBHOOK.of(configuration))
    found = (await run_checks(server, project))["MutatingWebhookConfiguration shop-webhook"]
    assert "have no CA bundle, so every call fails" in found.message
