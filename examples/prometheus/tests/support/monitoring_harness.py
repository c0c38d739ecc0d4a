"""Harness for the operator, in memory or on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from steersman import (
    Client,
    Condition,
    Manager,
    ManagerOptions,
    MergePatch,
    Object,
    ObjectKey,
    ObjectMeta,
    find_condition,
)
from steersman.api.core_v1 import Pod, ServiceAccount
from steersman.api.events_v1 import Event
from steersman_testing import InMemoryApiServer

from monitoring_objects import NAMESPACE
from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus, PrometheusStatus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.controllers.prometheus import PrometheusReconciler
from server_kubelet import FakeKubelet
from server_model import ModelServers

T = TypeVar("T", bound=Object)
KEY = ObjectKey(NAMESPACE, "prometheus")


class PrometheusDriver:
    """Changes and observes one Prometheus like a user."""

    def __init__(self, user: Client, key: ObjectKey, poll_interval: float = 1.0) -> None:
        self.user = user
        self.key = key
        self._poll_interval = poll_interval

    async def create_service_account(self, name: str) -> None:
        metadata = ObjectMeta(name=name, namespace=self.key.namespace)
        await self.user.create(ServiceAccount(metadata=metadata))

    async def patch_spec(self, **spec: Any) -> None:
        await self.user.patch(Prometheus, self.key, MergePatch({"spec": spec}))

    async def status(self) -> PrometheusStatus:
        return (await self.user.get(Prometheus, self.key)).status

    async def wait_reconciled(self, seconds: float = 600) -> PrometheusStatus:
        """Wait until all servers run the current spec, and return the status."""

        async def is_reconciled() -> bool:
            found = await self.user.get(Prometheus, self.key)
            condition = find_condition(found.status.conditions, "Reconciled")
            current = condition is not None and condition.observed_generation == found.metadata.generation
            return current and condition is not None and condition.status == "True"

        await self.wait_until(is_reconciled, seconds)
        return await self.status()

    async def wait_reason(self, reason: str, seconds: float = 600) -> Condition:
        """Wait until Reconciled has the reason, and return the condition."""
        return await self._wait_condition(lambda c: c.type == "Reconciled" and c.reason == reason, seconds)

    async def wait_available(self, status: str, seconds: float = 600) -> Condition:
        """Wait until Available has the status, and return the condition."""
        return await self._wait_condition(lambda c: c.type == "Available" and c.status == status, seconds)

    async def accepted(
        self, kind: type[ServiceMonitor] | type[PodMonitor] | type[PrometheusRule], key: ObjectKey
    ) -> Condition | None:
        """Return the verdict on a monitor or rules, or None."""
        found = await self.user.get(kind, key)
        for binding in found.status.bindings:
            if (binding.namespace, binding.name) == self.key:
                return find_condition(binding.conditions, "Accepted")
        return None

    async def warnings_of(self, name: str) -> list[str]:
        """Return the notes of the warnings about an object."""
        events = (await self.user.list(Event, namespace=self.key.namespace)).items
        return [e.note or "" for e in events if e.regarding.name == name and e.type == "Warning"]

    async def pods(self) -> Sequence[Pod]:
        return (await self.user.list(Pod, namespace=self.key.namespace)).items

    async def wait_until(self, condition: Callable[[], Awaitable[object]], seconds: float = 600) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not await condition():
            assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {await self.status()}"
            await asyncio.sleep(self._poll_interval)

    async def _wait_condition(self, matches: Callable[[Condition], bool], seconds: float) -> Condition:
        found: list[Condition] = []

        async def search() -> bool:
            found[:] = [each for each in (await self.status()).conditions if matches(each)]
            return bool(found)

        await self.wait_until(search, seconds)
        return found[0]


class MonitoringHarness(PrometheusDriver):
    """Harness with models as servers."""

    def __init__(self, server: InMemoryApiServer) -> None:
        super().__init__(Client(server, field_manager="user"), KEY)
        self.server = server
        self.servers = ModelServers()

    async def read(self, kind: type[Any]) -> Sequence[Any]:
        return self.server.read_all(kind)

    def running_text(self) -> str:
        """Return the configuration that all servers run."""
        (text,) = set(self.servers.texts.values())
        return text


@asynccontextmanager
async def monitoring_harness(server: InMemoryApiServer) -> AsyncGenerator[MonitoringHarness]:
    """Run the operator and a kubelet on an in-memory server."""
    harness = MonitoringHarness(server)
    manager = Manager(server, ManagerOptions(), runtime=server.runtime)
    PrometheusReconciler.setup_with_manager(manager, harness.servers)
    kubelet = FakeKubelet(harness.user, harness.read, harness.servers)
    await harness.create_service_account("default")
    async with running_operator(manager, kubelet.reconcile_pods, 1.0):
        yield harness


@asynccontextmanager
async def running_operator(
    manager: Manager, reconcile_pods: Callable[[], Awaitable[None]], poll_interval: float
) -> AsyncGenerator[None]:
    """Run the operator, and a kubelet that reconciles at a fixed interval."""

    async def reconcile_loop() -> None:
        while True:
            await reconcile_pods()
            await asyncio.sleep(poll_interval)

    manager_task = asyncio.create_task(manager.run())
    kubelet_task = asyncio.create_task(reconcile_loop())
    try:
        yield
    finally:
        manager.stop()
        await manager_task
        kubelet_task.cancel()
        with suppress(asyncio.CancelledError):
            await kubelet_task
