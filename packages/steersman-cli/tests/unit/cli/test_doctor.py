"""``steersman doctor``: what it finds on a cluster, which is in memory here."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from framework_support.buoy import Buoy
from steersman import Client, Manager, ManagerOptions, Reconciler, Request, Result
from steersman.api.core_v1 import ConfigMap
from steersman.crd import definition
from steersman.meta import ApiResource, Unstructured, unstructured
from steersman.rbac import cluster_role
from steersman.webhook import WebhookServing
from steersman_cli.diagnosis import Diagnosis, Finding
from steersman_cli.project import Project
from steersman_testing import InMemoryApiServer, virtual_time

SERVING = WebhookServing(service="shop-webhook", namespace="shop-system")


def kind(group: str, name: str, plural: str) -> type[Unstructured]:
    return unstructured(ApiResource(group, "v1", name, plural, namespaced=False))


ROLE = kind("rbac.authorization.k8s.io", "ClusterRole", "clusterroles")
BINDING = kind("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings")
CRD = kind("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
WEBHOOK = kind("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations")


class Keeper(Reconciler[Buoy]):
    async def reconcile(self, request: Request) -> Result:
        return Result()


def setup(manager: Manager) -> None:
    manager.controller(Buoy).permits(ConfigMap, "create").complete(Keeper)
    manager.webhook(Buoy).defaults(lambda buoy: buoy)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    bases = tmp_path / "config/crd/bases"
    bases.mkdir(parents=True)
    (bases / "buoys.yaml").write_text(yaml.safe_dump(definition(Buoy)))
    return Project(tmp_path, {"projectName": "shop", "domain": "example.com"}, {"setup": "shop.main:setup"})


async def findings(server: InMemoryApiServer, project: Project) -> dict[str, Finding]:
    manager = Manager(server, ManagerOptions(name="shop", webhooks=SERVING))
    setup(manager)
    diagnosis = Diagnosis(Client(server), project, manager, SERVING)
    return {f.subject: f async for f in diagnosis.findings()}


NAME = definition(Buoy)["metadata"]["name"]


@virtual_time
async def test_an_empty_cluster(project: Project) -> None:
    found = await findings(InMemoryApiServer(), project)
    assert found["cluster"].status == "ok"
    wrong = {subject: f.message for subject, f in found.items() if f.status == "wrong"}
    assert wrong[f"definition {NAME}"] == "it is not installed"
    assert wrong["deployment shop-system/shop"] == "it is not deployed"
    assert wrong["rights"].startswith("system:serviceaccount:shop-system:shop may not ")
    assert wrong["MutatingWebhookConfiguration shop-webhook"] == "it is not installed"
    assert wrong["certificate in the Secret shop-system/shop-webhook-cert"] == "there is none"


@virtual_time
async def test_definitions(project: Project) -> None:
    server = InMemoryApiServer()
    client = Client(server)
    manifest = definition(Buoy)
    await client.apply(CRD.of(manifest))
    assert (await findings(server, project))[f"definition {NAME}"].status == "ok"
    schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["description"] = "another one"
    await client.apply(CRD.of(manifest))
    found = (await findings(server, project))[f"definition {NAME}"]
    assert (found.status, found.fix) == ("wrong", "make install")
    assert "another one" in found.message


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
    assert (await findings(server, project))["rights"].status == "ok"
    role["rules"] = [r for r in role["rules"] if "configmaps" not in r["resources"]]
    await client.apply(ROLE.of(role))
    assert "may not create configmaps" in (await findings(server, project))["rights"].message


@virtual_time
async def test_a_webhook_without_authority(project: Project) -> None:
    server = InMemoryApiServer()
    manager = Manager(server, ManagerOptions(name="shop", webhooks=SERVING))
    setup(manager)
    (configuration,) = manager.webhooks.configurations(SERVING)
    await Client(server).apply(WEBHOOK.of(configuration))
    found = (await findings(server, project))["MutatingWebhookConfiguration shop-webhook"]
    assert "trust no authority, so every call fails" in found.message
