"""Managers that contend for one lease, in virtual time: who works, who stands by, and what a former leader sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from framework_support.buoy import Buoy, BuoyStatus
from framework_support.world import NAMESPACE, World, key
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap
from steersman.api.events_v1 import Event
from steersman.client import HttpRequest, HttpResponse, Transport
from steersman.controller import Reconciler, Request, Result
from steersman.errors import ConnectionFailed, Forbidden, LeadershipLost
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.manager.fence import Fence, GuardedTransport
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

LEASE = ObjectKey(NAMESPACE, "sea-operator")


class Ship(Transport):
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
        if request.guard is not None:
            request.guard()
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


class Painter(Reconciler[Buoy]):
    """Writes a status at every turn, ten times a second."""

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Buoy, request)
        await self.client.apply_status(buoy, BuoyStatus(depth=round(now() * 10)))
        return Result(requeue_after=0.1)


class Replica:
    """A manager and its task."""

    def __init__(self, world: World, name: str, reconciler: type[Reconciler[Buoy]] = Painter, **options: Any) -> None:
        self.ship = Ship(world.server)
        election = LeaderElection(name=LEASE.name, namespace=LEASE.namespace, identity=name)
        settings = ManagerOptions(name="sea-operator", leader_election=election, **options)
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        runtime = Runtime(virtual_runtime().clock, virtual_runtime(len(name)).random, self._spawn)
        self.manager = Manager(self.ship, settings, runtime)
        self.manager.controller(Buoy).complete(reconciler)
        self.task = asyncio.create_task(self.manager.run())

    def _spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        self.tasks[name] = asyncio.create_task(coroutine, name=name)
        return self.tasks[name]

    async def end(self) -> None:
        self.manager.stop()
        await self.task


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], bool], within: float) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


def holder(world: World) -> str | None:
    found = world.server.read(Lease, LEASE)
    return found.spec.holder_identity if found else None


@asynccontextmanager
async def two(world: World) -> AsyncGenerator[tuple[Replica, Replica], None]:
    """A leader and a standby."""
    first = Replica(world, "first")
    await until(lambda: bool(first.ship.writes), 5)
    second = Replica(world, "second")
    await asyncio.sleep(20)
    yield first, second
    for replica in (first, second):
        replica.manager.stop()
    await asyncio.gather(first.task, second.task, return_exceptions=True)


@virtual_time
async def test_a_standby_writes_nothing_and_keeps_a_warm_cache() -> None:
    world = World()
    world.make("a")
    async with two(world) as (first, second):
        assert second.manager.cache.has_synced
        assert second.ship.writes == []
        assert (first.manager.is_leader, second.manager.is_leader) == (True, False)
        with pytest.raises(LeadershipLost):
            await second.manager.client.delete(Buoy, key("a"))
        assert second.ship.writes == []
        assert (await second.manager.client.get(Buoy, key("a"))).metadata.name == "a"


@virtual_time
async def test_after_a_clean_shutdown_the_standby_works_within_two_seconds() -> None:
    world = World()
    world.make("a")
    async with two(world) as (first, second):
        await first.end()
        ended = now()
        await until(lambda: bool(second.ship.writes), 2)
        assert all(at <= ended for at, _ in first.ship.writes)
        assert second.ship.writes[0][0] >= first.ship.writes[-1][0]
        assert holder(world) == "second"


class Slow(Painter):
    """Takes twenty seconds, and writes at the end."""

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Buoy, request)
        await asyncio.sleep(20)
        await self.client.apply_status(buoy, BuoyStatus(depth=7))
        self.events.normal(buoy, "Painted", "it is red now")
        return Result()


@virtual_time
async def test_the_lease_is_kept_until_work_and_events_are_done() -> None:
    world = World()
    world.make("a")
    first = Replica(world, "first", Slow)
    await until(lambda: holder(world) == "first", 5)
    await asyncio.sleep(1)
    second = Replica(world, "second")
    await asyncio.sleep(1)
    first.manager.stop()
    await asyncio.sleep(15)
    assert holder(world) == "first"
    assert second.ship.writes == []
    await first.task
    assert [e.note for e in world.server.read_all(Event, NAMESPACE)] == ["it is red now"]
    await until(lambda: holder(world) == "second", 2)
    assert min(at for at, _ in second.ship.writes or [(now(), None)]) >= max(at for at, _ in first.ship.writes)
    await second.end()


@virtual_time
async def test_a_leader_that_is_cut_off_ends_with_the_reason_before_another_works() -> None:
    world = World()
    world.make("a")
    async with two(world) as (first, second):
        first.ship.cut = True
        await until(lambda: bool(second.ship.writes), 40)
        assert first.task.done()
        with pytest.raises(LeadershipLost, match="could not be renewed for 10 s"):
            first.task.result()
        assert first.ship.closed
        assert first.ship.writes[-1][0] < second.ship.writes[0][0]


@virtual_time
async def test_leadership_lost_while_work_ends_cuts_that_short() -> None:
    world = World()
    world.make("a")
    first = Replica(world, "first", Slow)
    await until(lambda: holder(world) == "first", 5)
    await asyncio.sleep(1)
    first.manager.stop()
    first.ship.cut = True
    began = now()
    with pytest.raises(LeadershipLost):
        await first.task
    assert 8 <= now() - began < 14
    first.ship.cut = False
    assert first.ship.writes == []
    assert world.server.read_all(Event, NAMESPACE) == ()


@virtual_time
async def test_no_request_starts_after_the_deadline_counted_from_the_last_renewal_sent() -> None:
    """The renewals' answers are slow, and then the elector is frozen while the work goes on."""
    world = World()
    world.make("a")
    first = Replica(world, "first")
    await until(lambda: bool(first.ship.writes), 5)
    first.ship.delay = 1.5
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
    last = first.ship.writes[-1][0]
    assert frozen_at < last <= renewed + 14
    assert not first.manager.is_leader
    assert not first.task.done()
    first.manager.stop()
    await first.task


@virtual_time
async def test_a_guarded_request_that_waits_for_its_turn_is_asked_at_the_last_moment() -> None:
    world = World()
    ship = Ship(world.server)
    fence = Fence(now)
    guarded = GuardedTransport(ship, fence.guard)
    fence.open_until(10)
    ship.delay = 20
    with pytest.raises(LeadershipLost, match=r"could have been taken 10\.0 s ago"):
        await guarded.request(HttpRequest(method="DELETE", path="/api/v1/namespaces/sea/configmaps/a"))
    assert ship.writes == []
    assert (await guarded.request(HttpRequest(method="GET", path="/api/v1/namespaces/sea/configmaps"))).status == 200


@virtual_time
async def test_a_guard_adds_to_the_one_that_a_request_has() -> None:
    world = World()
    fence = Fence(now)
    fence.open_until(10)

    def refuse() -> None:
        raise ConnectionFailed("not today")

    with pytest.raises(ConnectionFailed, match="not today"):
        request = HttpRequest(method="DELETE", path="/api/v1/namespaces/sea/configmaps/a", guard=refuse)
        await GuardedTransport(Ship(world.server), fence.guard).request(request)


@virtual_time
async def test_a_replica_whose_caches_do_not_sync_does_not_take_the_lease() -> None:
    world = World()
    world.make("a")
    world.server.fail_next(matching("GET", "/buoys"), 403, times=4)
    blind = Replica(world, "blind")
    await asyncio.sleep(3)
    assert holder(world) is None
    await until(lambda: holder(world) == "blind", 600)
    await blind.end()


@virtual_time
async def test_runnables_that_need_no_leader_run_on_standbys() -> None:
    world = World()
    world.make("a")
    first = Replica(world, "first")
    await until(lambda: bool(first.ship.writes), 5)
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


class Logbook(Reconciler[Buoy]):
    """Notes what it sees of each buoy."""

    seen: list[tuple[str, int | None]] = []  # noqa: RUF012

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Buoy, request)
        self.seen.append((request.name, buoy.status.depth if buoy.status else None))
        return Result()


@virtual_time
async def test_a_new_leader_first_reads_what_the_former_one_wrote() -> None:
    Logbook.seen.clear()
    world = World()
    world.make("a")
    first = Replica(world, "first", Logbook)
    await until(lambda: bool(Logbook.seen), 5)
    second = Replica(world, "second", Logbook)
    await asyncio.sleep(20)
    second.ship.lag = 5
    Logbook.seen.clear()
    await first.manager.client.apply_status(world.buoy("a"), BuoyStatus(depth=99))
    await first.end()
    assert Logbook.seen == [("a", 99)]
    Logbook.seen.clear()
    await until(lambda: holder(world) == "second", 2)
    world.server.fail_next(matching("GET", "/buoys"), 503, times=2)
    await until(lambda: bool(Logbook.seen), 30)
    assert Logbook.seen == [("a", 99)]
    await second.end()


@virtual_time
async def test_who_cannot_catch_up_gives_the_lease_to_another() -> None:
    world = World()
    world.make("a")
    first = Replica(world, "first")
    await until(lambda: bool(first.ship.writes), 5)
    second = Replica(world, "second", cache_sync_timeout=20)
    await asyncio.sleep(20)
    await first.end()
    await until(lambda: holder(world) == "second", 2)
    world.server.fail_next(matching("GET", "/buoys"), 403, times=1000)
    with pytest.raises(Forbidden):
        async with asyncio.timeout(60):
            await second.task
    assert holder(world) == ""


@virtual_time
async def test_a_controller_that_needs_no_leader_works_and_writes_on_standbys() -> None:
    world = World()
    world.make("a")
    first = Replica(world, "first")
    await until(lambda: bool(first.ship.writes), 5)
    ship = Ship(world.server)
    election = LeaderElection(name=LEASE.name, namespace=LEASE.namespace, identity="second")
    manager = Manager(ship, ManagerOptions(leader_election=election), virtual_runtime())
    manager.controller(Buoy).named("everywhere").needs_leader_election(False).complete(Painter)
    manager.controller(Buoy).named("leader").complete(Logbook)
    Logbook.seen.clear()
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(5)
    assert ship.writes
    assert Logbook.seen == []
    manager.stop()
    await running
    await first.end()
