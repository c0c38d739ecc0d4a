"""LeaderService on a real API server, with the operator's role. The test writes what the kubelet would."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from steersman import Client, FrozenDict, Manager, ManagerOptions, MergePatch, ObjectKey, ObjectMeta, connect
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.errors import Invalid
from steersman_testing.envtest import Envtest

from leader_operator.api.v1.leaderservice import LeaderService, LeaderServiceSpec, PublishSpec, ServicePort
from leader_operator.controllers.leaderservice import LeaderServiceReconciler
from leader_operator.discovery import serve_leaders
from pods import create_pod, pod, pod_status, set_ready
from real_pod import free_port

ROLE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "config/rbac/role.yaml").read_text())


async def create_service(client: Client, key: ObjectKey) -> None:
    spec = LeaderServiceSpec(
        selector=FrozenDict({"app": "orders"}),
        ports=(ServicePort(port=80, target_port=8080),),
        publish=PublishSpec(config_map="orders-file", headless=True),
    )
    await client.create(LeaderService(metadata=ObjectMeta(name=key.name, namespace=key.namespace), spec=spec))


async def wait_for_address(client: Client, key: ObjectKey, address: str) -> None:
    """Wait until the EndpointSlice has the address only."""
    async with asyncio.timeout(30):
        while True:
            found = {s.metadata.name: s for s in (await client.list(EndpointSlice, namespace=key.namespace)).items}
            if key.name in found and [a for e in found[key.name].endpoints for a in e.addresses] == [address]:
                return
            await asyncio.sleep(0.05)


async def test_leader_is_published_with_the_operators_role(envtest: Envtest, envtest_namespace: str) -> None:
    key, port = ObjectKey(envtest_namespace, "orders"), free_port()
    operator = envtest.user("operator", roles=[ROLE])
    async with connect(operator.config) as transport, envtest.client() as user:
        manager = Manager(transport, ManagerOptions(namespaces=(envtest_namespace,)))
        LeaderServiceReconciler.setup_with_manager(manager)
        serve_leaders(manager, port)
        running = asyncio.create_task(manager.run())
        try:
            await create_service(user, key)
            for index in range(2):
                await create_pod(user, pod(f"orders-{index}", namespace=envtest_namespace))
            await wait_for_address(user, ObjectKey(envtest_namespace, "orders-ipv4"), "10.0.0.1")
            await set_ready(user, ObjectKey(envtest_namespace, "orders-0"), pod_status(ready=False))
            for name in ("orders-ipv4", "orders-leader-ipv4"):
                await wait_for_address(user, ObjectKey(envtest_namespace, name), "10.0.0.2")
            document = {"leader": "orders-1", "term": 2, "address": "10.0.0.2"}
            await wait_until(lambda: get_leader(port, key) == document)
            await wait_for_file(user, ObjectKey(envtest_namespace, "orders-file"), document)
            await wait_for_label(user, ObjectKey(envtest_namespace, "orders-1"))
            with pytest.raises(Invalid, match="term must not decrease"):
                await user.patch(LeaderService, key, MergePatch({"status": {"term": 1}}), subresource="status")
        finally:
            manager.stop()
            await running


async def wait_for_file(client: Client, key: ObjectKey, document: dict[str, Any]) -> None:
    async with asyncio.timeout(30):
        while json.loads((await client.get(ConfigMap, key)).data["leader.json"]) != document:
            await asyncio.sleep(0.05)


async def wait_for_label(client: Client, key: ObjectKey) -> None:
    async with asyncio.timeout(30):
        while (await client.get(Pod, key)).metadata.labels.get("orders.leader.example.com/role") != "leader":
            await asyncio.sleep(0.05)


def get_leader(port: int, key: ObjectKey) -> dict[str, Any]:
    """``GET /leader`` of the operator."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/leader/{key.namespace}/{key.name}", timeout=5) as response:
        return json.load(response)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)
