"""Kinds whose CRDs appear and disappear while the manager runs."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from framework_support.controller_env import NAMESPACE, ControllerEnv, eventually, key, running
from framework_support.widget import Widget
from steersman import Manager, Request, RequestReconciler, Result
from steersman.api.apply import meta
from steersman.api.core_v1 import ConfigMap
from steersman.cache import InformerEvent
from steersman.client import Client, HttpRequest, MergePatch
from steersman.controller import has_label
from steersman.errors import ApiStatus, ConfigurationError, ConnectionFailed, Forbidden, NotFound, NotOwned
from steersman.manager import LeaderElection, ManagerOptions
from steersman.meta import (
    ApiResource,
    ApplyConfiguration,
    FrozenStruct,
    Resource,
    Spec,
    Status,
    resource,
)
from steersman_manifests.crd import definition
from steersman_testing import matching, virtual_time

# Two discoveries, and the first list.
SETTLED_SECONDS = 25.0


class MonitorSpec(Spec):
    """Desired state."""

    interval: int = 30


@resource(group="monitoring.example.com", version="v1")
class Monitor(Resource[MonitorSpec, Status]):
    """An optional kind."""


class MonitorSpecApply(FrozenStruct):
    """Apply form of ``MonitorSpec``."""

    interval: int


class MonitorApply(ApplyConfiguration[Monitor]):
    """Apply form of ``Monitor``."""

    read_type = Monitor

    spec: MonitorSpecApply


CRDS = ApiResource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)


def monitor(interval: int) -> MonitorApply:
    return MonitorApply(
        metadata=meta.ObjectMeta(name="a", namespace=NAMESPACE), spec=MonitorSpecApply(interval=interval)
    )


class MonitoredWidgets(RequestReconciler[Widget]):
    """Applies a monitor for each widget while the kind is served."""

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        self.log.info("reconciled", monitors=len(await self.client.list(Monitor, owner=widget)))
        if await self.client.is_served(Monitor):
            metadata = meta.ObjectMeta(name=request.name, namespace=request.namespace)
            await self.client.apply(MonitorApply(metadata=metadata, spec=MonitorSpecApply(interval=15)), owner=widget)
        return Result()


class Cluster:
    """A server with one widget, and a manager that owns monitors."""

    def __init__(self, options: ManagerOptions | None = None) -> None:
        self.env = ControllerEnv()
        self.env.create_widgets("a")
        self.server = self.env.server
        self.manager = Manager(self.server, options, runtime=self.env.runtime)
        self.manager.controller(Widget).owns(Monitor, optional=True).complete(MonitoredWidgets)

    def install(self) -> None:
        self.server.load(definition(Monitor))

    def uninstall(self) -> None:
        name = f"{Monitor.api_resource.plural}.{Monitor.api_resource.group}"
        self.server.handle(HttpRequest(method="DELETE", path=f"{CRDS.path()}/{name}"))

    @property
    def has_monitor(self) -> bool:
        return self.server.read(Monitor, key("a")) is not None

    @property
    def reconciles(self) -> int:
        return len(self.manager.controllers[0].recent())


@virtual_time
async def test_optional_kind_follows_its_crd() -> None:
    cluster = Cluster()
    async with running(cluster.manager):
        await eventually(lambda: cluster.reconciles > 0)
        assert cluster.manager.cache.has_synced
        client = cluster.manager.client
        assert await client.get_or_none(Monitor, key("a")) is None
        assert await client.list(Monitor) == ()
        for _ in range(2):
            cluster.install()
            await asyncio.sleep(SETTLED_SECONDS)
            assert cluster.has_monitor
            assert [m.metadata.name for m in await client.list(Monitor)] == ["a"]
            cluster.uninstall()
            await asyncio.sleep(SETTLED_SECONDS)
            assert await client.list(Monitor) == ()
            assert not await client.is_served(Monitor)
        # Nothing but discovery is sent for an absent kind.
        cluster.server.requests.clear()
        await asyncio.sleep(SETTLED_SECONDS)
        paths = {r.path for r in cluster.server.requests if "monitoring.example.com" in r.path}
        assert paths == {"/apis/monitoring.example.com/v1"}


@virtual_time
async def test_served_optional_kind_is_read_after_first_list() -> None:
    cluster = Cluster()
    cluster.install()
    async with running(cluster.manager):
        await eventually(lambda: cluster.has_monitor)
        assert len(await cluster.manager.client.list(Monitor)) == 1


@virtual_time
async def test_optional_kind_deletion_reconciles_owners() -> None:
    cluster = Cluster()
    cluster.install()
    async with running(cluster.manager):
        await asyncio.sleep(SETTLED_SECONDS)
        before = cluster.reconciles
        cluster.uninstall()
        await asyncio.sleep(SETTLED_SECONDS)
        assert cluster.reconciles > before


@virtual_time
async def test_failing_discovery_keeps_optional_kind() -> None:
    cluster = Cluster()
    cluster.install()
    async with running(cluster.manager):
        await asyncio.sleep(SETTLED_SECONDS)
        for _ in range(3):
            cluster.server.fail_next(matching("GET", "/apis/monitoring.example.com/v1"), ConnectionFailed("lost"))
        await asyncio.sleep(SETTLED_SECONDS)
        assert len(await cluster.manager.client.list(Monitor)) == 1


@virtual_time
async def test_forbidden_discovery_is_logged_once() -> None:
    cluster = Cluster()
    forbidden = Forbidden(ApiStatus("no access to /apis", "Forbidden", 403))
    for _ in range(3):
        cluster.server.fail_next(matching("GET", "/apis/monitoring.example.com/v1"), forbidden)
    with capture_logs() as lines:
        async with running(cluster.manager):
            await asyncio.sleep(SETTLED_SECONDS)
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [(line["kind"], "system:discovery" in line["event"]) for line in warnings] == [("Monitor", True)]


@virtual_time
async def test_optional_absent_kind_is_read_after_lost_write() -> None:
    cluster = Cluster()
    async with running(cluster.manager):
        await eventually(lambda: cluster.reconciles > 0)
        cluster.server.fail_next(matching("PATCH", "/apis/monitoring.example.com/v1"), ConnectionFailed("lost"))
        client = cluster.manager.client
        with pytest.raises(ConnectionFailed):
            await client.apply(monitor(interval=15))
        assert await client.get_or_none(Monitor, key("a")) is None
        assert await client.list(Monitor) == ()


@virtual_time
async def test_optional_new_kind_keeps_foreign_object() -> None:
    cluster = Cluster()
    async with running(cluster.manager):
        await eventually(lambda: cluster.reconciles > 0)
        client, owner = cluster.manager.client, cluster.env.read_widget("a")
        with pytest.raises(NotFound, match="404 page not found"):
            await client.apply(monitor(interval=15), owner=owner)
        # Discovery lags behind the CRD.
        cluster.install()
        await Client(cluster.server, field_manager="helm").apply(monitor(interval=99))
        with pytest.raises(NotOwned):
            await client.apply(monitor(interval=15), owner=owner)


@virtual_time
async def test_new_leader_does_not_wait_for_absent_kind() -> None:
    cluster = Cluster(ManagerOptions(leader_election=LeaderElection(name="op", namespace=NAMESPACE)))
    async with running(cluster.manager):
        await eventually(lambda: cluster.reconciles > 0, 60)


@virtual_time
async def test_appearing_kind_respects_predicates() -> None:
    cluster = Cluster()
    manager = Manager(cluster.server, runtime=cluster.env.runtime)
    builder = manager.controller(Widget).with_predicate(has_label("shard", "1"))
    builder.owns(Monitor, optional=True).complete(MonitoredWidgets)
    async with running(manager):
        await asyncio.sleep(SETTLED_SECONDS)
        cluster.install()
        await asyncio.sleep(SETTLED_SECONDS)
        assert manager.controllers[0].recent() == ()


@virtual_time
async def test_appearing_kind_survives_failing_predicate() -> None:
    cluster = Cluster()
    cluster.env.create_widgets("b", "c")
    manager = Manager(cluster.server, runtime=cluster.env.runtime)

    def passes(event: InformerEvent[Widget]) -> bool:
        if event.object.metadata.name == "b" and event.object.metadata.labels:
            raise ValueError("no label is expected")
        return True

    builder = manager.controller(Widget).with_event_filter(passes)
    builder.owns(Monitor, optional=True).complete(MonitoredWidgets)
    async with running(manager):
        await cluster.env.client.patch(Widget, key("b"), MergePatch({"metadata": {"labels": {"a": "b"}}}))
        await asyncio.sleep(SETTLED_SECONDS)
        cluster.install()
        await asyncio.sleep(SETTLED_SECONDS)
        names = {found.metadata.name for found in await manager.client.list(Monitor)}
        assert {"a", "c"} <= names
        cluster.uninstall()
        await asyncio.sleep(SETTLED_SECONDS)
        assert not await manager.client.is_served(Monitor)


def test_kind_optional_and_required_raises() -> None:
    cluster = Cluster()
    builder = cluster.manager.controller(Widget).named("other").owns(Monitor)
    with pytest.raises(ConfigurationError, match="Monitor is watched both with and without optional=True"):
        builder.complete(MonitoredWidgets)


@virtual_time
async def test_watched_optional_kind_follows_its_crd() -> None:
    cluster = Cluster()
    manager = Manager(cluster.server, runtime=cluster.env.runtime)
    builder = manager.controller(Widget).watches(Monitor, lambda monitor: (monitor.key,), optional=True)
    builder.complete(MonitoredWidgets)
    async with running(manager):
        await asyncio.sleep(SETTLED_SECONDS)
        cluster.install()
        await asyncio.sleep(SETTLED_SECONDS)
        origins = {trigger.origin for info in manager.controllers[0].recent() for trigger in info.triggers}
        assert "watches" in origins and cluster.has_monitor


@virtual_time
async def test_is_served_without_informer_asks_server() -> None:
    cluster = Cluster()
    client = cluster.env.cached
    assert await client.is_served(ConfigMap)
    assert not await client.is_served(Monitor)
