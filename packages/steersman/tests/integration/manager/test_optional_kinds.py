"""An optional kind on the real API server follows its CRD."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from framework_support.controller_env import running
from steersman import Manager, Request, RequestReconciler, Result
from steersman.api.core_v1 import ConfigMap
from steersman.manager import ManagerOptions
from steersman.meta import ApiResource, ObjectKey, Resource, Spec, Status, resource, unstructured
from steersman_manifests.crd import definition
from steersman_testing.envtest import Envtest

CRD = unstructured(
    ApiResource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)
)


class MonitorSpec(Spec):
    """Desired state."""


@resource(group="optional.example.com", version="v1")
class Monitor(Resource[MonitorSpec, Status]):
    """An optional kind."""


class IdleReconciler(RequestReconciler[ConfigMap]):
    """Does nothing."""

    async def reconcile(self, request: Request) -> Result:
        return Result()


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.2)


async def test_optional_kind_follows_its_crd(envtest: Envtest, envtest_namespace: str) -> None:
    key = ObjectKey("", f"{Monitor.api_resource.plural}.{Monitor.api_resource.group}")
    monitor = {"metadata": {"name": "a", "namespace": envtest_namespace}, "spec": {}}
    async with envtest.client() as client:
        manager = Manager(client.transport, ManagerOptions(namespaces=(envtest_namespace,)))
        manager.controller(ConfigMap).owns(Monitor, optional=True).complete(IdleReconciler)
        cached = manager.client

        async def is_served() -> bool:
            return await cached.is_served(Monitor)

        async def is_absent() -> bool:
            return not await cached.is_served(Monitor)

        async def is_created() -> bool:
            return bool(await cached.list(Monitor))

        async with running(manager):
            assert await cached.list(Monitor) == ()
            for _ in range(2):
                await client.create(CRD.of(definition(Monitor)))
                await wait_until(is_served)
                await client.create(unstructured(Monitor.api_resource).of(monitor))
                await wait_until(is_created)
                await client.delete(CRD, key)
                await wait_until(is_absent)
                assert await cached.list(Monitor) == ()
