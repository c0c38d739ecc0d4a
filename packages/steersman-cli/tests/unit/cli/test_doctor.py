"""``steersman doctor`` on an in-memory cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from framework_support.widget import Widget
from steersman import Client, Manager, ManagerOptions, Request, RequestReconciler, Result
from steersman.api.core_v1 import ConfigMap
from steersman.meta import ApiResource, Unstructured, unstructured
from steersman.webhook import WebhookServerOptions
from steersman_cli.doctor_checks import CheckResult, ProjectChecks
from steersman_cli.output import print_output
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


def deployed_server() -> InMemoryApiServer:
    """Return a server with the Deployment of the project."""
    server = InMemoryApiServer()
    labels = {"app": "shop"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "shop", "image": "shop:1"}]}}
    server.load(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop-system"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "shop", "namespace": "shop-system"},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    )
    return server


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
    assert wrong == {f"definition {NAME}": "not installed"}
    assert set(found) == {"cluster", f"definition {NAME}", "deployment shop-system/shop"}
    assert found["deployment shop-system/shop"].status == "absent"


@virtual_time
async def test_doctor_without_deployment_finds_no_problem(project: Project) -> None:
    server = InMemoryApiServer()
    await Client(server).apply(CRD.of(definition(Widget)))
    found = await run_checks(server, project)
    assert {f.status for f in found.values()} == {"ok", "absent"}
    assert "steersman run" in found["deployment shop-system/shop"].message


@virtual_time
async def test_doctor_of_deployment_reports_missing_objects(project: Project) -> None:
    found = await run_checks(deployed_server(), project)
    wrong = {subject: f.message for subject, f in found.items() if f.status == "wrong"}
    assert wrong["deployment shop-system/shop"] == "no replica is available: no pods"
    assert wrong["rights"].startswith("system:serviceaccount:shop-system:shop lacks permission to ")
    assert wrong["MutatingWebhookConfiguration shop-webhook"] == "not installed"
    assert wrong["certificate in the Secret shop-system/shop-webhook-cert"] == "not found"


def test_doctor_table_fits_80_columns_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("-", "certificate in the Secret shop-operator-system/shop-operator-webhook-cert", "word " * 40)]
    print_output(None, "table", columns=("", "subject", "result"), rows=rows, piped_width=80)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert lines[1].startswith("-  certificate in the Secret")


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
async def test_doctor_accepts_crd_of_another_owner(project: Project) -> None:
    server = InMemoryApiServer()
    manifest = definition(Widget)
    await Client(server).apply(CRD.of(manifest))
    manifest["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "shop"}
    manifest["spec"]["names"]["shortNames"] = ["wd"]
    (project.root / "config/crd/bases/widgets.yaml").write_text(yaml.safe_dump(manifest))
    found = (await run_checks(server, project))[f"definition {NAME}"]
    assert found.status == "ok"
    assert "another owner" in found.message


@virtual_time
async def test_doctor_compares_the_strategy_of_conversions(project: Project) -> None:
    """``steersman dev`` replaces the Service of the conversion webhook by a URL."""
    server = InMemoryApiServer()
    client = Client(server, field_manager="envtest")
    manifest = definition(Widget)
    service = {"name": "shop-webhook", "namespace": "shop-system", "path": "/convert"}
    webhook: dict[str, Any] = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    manifest["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    (project.root / "config/crd/bases/widgets.yaml").write_text(yaml.safe_dump(manifest))
    webhook["clientConfig"] = {"url": "https://127.0.0.1:9443/convert"}
    await client.apply(CRD.of(manifest))
    assert (await run_checks(server, project))[f"definition {NAME}"].status == "ok"
    # Without the webhook, the API server would only change the apiVersion of objects.
    await client.apply(CRD.of(definition(Widget)))
    assert (await run_checks(server, project))[f"definition {NAME}"].fix == "make install"


@virtual_time
async def test_rights(project: Project) -> None:
    server = deployed_server()
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
