"""Start, run and graceful shutdown of a manager."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from framework_support.controller_env import NAMESPACE, ControllerEnv, drain_event_loop, eventually, key, running
from framework_support.widget import Widget, WidgetStatus
from steersman.api.apply import core, meta
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap
from steersman.api.events_v1 import Event
from steersman.cache import InformerOptions
from steersman.controller import Reconciler, ReconcilerContext, Request, RequestReconciler, Result
from steersman.errors import CacheNotSynced, ConfigurationError, ConnectionFailed
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.observability.runtime import Runtime
from steersman_testing import matching, virtual_time


class OwnedConfigMapReconciler(RequestReconciler[Widget]):
    """Keeps one ConfigMap per widget."""

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        config = core.ConfigMap(
            metadata=meta.ObjectMeta(name=f"config-{request.name}", namespace=request.namespace),
            data={"length": str(widget.spec.depth)},
        )
        present = await self.client.get_or_none(ConfigMap, config.key)
        await self.client.apply(config, owner=widget)
        if present is None:
            self.events.normal(widget, "Applied", f"applied ConfigMap with length {widget.spec.depth}")
        if widget.status.depth != widget.spec.depth:
            await self.client.apply_status(widget, WidgetStatus(depth=widget.spec.depth))
        return Result()


@asynccontextmanager
async def running_manager(
    world: ControllerEnv, reconciler: type[RequestReconciler[Widget]] = OwnedConfigMapReconciler, **options: Any
) -> AsyncGenerator[Manager, None]:
    manager = Manager(world.server, ManagerOptions(name="orders-operator", **options), world.runtime)
    manager.controller(Widget).owns(ConfigMap).max_concurrent_reconciles(4).complete(reconciler)
    async with running(manager):
        yield manager


def get_config_map(world: ControllerEnv, name: str) -> str | None:
    found = world.server.read(ConfigMap, key(f"config-{name}"))
    return found.data["length"] if found else None


@pytest.mark.requirement("design/reconcile-loop", "overview/extended-api")
@virtual_time
async def test_manager_reconciles_children_and_status() -> None:
    world = ControllerEnv()
    world.create_widgets("a", depth=3)
    async with running_manager(world):
        await asyncio.sleep(5)
        assert get_config_map(world, "a") == "3"
        assert world.read_widget("a").status == WidgetStatus(depth=3)
        world.create_widgets("b", depth=4)
        await asyncio.sleep(5)
        assert get_config_map(world, "b") == "4"
        await world.client.delete(ConfigMap, key("config-a"))
        await asyncio.sleep(5)
        assert get_config_map(world, "a") == "3"
        await world.client.delete(Widget, key("b"))
        await asyncio.sleep(5)
        assert get_config_map(world, "b") is None
    (first, *_) = world.server.read_all(Event, NAMESPACE)
    assert first.reporting_controller == "orders-operator/widget"


@pytest.mark.requirement("design/idempotence", "overview/idempotence")
@virtual_time
async def test_reconcile_without_change_sends_no_writes() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with running_manager(world):
        await asyncio.sleep(5)
    written = len(world.server.writes)
    async with running_manager(world):
        await asyncio.sleep(3600)
    applied = [r for r in world.server.writes[written:] if "config-a" not in r.path]
    assert applied == []


@virtual_time
async def test_manager_converges_despite_faults() -> None:
    world = ControllerEnv()
    names = [f"b{n}" for n in range(20)]
    world.create_widgets(*names, depth=1)
    world.server.fail_next(matching("GET", "/widgets"), ConnectionFailed("scripted"), times=2)
    async with running_manager(world):
        await asyncio.sleep(1)
        for round_ in range(5):
            world.server.fail_next(matching("PATCH", "/configmaps"), 500, times=7)
            world.server.fail_next(matching("PATCH", "/status"), ConnectionFailed("lost"), when="after", times=3)
            world.create_widgets(f"late-{round_}", depth=9)
            world.server.break_watches()
            world.server.compact()
            await asyncio.sleep(60)
    assert {get_config_map(world, name) for name in names} == {"1"}
    assert {get_config_map(world, f"late-{n}") for n in range(5)} == {"9"}
    assert all(b.status == WidgetStatus(depth=b.spec.depth) for b in world.server.read_all(Widget))


class SlowReconciler(RequestReconciler[Widget]):
    """Runs until it is cancelled, and records that."""

    seen: list[str] = []  # noqa: RUF012

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        self.seen.append(f"{request.name} begins with {len(await self.client.list(Widget))} known")
        await asyncio.sleep(20)
        self.events.normal(widget, "Done", f"{request.name} is done")
        self.seen.append(f"{request.name} ends")
        return Result()


@pytest.mark.requirement("design/cache-sync")
@virtual_time
async def test_manager_reconciles_after_all_first_lists() -> None:
    SlowReconciler.seen.clear()
    world = ControllerEnv()
    world.create_widgets("a", "b")
    world.server.fail_next(matching("GET", "/configmaps"), 503, times=3)
    async with running_manager(world, SlowReconciler) as manager:
        await asyncio.sleep(0.3)
        assert SlowReconciler.seen == []
        assert not manager.cache.has_synced
        await asyncio.sleep(10)
        assert SlowReconciler.seen == ["a begins with 2 known", "b begins with 2 known"]


@virtual_time
async def test_shutdown_finishes_reconciles_and_flushes_events() -> None:
    SlowReconciler.seen.clear()
    world = ControllerEnv()
    world.create_widgets("a")
    async with running_manager(world, SlowReconciler) as manager:
        await asyncio.sleep(5)
        manager.stop()
        await asyncio.sleep(1)
        world.create_widgets("too-late")
    assert SlowReconciler.seen == ["a begins with 1 known", "a ends"]
    assert [e.note for e in world.server.read_all(Event, NAMESPACE)] == ["a is done"]
    assert asyncio.get_running_loop().time() == pytest.approx(20, abs=0.5)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_shutdown_timeout_cancels_reconciles() -> None:
    SlowReconciler.seen.clear()
    world = ControllerEnv()
    world.create_widgets("a")
    async with running_manager(world, SlowReconciler, graceful_shutdown_timeout=3.0) as manager:
        await asyncio.sleep(5)
        manager.stop()
    assert SlowReconciler.seen == ["a begins with 1 known"]
    assert asyncio.get_running_loop().time() == pytest.approx(8, abs=0.5)


@virtual_time
async def test_stop_before_cache_sync_returns() -> None:
    world = ControllerEnv()
    world.server.fail_next(matching("GET", "/configmaps"), 403, times=1000)
    async with running_manager(world) as manager:
        await asyncio.sleep(5)
        manager.stop()
    assert asyncio.get_running_loop().time() < 10


@virtual_time
async def test_manager_raises_when_kind_cannot_be_listed() -> None:
    world = ControllerEnv()
    world.server.fail_next(matching("GET", "/configmaps"), 403, times=1000)
    manager = Manager(world.server, ManagerOptions(cache_sync_timeout=20), world.runtime)
    manager.controller(Widget).owns(ConfigMap).complete(OwnedConfigMapReconciler)
    with pytest.raises(CacheNotSynced, match="configmaps"):
        await manager.run()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_manager_limits_cache_to_namespace_and_selector() -> None:
    world = ControllerEnv()
    manager = Manager(world.server, ManagerOptions(namespaces=(NAMESPACE,)), world.runtime)
    manager.cache.configure(ConfigMap, InformerOptions(label_selector="x=y"))
    manager.controller(Widget).owns(ConfigMap).complete(OwnedConfigMapReconciler)
    task = asyncio.create_task(manager.run())
    await drain_event_loop()
    asked = {r.path: r.query.get("labelSelector") for r in world.server.requests}
    assert asked == {
        "/apis/shop.example.com/v1/namespaces/orders/widgets": None,
        "/api/v1/namespaces/orders/configmaps": "x=y",
    }
    manager.stop()
    await task


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


def listening_ports(logs: Sequence[MutableMapping[str, Any]]) -> list[int]:
    return [entry["port"] for entry in logs if entry["event"] == "listening"]


@pytest.mark.requirement("overview/observability", "user/bind-addresses")
async def test_manager_serves_probes_and_metrics() -> None:
    world = ControllerEnv(Runtime())
    world.create_widgets("a")
    lists = matching("GET", "/configmaps")
    withheld = True
    world.server.fail_next(lambda request: withheld and lists(request), 403, times=1000)
    with capture_logs() as logs:
        async with running_manager(
            world, health_probe_bind_address="127.0.0.1:0", metrics_bind_address="127.0.0.1:0"
        ):
            await eventually(lambda: len(listening_ports(logs)) == 2)
            health, metrics = listening_ports(logs)
            assert await get(health, "/healthz") == (200, "[+]ping ok\nok\n")
            not_ready = "[-]cache failed: caches have not synced\n[+]running ok\nfailed\n"
            assert await get(health, "/readyz") == (500, not_ready)
            withheld = False
            await eventually(lambda: get_config_map(world, "a") is not None)
            assert await get(health, "/readyz") == (200, "[+]cache ok\n[+]running ok\nok\n")
            status, text = await get(metrics, "/metrics")
            assert status == 200
            assert 'controller_runtime_reconcile_total{controller="widget"' in text
            assert 'workqueue_depth{controller="widget"' in text
            assert (await get(metrics, "/healthz"))[0] == 404
            assert (await get(health, "/metrics"))[0] == 404
    with pytest.raises(aiohttp.ClientConnectionError):
        await get(health, "/healthz")


async def test_shutdown_fails_readiness_and_logs_phases() -> None:
    world = ControllerEnv(Runtime())
    world.create_widgets("a")
    finish = asyncio.Event()
    started = asyncio.Event()

    class WaitingReconciler(RequestReconciler[Widget]):
        async def reconcile(self, request: Request) -> Result:
            started.set()
            await finish.wait()
            return Result()

    with capture_logs() as logs:
        async with running_manager(world, WaitingReconciler, health_probe_bind_address="127.0.0.1:0") as manager:
            await started.wait()
            (health,) = listening_ports(logs)
            assert (await get(health, "/readyz"))[0] == 200
            manager.stop()
            assert await get(health, "/readyz") == (500, "[+]cache ok\n[-]running failed: shutting down\nfailed\n")
            assert (await get(health, "/healthz"))[0] == 200
            finish.set()
    phases = ["stopping controllers and runnables", "flushing Events", "stopping caches and endpoints"]
    assert [entry["event"] for entry in logs if entry["event"] in phases] == phases


async def test_unended_thread_after_error_fails_liveness() -> None:
    world = ControllerEnv(Runtime())
    finish = asyncio.Event()

    class EndsLate(Reconciler[Widget]):
        async def reconcile(self, obj: Widget) -> Result | None:
            return None

        async def wait_closed(self) -> None:
            await finish.wait()

    async def fail() -> None:
        raise RuntimeError("runnable failed")

    options = ManagerOptions(
        leader_election=LeaderElection(name="tester", namespace=NAMESPACE), health_probe_bind_address="127.0.0.1:0"
    )
    manager = Manager(world.server, options, world.runtime)
    manager.controller(Widget).complete(EndsLate)
    manager.add(fail)
    with capture_logs() as logs:
        task = asyncio.create_task(manager.run())
        await eventually(
            lambda: "waiting for reconciles and runnables that have not stopped" in [entry["event"] for entry in logs]
        )
        status, text = await get(listening_ports(logs)[0], "/healthz")
        assert (status, "[-]threads failed: a reconciler or runnable did not stop" in text) == (500, True)
        lease = world.server.read(Lease, key("tester"))
        assert lease is not None and lease.spec.holder_identity
        finish.set()
        with pytest.raises(RuntimeError, match="runnable failed"):
            await task


@virtual_time
@pytest.mark.parametrize("is_runnable", [False, True])
async def test_lease_is_kept_while_work_ignores_cancellation(is_runnable: bool) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    finish = asyncio.Event()
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        while not finish.is_set():
            with suppress(asyncio.CancelledError):
                await finish.wait()

    async def reconcile(context: ReconcilerContext, obj: Widget) -> Result | None:
        await (asyncio.sleep(0) if is_runnable else work())
        return None

    options = ManagerOptions(leader_election=LeaderElection(name="tester", namespace=NAMESPACE))
    manager = Manager(world.server, options, world.runtime)
    manager.controller(Widget).complete(reconcile)
    if is_runnable:
        manager.add(work)
    task = asyncio.create_task(manager.run())
    await started.wait()
    manager.stop()
    # Longer than the grace period and the duration of the Lease.
    await asyncio.sleep(60)
    lease = world.server.read(Lease, key("tester"))
    assert lease is not None
    assert lease.spec.holder_identity
    assert lease.spec.renew_time is not None
    assert world.runtime.clock.now() - lease.spec.renew_time < timedelta(seconds=10)
    finish.set()
    await task
    lease = world.server.read(Lease, key("tester"))
    assert lease is not None
    assert not lease.spec.holder_identity


async def test_manager_raises_when_port_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option in ("health_probe_bind_address", "metrics_bind_address", "debug_bind_address"):
            settings: dict[str, Any] = {option: f"127.0.0.1:{port}"}
            options = ManagerOptions(**settings)
            advice = f"cannot listen on port {port}.*set --{option.replace('_', '-')}"
            with pytest.raises(ConfigurationError, match=advice):
                await Manager(ControllerEnv(Runtime()).server, options).run()
