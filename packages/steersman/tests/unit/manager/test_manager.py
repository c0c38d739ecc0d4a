"""The manager starts things in order, runs them, and ends them in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from framework_support.buoy import Buoy, BuoyStatus
from framework_support.world import NAMESPACE, World, eventually, key, running, settle
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.api.events_v1 import Event
from steersman.cache import InformerOptions
from steersman.controller import Reconciler, Request, Result
from steersman.errors import CacheNotSynced, ConfigurationError, ConnectionFailed
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectMetaApply
from steersman.observability.runtime import Runtime
from steersman_testing import matching, virtual_time


class Chains(Reconciler[Buoy]):
    """Keeps one ConfigMap per buoy."""

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Buoy, request)
        config = ConfigMapApply(
            metadata=ObjectMetaApply(name=f"chain-{request.name}", namespace=request.namespace),
            data={"length": str(buoy.spec.depth)},
        )
        present = await self.client.find(ConfigMap, config.key)
        await self.client.apply(config, owner=buoy)
        if present is None:
            self.events.normal(buoy, "Chained", f"made chain of {buoy.spec.depth} m")
        if buoy.status is None or buoy.status.depth != buoy.spec.depth:
            await self.client.apply_status(buoy, BuoyStatus(depth=buoy.spec.depth))
        return Result()


@asynccontextmanager
async def managing(
    world: World, reconciler: type[Reconciler[Buoy]] = Chains, **options: Any
) -> AsyncGenerator[Manager, None]:
    manager = Manager(world.server, ManagerOptions(name="sea-operator", **options), world.runtime)
    manager.controller(Buoy).owns(ConfigMap).max_concurrent_reconciles(4).complete(reconciler)
    async with running(manager):
        yield manager


def chain(world: World, name: str) -> str | None:
    found = world.server.read(ConfigMap, key(f"chain-{name}"))
    return found.data["length"] if found else None


@virtual_time
async def test_an_operator_end_to_end() -> None:
    world = World()
    world.make("a", depth=3)
    async with managing(world):
        await asyncio.sleep(5)
        assert chain(world, "a") == "3"
        assert world.buoy("a").status == BuoyStatus(depth=3)
        world.make("b", depth=4)
        await asyncio.sleep(5)
        assert chain(world, "b") == "4"
        await world.client.delete(ConfigMap, key("chain-a"))
        await asyncio.sleep(5)
        assert chain(world, "a") == "3"
        await world.client.delete(Buoy, key("b"))
        await asyncio.sleep(5)
        assert chain(world, "b") is None
    (first, *_) = world.server.read_all(Event, NAMESPACE)
    assert first.reporting_controller == "sea-operator/buoy"


@virtual_time
async def test_nothing_to_do_writes_nothing() -> None:
    world = World()
    world.make("a")
    async with managing(world):
        await asyncio.sleep(5)
    written = len(world.server.writes)
    async with managing(world):
        await asyncio.sleep(3600)
    applied = [r for r in world.server.writes[written:] if "chain-a" not in r.path]
    assert applied == []


@virtual_time
async def test_faults_on_the_way_change_nothing_in_the_end() -> None:
    world = World()
    names = [f"b{n}" for n in range(20)]
    world.make(*names, depth=1)
    world.server.fail_next(matching("GET", "/buoys"), ConnectionFailed("scripted"), times=2)
    async with managing(world):
        await asyncio.sleep(1)
        for round_ in range(5):
            world.server.fail_next(matching("PATCH", "/configmaps"), 500, times=7)
            world.server.fail_next(matching("PATCH", "/status"), ConnectionFailed("lost"), when="after", times=3)
            world.make(f"late-{round_}", depth=9)
            world.server.break_watches()
            world.server.compact()
            await asyncio.sleep(60)
    assert {chain(world, name) for name in names} == {"1"}
    assert {chain(world, f"late-{n}") for n in range(5)} == {"9"}
    assert all(b.status == BuoyStatus(depth=b.spec.depth) for b in world.server.read_all(Buoy))


class Recorded(Reconciler[Buoy]):
    """Takes long, and tells on its way."""

    seen: list[str] = []  # noqa: RUF012

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Buoy, request)
        self.seen.append(f"{request.name} begins with {len(await self.client.list(Buoy))} known")
        await asyncio.sleep(20)
        self.events.normal(buoy, "Done", f"{request.name} is done")
        self.seen.append(f"{request.name} ends")
        return Result()


@virtual_time
async def test_no_reconcile_before_every_first_list() -> None:
    Recorded.seen.clear()
    world = World()
    world.make("a", "b")
    world.server.fail_next(matching("GET", "/configmaps"), 503, times=3)
    async with managing(world, Recorded) as manager:
        await asyncio.sleep(0.3)
        assert Recorded.seen == []
        assert not manager.cache.has_synced
        await asyncio.sleep(10)
        assert Recorded.seen == ["a begins with 2 known", "b begins with 2 known"]


@virtual_time
async def test_shutdown_lets_work_end_and_writes_its_events_before_connections_close() -> None:
    Recorded.seen.clear()
    world = World()
    world.make("a")
    async with managing(world, Recorded) as manager:
        await asyncio.sleep(5)
        manager.stop()
        await asyncio.sleep(1)
        world.make("too-late")
    assert Recorded.seen == ["a begins with 1 known", "a ends"]
    assert [e.note for e in world.server.read_all(Event, NAMESPACE)] == ["a is done"]
    assert asyncio.get_running_loop().time() == pytest.approx(20, abs=0.5)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_shutdown_does_not_wait_for_ever() -> None:
    Recorded.seen.clear()
    world = World()
    world.make("a")
    async with managing(world, Recorded, graceful_shutdown_timeout=3.0) as manager:
        await asyncio.sleep(5)
        manager.stop()
    assert Recorded.seen == ["a begins with 1 known"]
    assert asyncio.get_running_loop().time() == pytest.approx(8, abs=0.5)


@virtual_time
async def test_stopped_before_it_is_ready() -> None:
    world = World()
    world.server.fail_next(matching("GET", "/configmaps"), 403, times=1000)
    async with managing(world) as manager:
        await asyncio.sleep(5)
        manager.stop()
    assert asyncio.get_running_loop().time() < 10


@virtual_time
async def test_a_kind_that_cannot_be_listed_ends_it_with_the_reason() -> None:
    world = World()
    world.server.fail_next(matching("GET", "/configmaps"), 403, times=1000)
    manager = Manager(world.server, ManagerOptions(cache_sync_timeout=20), world.runtime)
    manager.controller(Buoy).owns(ConfigMap).complete(Chains)
    with pytest.raises(CacheNotSynced, match="configmaps"):
        await manager.run()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_one_namespace_and_selected_objects() -> None:
    world = World()
    manager = Manager(world.server, ManagerOptions(namespaces=(NAMESPACE,)), world.runtime)
    manager.cache.configure(ConfigMap, InformerOptions(label_selector="x=y"))
    manager.controller(Buoy).owns(ConfigMap).complete(Chains)
    task = asyncio.create_task(manager.run())
    await settle()
    asked = {r.path: r.query.get("labelSelector") for r in world.server.requests}
    assert asked == {
        "/apis/sea.example.com/v1/namespaces/sea/buoys": None,
        "/api/v1/namespaces/sea/configmaps": "x=y",
    }
    manager.stop()
    await task


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


def listening(logs: Sequence[MutableMapping[str, Any]]) -> list[int]:
    return [entry["port"] for entry in logs if entry["event"] == "listening"]


async def test_endpoints() -> None:
    world = World(Runtime())
    world.make("a")
    lists = matching("GET", "/configmaps")
    withheld = True
    world.server.fail_next(lambda request: withheld and lists(request), 403, times=1000)
    with capture_logs() as logs:
        async with managing(world, health_bind_address="127.0.0.1:0", metrics_bind_address="127.0.0.1:0"):
            await eventually(lambda: len(listening(logs)) == 2)
            health, metrics = listening(logs)
            assert await get(health, "/healthz") == (200, "[+]ping ok\nok\n")
            not_ready = "[-]cache failed: the first lists are not complete\n[+]running ok\nfailed\n"
            assert await get(health, "/readyz") == (500, not_ready)
            withheld = False
            await eventually(lambda: chain(world, "a") is not None)
            assert await get(health, "/readyz") == (200, "[+]cache ok\n[+]running ok\nok\n")
            status, text = await get(metrics, "/metrics")
            assert status == 200
            assert 'controller_runtime_reconcile_total{controller="buoy"' in text
            assert 'workqueue_depth{controller="buoy"' in text
            assert (await get(metrics, "/healthz"))[0] == 404
            assert (await get(health, "/metrics"))[0] == 404
    with pytest.raises(aiohttp.ClientConnectionError):
        await get(health, "/healthz")


async def test_readiness_ends_with_the_request_to_end_and_every_phase_is_logged() -> None:
    world = World(Runtime())
    world.make("a")
    finish = asyncio.Event()
    begun = asyncio.Event()

    class Patient(Reconciler[Buoy]):
        async def reconcile(self, request: Request) -> Result:
            begun.set()
            await finish.wait()
            return Result()

    with capture_logs() as logs:
        async with managing(world, Patient, health_bind_address="127.0.0.1:0") as manager:
            await begun.wait()
            (health,) = listening(logs)
            assert (await get(health, "/readyz"))[0] == 200
            manager.stop()
            assert await get(health, "/readyz") == (500, "[+]cache ok\n[-]running failed: shutting down\nfailed\n")
            assert (await get(health, "/healthz"))[0] == 200
            finish.set()
    assert [entry["event"] for entry in logs if "shutting down" in entry["event"]] == [
        "shutting down: work ends",
        "shutting down: events are written",
        "shutting down: watches and endpoints end",
    ]


async def test_an_address_in_use_ends_it_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        manager = Manager(World(Runtime()).server, ManagerOptions(health_bind_address=f"127.0.0.1:{port}"))
        with pytest.raises(ConfigurationError, match=f"cannot listen on port {port}"):
            await manager.run()
