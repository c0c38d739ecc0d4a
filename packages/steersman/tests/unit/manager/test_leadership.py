"""Managers with leader election, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from framework_support.controller_env import NAMESPACE, ControllerEnv, key
from framework_support.leases import now, wait_until
from framework_support.widget import Widget, WidgetStatus
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap
from steersman.api.events_v1 import Event
from steersman.client import HttpRequest, HttpResponse, Transport
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import ConnectionFailed, Forbidden, LeadershipLost
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.manager.leader_election.fence import Fence, FencedTransport
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

LEASE = ObjectKey(NAMESPACE, "orders-operator")


class ReplicaTransport(Transport):
    """One replica's connection: counts its writes, and can be lost."""

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server
        self.writes: list[tuple[float, HttpRequest]] = []
        self.cut = False
        self.closed = False
        self.delay = 0.0
        self.lag = 0.0

    async def request(self, request: HttpRequest) -> HttpResponse:
        if self.cut:
            raise ConnectionFailed("cut")
        await asyncio.sleep(self.delay)
        if request.before_send is not None:
            request.before_send()
        if request.method != "GET" and "/leases" not in request.path:
            self.writes.append((now(), request))
        return await self._server.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        if self.cut:
            raise ConnectionFailed("cut")
        return self._lagging(request)

    @asynccontextmanager
    async def _lagging(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        async with self._server.stream(request) as lines:
            yield self._delayed(lines, "/leases" in request.path)

    async def _delayed(self, lines: AsyncIterator[bytes], at_once: bool) -> AsyncGenerator[bytes, None]:
        async for line in lines:
            await asyncio.sleep(0 if at_once else self.lag)
            yield line

    async def close(self) -> None:
        self.closed = True


class StatusWriter(RequestReconciler[Widget]):
    """Writes a status at every turn, ten times a second."""

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        await self.client.apply_status(widget, WidgetStatus(depth=round(now() * 10)))
        return Result(requeue_after=0.1)


class Replica:
    """A manager and its task."""

    def __init__(
        self,
        world: ControllerEnv,
        name: str,
        reconciler: type[RequestReconciler[Widget]] = StatusWriter,
        **options: Any,
    ) -> None:
        self.transport = ReplicaTransport(world.server)
        election = LeaderElection(name=LEASE.name, namespace=LEASE.namespace, identity=name)
        settings = ManagerOptions(name="orders-operator", leader_election=election, **options)
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        runtime = Runtime(virtual_runtime().clock, virtual_runtime(len(name)).random, self._spawn)
        self.manager = Manager(self.transport, settings, runtime)
        self.manager.controller(Widget).complete(reconciler)
        self.task = asyncio.create_task(self.manager.run())

    def _spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        self.tasks[name] = asyncio.create_task(coroutine, name=name)
        return self.tasks[name]

    async def end(self) -> None:
        self.manager.stop()
        await self.task


def holder(world: ControllerEnv) -> str | None:
    found = world.server.read(Lease, LEASE)
    return found.spec.holder_identity if found else None


@asynccontextmanager
async def leader_and_standby(world: ControllerEnv) -> AsyncGenerator[tuple[Replica, Replica], None]:
    """A leader and a standby."""
    first = Replica(world, "first")
    await wait_until(lambda: bool(first.transport.writes), 5)
    second = Replica(world, "second")
    await asyncio.sleep(20)
    yield first, second
    for replica in (first, second):
        replica.manager.stop()
    await asyncio.gather(first.task, second.task, return_exceptions=True)


@virtual_time
async def test_standby_sends_no_writes_and_keeps_cache_warm() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with leader_and_standby(world) as (first, second):
        assert second.manager.cache.has_synced
        assert second.transport.writes == []
        assert (first.manager.is_leader, second.manager.is_leader) == (True, False)
        with pytest.raises(LeadershipLost):
            await second.manager.client.delete(Widget, key("a"))
        assert second.transport.writes == []
        assert (await second.manager.client.get(Widget, key("a"))).metadata.name == "a"


@virtual_time
async def test_clean_shutdown_hands_leadership_over_in_two_seconds() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with leader_and_standby(world) as (first, second):
        await first.end()
        ended = now()
        await wait_until(lambda: bool(second.transport.writes), 2)
        assert all(at <= ended for at, _ in first.transport.writes)
        assert second.transport.writes[0][0] >= first.transport.writes[-1][0]
        assert holder(world) == "second"


class SlowStatusWriter(StatusWriter):
    """Takes twenty seconds, and writes at the end."""

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        await asyncio.sleep(20)
        await self.client.apply_status(widget, WidgetStatus(depth=7))
        self.events.normal(widget, "Painted", "it is red now")
        return Result()


@virtual_time
async def test_lease_is_released_after_work_and_events() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    first = Replica(world, "first", SlowStatusWriter)
    await wait_until(lambda: holder(world) == "first", 5)
    await asyncio.sleep(1)
    second = Replica(world, "second")
    await asyncio.sleep(1)
    first.manager.stop()
    await asyncio.sleep(15)
    assert holder(world) == "first"
    assert second.transport.writes == []
    await first.task
    assert [e.note for e in world.server.read_all(Event, NAMESPACE)] == ["it is red now"]
    await wait_until(lambda: holder(world) == "second", 2)
    assert min(at for at, _ in second.transport.writes or [(now(), None)]) >= max(
        at for at, _ in first.transport.writes
    )
    await second.end()


@virtual_time
async def test_leader_without_connection_stops_before_successor() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with leader_and_standby(world) as (first, second):
        first.transport.cut = True
        await wait_until(lambda: bool(second.transport.writes), 40)
        assert first.task.done()
        with pytest.raises(LeadershipLost, match="could not be renewed within 10 s"):
            first.task.result()
        assert first.transport.closed
        assert first.transport.writes[-1][0] < second.transport.writes[0][0]


@virtual_time
async def test_leadership_lost_during_shutdown_skips_grace() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    first = Replica(world, "first", SlowStatusWriter)
    await wait_until(lambda: holder(world) == "first", 5)
    await asyncio.sleep(1)
    first.manager.stop()
    first.transport.cut = True
    began = now()
    with pytest.raises(LeadershipLost):
        await first.task
    assert 8 <= now() - began < 14
    first.transport.cut = False
    assert first.transport.writes == []
    assert world.server.read_all(Event, NAMESPACE) == ()


@virtual_time
async def test_fence_blocks_requests_after_renewal_deadline() -> None:
    """Responses to renewals are slow, then the elector freezes while work continues."""
    world = ControllerEnv()
    world.create_widgets("a")
    first = Replica(world, "first")
    await wait_until(lambda: bool(first.transport.writes), 5)
    first.transport.delay = 1.5
    await asyncio.sleep(30)
    renewals = [r for r in world.server.requests if r.method == "PATCH" and "/leases/" in r.path]
    assert renewals
    first.tasks["leader election"].cancel()
    frozen_at = now()
    await asyncio.sleep(60)
    found = world.server.read(Lease, LEASE)
    assert found is not None
    assert found.spec.renew_time is not None
    # The record says when it was written, before it was sent.
    renewed = (found.spec.renew_time - virtual_runtime().clock.now()).total_seconds() + now()
    last = first.transport.writes[-1][0]
    assert frozen_at < last <= renewed + 14
    assert not first.manager.is_leader
    assert not first.task.done()
    first.manager.stop()
    await first.task


@virtual_time
async def test_fence_is_checked_when_request_leaves_queue() -> None:
    world = ControllerEnv()
    transport = ReplicaTransport(world.server)
    fence = Fence(now)
    fenced = FencedTransport(transport, fence.check)
    fence.open_until(10)
    transport.delay = 20
    with pytest.raises(LeadershipLost, match=r"may have expired 10\.0 s ago"):
        await fenced.request(HttpRequest(method="DELETE", path="/api/v1/namespaces/orders/configmaps/a"))
    assert transport.writes == []
    assert (
        await fenced.request(HttpRequest(method="GET", path="/api/v1/namespaces/orders/configmaps"))
    ).status == 200


@virtual_time
async def test_fence_combines_with_existing_before_send() -> None:
    world = ControllerEnv()
    fence = Fence(now)
    fence.open_until(10)

    def refuse() -> None:
        raise ConnectionFailed("not today")

    with pytest.raises(ConnectionFailed, match="not today"):
        request = HttpRequest(method="DELETE", path="/api/v1/namespaces/orders/configmaps/a", before_send=refuse)
        await FencedTransport(ReplicaTransport(world.server), fence.check).request(request)


@virtual_time
async def test_replica_without_synced_cache_does_not_campaign() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    world.server.fail_next(matching("GET", "/widgets"), 403, times=4)
    blind = Replica(world, "blind")
    await asyncio.sleep(3)
    assert holder(world) is None
    await wait_until(lambda: holder(world) == "blind", 600)
    await blind.end()


@virtual_time
async def test_runnables_without_election_run_on_standby() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    first = Replica(world, "first")
    await wait_until(lambda: bool(first.transport.writes), 5)
    second = Replica(world, "second")
    ran: list[str] = []

    async def everywhere() -> None:
        ran.append("everywhere")
        await second.manager.unfenced_client.delete(ConfigMap, key("log"))

    async def leader_only() -> None:
        ran.append("leader only")

    world.server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "log", "namespace": NAMESPACE}})
    second.manager.add(everywhere, needs_leader_election=False)
    second.manager.add(leader_only)
    await asyncio.sleep(20)
    assert ran == ["everywhere"]
    assert world.server.read(ConfigMap, key("log")) is None
    await first.end()
    await asyncio.sleep(2)
    assert ran == ["everywhere", "leader only"]
    await second.end()


class RecordingReconciler(RequestReconciler[Widget]):
    """Notes what it sees of each widget."""

    seen: list[tuple[str, int | None]] = []  # noqa: RUF012

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        self.seen.append((request.name, widget.status.depth if widget.status else None))
        return Result()


@virtual_time
async def test_new_leader_observes_writes_of_previous_leader() -> None:
    RecordingReconciler.seen.clear()
    world = ControllerEnv()
    world.create_widgets("a")
    first = Replica(world, "first", RecordingReconciler)
    await wait_until(lambda: bool(RecordingReconciler.seen), 5)
    second = Replica(world, "second", RecordingReconciler)
    await asyncio.sleep(20)
    second.transport.lag = 5
    RecordingReconciler.seen.clear()
    await first.manager.client.apply_status(world.read_widget("a"), WidgetStatus(depth=99))
    await first.end()
    assert RecordingReconciler.seen == [("a", 99)]
    RecordingReconciler.seen.clear()
    await wait_until(lambda: holder(world) == "second", 2)
    world.server.fail_next(matching("GET", "/widgets"), 503, times=2)
    await wait_until(lambda: bool(RecordingReconciler.seen), 30)
    assert RecordingReconciler.seen == [("a", 99)]
    await second.end()


@virtual_time
async def test_leader_failing_catch_up_releases_lease() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    first = Replica(world, "first")
    await wait_until(lambda: bool(first.transport.writes), 5)
    second = Replica(world, "second", cache_sync_timeout=20)
    await asyncio.sleep(20)
    world.server.fail_next(matching("GET", "/widgets"), 403, times=1000)
    await first.end()
    await wait_until(lambda: holder(world) == "second", 2)
    with pytest.raises(Forbidden):
        async with asyncio.timeout(60):
            await second.task
    assert holder(world) == ""


@virtual_time
async def test_controller_without_election_runs_on_standby() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    first = Replica(world, "first")
    await wait_until(lambda: bool(first.transport.writes), 5)
    transport = ReplicaTransport(world.server)
    election = LeaderElection(name=LEASE.name, namespace=LEASE.namespace, identity="second")
    manager = Manager(transport, ManagerOptions(leader_election=election), virtual_runtime())
    manager.controller(Widget).named("everywhere").needs_leader_election(False).complete(StatusWriter)
    manager.controller(Widget).named("leader").complete(RecordingReconciler)
    RecordingReconciler.seen.clear()
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(5)
    assert transport.writes
    assert RecordingReconciler.seen == []
    manager.stop()
    await running
    await first.end()
