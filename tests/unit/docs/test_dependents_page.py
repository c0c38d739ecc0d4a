"""The page "Declare dependents" does what it says."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from framework_support.documented_code import DOCS, Pages
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, find_condition
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time
from steersman_testing.workloads import complete_workloads

PAGE = "how-to/declare-dependents.md"
OPERATOR = "system:serviceaccount:default:shops"
KEY = ObjectKey("default", "blue")


@virtual_time
async def test_dependents_page_operator_applies_and_prunes(pages: Pages) -> None:
    shops = pages(PAGE)("shops")
    server = InMemoryApiServer(runtime := virtual_runtime())
    server.register(shops.Shop)
    spec = shops.ShopSpec(image="shop:1", pages=("home", "news"))
    server.load(shops.Shop(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec))
    manager = Manager(server.as_user(OPERATOR), runtime=runtime)
    shops.setup(manager)
    server.grant(OPERATOR, cluster_role("shops", manager.permissions))
    running = asyncio.create_task(manager.run())
    client = Client(server)

    async def ready() -> Any:
        await runtime.clock.sleep(5)
        return find_condition((await client.get(shops.Shop, KEY)).status.conditions, "Ready")

    def config_maps() -> set[str]:
        return {found.metadata.name for found in server.read_all(ConfigMap, KEY.namespace)}

    condition = await ready()
    assert condition.message == "Job default/blue-migrate-1: 0 of 1 pods have succeeded"
    status = {"conditions": [{"type": "Complete", "status": "True"}]}
    job = ObjectKey("default", "blue-migrate-1")
    await client.patch(Job, job, MergePatch({"status": status}), subresource="status")
    condition = await ready()
    expected = re.search(r'```text title="explain"\n(.*?)\n```', (DOCS / PAGE).read_text(), re.DOTALL)
    assert expected is not None
    assert (condition.status, condition.reason) == ("False", "Progressing")
    replicas = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}
    deployment = shops.Deployment
    await client.patch(deployment, KEY, MergePatch({"status": replicas}), subresource="status")
    assert (await ready()).message == expected[1]
    newest = manager.controllers[0].recent()[-1].to_builtins()
    assert newest["blocking_dependents"] == [
        {"kind": "Deployment", "object": "default/blue", "message": expected[1].partition(": ")[2], "failed": False}
    ]
    await client.patch(deployment, KEY, MergePatch({"status": {"availableReplicas": 1}}), subresource="status")
    assert (await ready()).status == "True"
    assert config_maps() == {"blue-home", "blue-news"}
    await client.patch(shops.Shop, KEY, MergePatch({"spec": {"pages": ["home"]}}))
    assert (await ready()).status == "True"
    assert config_maps() == {"blue-home"}
    assert server.rbac_denials == []
    assert shops.reachable_service(await client.get(shops.Shop, KEY)).ready is shops.has_endpoint
    manager.stop()
    await running


@virtual_time
async def test_dependents_page_reports_replicas_and_errors(pages: Pages) -> None:
    shops = pages(PAGE)("shops")
    server = InMemoryApiServer(runtime := virtual_runtime())
    server.register(shops.Shop)
    manager, workloads = Manager(server, runtime=runtime), Manager(server, ManagerOptions(name="w"), runtime)
    builder = manager.controller(shops.Shop).owns(Job).owns(shops.Deployment)
    builder.complete(shops.ReportingShopReconciler)
    complete_workloads(workloads)
    running = [asyncio.create_task(each.run()) for each in (manager, workloads)]
    client, metadata = Client(server), ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    server.fail_next(lambda request: "/deployments/" in request.path, 500, times=8)
    await client.create(shops.Shop(metadata=metadata, spec=shops.ShopSpec(image="shop:1", replicas=2)))
    await runtime.clock.sleep(0.1)
    status = (await client.get(shops.Shop, KEY)).status
    condition = find_condition(status.conditions, "Ready")
    assert condition is not None
    assert (condition.reason, status.ready_replicas) == ("ReconcileFailed", 0)
    await runtime.clock.sleep(60)
    status = (await client.get(shops.Shop, KEY)).status
    condition = find_condition(status.conditions, "Ready")
    assert condition is not None
    assert (condition.status, status.ready_replicas) == ("True", 2)
    for each in (manager, workloads):
        each.stop()
    await asyncio.gather(*running)
