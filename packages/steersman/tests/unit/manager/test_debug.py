"""Pages of the debug endpoint, and their protection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from framework_support.certificates import CertificateAuthority
from framework_support.controller_env import ControllerEnv, eventually, key, running
from framework_support.widget import Widget
from steersman.api.core_v1 import ConfigMap
from steersman.cache import InformerOptions
from steersman.client import MergePatch
from steersman.controller import LOW_PRIORITY, Request, RequestReconciler, Result
from steersman.errors import ConfigurationError, ConnectionFailed
from steersman.manager import Manager, ManagerOptions
from steersman.manager.serving.debug import DebugHandler
from steersman.manager.serving.http_server import ServerRequest
from steersman.observability.runtime import Runtime
from steersman_testing import matching, virtual_time


class FailingReconciler(RequestReconciler[Widget]):
    """Fails for ``failing``, takes a minute for ``slow``, and requeues the others."""

    async def reconcile(self, request: Request) -> Result:
        password = "hunter222"
        if request.name == "failing":
            raise RuntimeError("scripted")
        if request.name == "slow":
            await self.wait()
        return Result(requeue_after=3600 if password else None)

    async def wait(self) -> None:
        await asyncio.sleep(60)


@asynccontextmanager
async def running_manager(world: ControllerEnv, selected: str = "", **options: Any) -> AsyncGenerator[Manager, None]:
    manager = Manager(world.server, ManagerOptions(**options), world.runtime)
    manager.cache.configure(ConfigMap, InformerOptions(label_selector=selected))
    manager.controller(Widget).owns(ConfigMap).complete(FailingReconciler)
    async with running(manager):
        yield manager


async def get_debug_page(manager: Manager, path: str) -> Any:
    path, _, query = path.partition("?")
    pages = DebugHandler(manager._controllers, manager.cache)  # pyright: ignore[reportPrivateUsage]
    response = await pages.handle(ServerRequest(path, query))
    assert (response.status, response.content_type) == (200, "application/json")
    return msgspec.json.decode(response.body)


@virtual_time
async def test_debug_queue_lists_waiting_running_and_delayed() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    async with running_manager(world) as manager:
        await asyncio.sleep(1)
        world.create_widgets("slow")
        await asyncio.sleep(1)
        await world.client.patch(Widget, key("a"), MergePatch({"spec": {"depth": 77}}))
        world.create_widgets("c")
        await asyncio.sleep(10)
        (controller,) = await get_debug_page(manager, "/debug/controllers")
        (only_c,) = await get_debug_page(manager, "/debug/controllers?object=orders/c")
        (first,) = await get_debug_page(manager, "/debug/controllers?limit=1")
    assert (controller["name"], controller["kind"], controller["apiVersion"]) == (
        "widget",
        "Widget",
        "shop.example.com/v1",
    )
    assert (controller["names"], controller["namespaced"]) == (["widgets"], True)
    assert (controller["started"], controller["workers"]) == (True, 1)
    (running,) = controller["running"]
    assert (running["name"], running["age_seconds"], running["result"]) == ("slow", pytest.approx(11), None)
    assert running["triggers"] == [{"reason": "created", "origin": "for", "kind": "Widget", "object": "orders/slow"}]
    queue = controller["queue"]
    assert queue["depth"]["0"] == 2
    # Field paths, no values. The delayed key runs at once, with both triggers.
    a, c = queue["waiting"]
    # The client of the test has the same field manager as the operator.
    change = {"reason": "updated", "origin": "for", "writer": "own", "fields": ["spec.depth"]}
    updated = {**change, "kind": "Widget", "object": "orders/a"}
    assert (a["name"], a["triggers"]) == ("a", [{"reason": "requeue", "origin": "requeue"}, updated])
    assert (c["namespace"], c["name"], c["priority"], c["omitted_triggers"]) == ("orders", "c", 0, 0)
    assert c["waited_seconds"] == pytest.approx(10)
    (b,) = queue["delayed"]
    assert (b["name"], b["priority"], b["consecutive_failures"], queue["delayed_keys"]) == ("b", LOW_PRIORITY, 0, 1)
    assert b["due_in_seconds"] == pytest.approx(3600 - 12)
    assert [item["name"] for item in only_c["queue"]["waiting"]] == ["c"]
    assert only_c["queue"]["delayed"] == []
    assert [item["name"] for item in first["queue"]["waiting"]] == ["a"]


@virtual_time
async def test_debug_controllers_show_load() -> None:
    world = ControllerEnv()
    world.create_widgets("slow")
    async with running_manager(world) as manager:
        await asyncio.sleep(1)
        world.create_widgets("a", "b")
        await asyncio.sleep(10)
        (waiting,) = await get_debug_page(manager, "/debug/controllers?object=orders/a")
        await asyncio.sleep(60.001)
        (done,) = await get_debug_page(manager, "/debug/controllers")
        (two,) = await get_debug_page(manager, "/debug/controllers?limit=2")
        (bounded,) = await get_debug_page(manager, f"/debug/controllers?limit={'9' * 5000}")
    assert waiting["queue"]["oldest_seconds"] == pytest.approx(10)
    assert done["queue"]["oldest_seconds"] is None
    slowest, *others = done["slowest"]
    assert (slowest["name"], slowest["duration_seconds"]) == ("slow", pytest.approx(60))
    assert all(each["duration_seconds"] <= 60 for each in others)
    assert len(two["slowest"]) == 2
    assert len(bounded["slowest"]) <= 10


@virtual_time
async def test_debug_counts_results_and_seconds() -> None:
    world = ControllerEnv()
    world.create_widgets("failing", "b")
    async with running_manager(world) as manager:
        (before,) = await get_debug_page(manager, "/debug/controllers")
        await asyncio.sleep(0.008)
        (after,) = await get_debug_page(manager, "/debug/controllers")
    assert after["reconciles"]["error"] - before["reconciles"]["error"] == 2
    assert after["reconciles"]["requeue_after"] - before["reconciles"]["requeue_after"] == 1
    assert after["reconcile_seconds"] >= before["reconcile_seconds"]


@virtual_time
async def test_debug_recent_shows_triggers() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "failing")
    async with running_manager(world) as manager:
        await asyncio.sleep(0.008)
        newest, *_ = await get_debug_page(manager, "/debug/controllers/widget/recent?object=orders/failing")
        every = await get_debug_page(manager, "/debug/controllers/widget/recent")
        (controller,) = await get_debug_page(manager, "/debug/controllers?object=orders/failing")
    assert (newest["result"], newest["errors"], newest["attempt"]) == ("error", ["RuntimeError"], 2)
    assert newest["triggers"] == [{"reason": "retry", "origin": "RuntimeError"}]
    assert newest["duration_seconds"] is not None
    assert [(run["name"], run["result"], run["requeue_after_seconds"]) for run in every] == [
        ("failing", "error", None),
        ("failing", "error", None),
        ("a", "requeue_after", 3600),
    ]
    assert len(newest["reconcile_id"]) == 16
    (delayed,) = controller["queue"]["delayed"]
    assert delayed["consecutive_failures"] == 2


@virtual_time
async def test_debug_caches_report_objects_and_errors() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    async with running_manager(world, selected="app=orders") as manager:
        await asyncio.sleep(1)
        world.server.fail_next(matching("GET", "/configmaps"), ConnectionFailed("the line is cut"), times=1000)
        world.server.break_watches()
        await asyncio.sleep(60)
        world.create_widgets("c")
        await asyncio.sleep(1)
        widgets, config_maps = await get_debug_page(manager, "/debug/caches")
    assert (widgets["kind"], widgets["objects"], widgets["synced"]) == ("Widget", 3, True)
    assert widgets["bytes"] > 100
    (watch,) = widgets["watches"]
    assert (watch["state"], watch["last_error"], watch["uncertain_writes"]) == ("watching", None, 0)
    assert int(watch["resource_version"]) > 0
    (broken,) = config_maps["watches"]
    assert (broken["label_selector"], broken["state"]) == ("app=orders", "backing off")
    assert broken["last_error"] == "ConnectionFailed: the line is cut"
    assert config_maps["staleness_seconds"] > 50


@virtual_time
async def test_debug_tasks_have_stacks_without_values() -> None:
    world = ControllerEnv()
    world.create_widgets("slow")
    async with running_manager(world) as manager:
        await asyncio.sleep(1)
        tasks = await get_debug_page(manager, "/debug/tasks")
    (worker,) = [task for task in tasks if task["name"] == "widget worker"]
    names = [place.partition(" (")[0] for place in worker["stack"]]
    assert names[:2] == ["Controller._work", "Controller._reconcile"]
    assert names[2:5] == ["FailingReconciler.reconcile", "FailingReconciler.wait", "sleep"]
    assert "test_debug.py:" in worker["stack"][2]
    assert "hunter222" not in str(tasks)


@virtual_time
async def test_debug_unknown_path_returns_404() -> None:
    world = ControllerEnv()
    async with running_manager(world) as manager:
        assert "/debug/controllers/widget/recent" in await get_debug_page(manager, "/debug")
        pages = DebugHandler(manager._controllers, manager.cache)  # pyright: ignore[reportPrivateUsage]
        for path in ("/debug/controllers/ship/recent", "/debug/passwords", "/", "/debug/controllers/widget"):
            assert (await pages.handle(ServerRequest(path))).status == 404


async def test_debug_endpoint_on_loopback_is_open() -> None:
    world = ControllerEnv(Runtime())
    world.create_widgets("a")
    with capture_logs() as logs:
        async with running_manager(world, debug_bind_address="127.0.0.1:0") as manager:
            await eventually(lambda: bool(manager._controllers[0].recent()))  # pyright: ignore[reportPrivateUsage]
            (port,) = [entry["port"] for entry in logs if entry["event"] == "listening"]
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                async with session.get("/debug/controllers/widget/recent?limit=1") as response:
                    (run,) = await response.json()
                async with session.get("/metrics") as response:
                    assert response.status == 404
    assert run["name"] == "a"


@pytest.mark.parametrize("bind", [":8082", "0.0.0.0:8082", "[::]:8082", "10.1.2.3:8082", "debug.example.com:8082"])
async def test_debug_endpoint_on_public_address_raises(bind: str) -> None:
    manager = Manager(ControllerEnv(Runtime()).server, ManagerOptions(debug_bind_address=bind))
    with pytest.raises(ConfigurationError, match="kubectl port-forward"):
        await manager.run()


async def test_debug_endpoint_on_public_address_requires_token(tmp_path: Path) -> None:
    certificate, private_key = CertificateAuthority().issue("debug", names=["localhost"])
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(private_key)
    secure: dict[str, Any] = {"metrics_secure": True, "metrics_cert_path": str(tmp_path)}
    with capture_logs() as logs:
        async with running_manager(ControllerEnv(Runtime()), debug_bind_address="0.0.0.0:0", **secure):
            await eventually(lambda: any(entry["event"] == "listening" for entry in logs))
            (port,) = [entry["port"] for entry in logs if entry["event"] == "listening"]
            url = f"https://127.0.0.1:{port}/debug/caches"
            async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
                assert response.status == 401
