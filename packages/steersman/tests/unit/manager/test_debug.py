"""What the debug endpoint tells of a running operator, and to whom."""

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

from framework_support.buoy import Buoy
from framework_support.certificates import Authority
from framework_support.world import World, eventually, key, running
from steersman.api.core_v1 import ConfigMap
from steersman.cache import InformerOptions
from steersman.client import MergePatch
from steersman.controller import LOW, Reconciler, Request, Result
from steersman.errors import ConfigurationError, ConnectionFailed
from steersman.manager import Manager, ManagerOptions
from steersman.manager.debug import DebugPages
from steersman.manager.http_server import Request as Asked
from steersman.observability.runtime import Runtime
from steersman_testing import matching, virtual_time


class Pilot(Reconciler[Buoy]):
    """Fails for ``reef``, takes a minute for ``slow``, comes again for the others."""

    async def reconcile(self, request: Request) -> Result:
        password = "hunter222"
        if request.name == "reef":
            raise RuntimeError("aground")
        if request.name == "slow":
            await self.linger()
        return Result(requeue_after=3600 if password else None)

    async def linger(self) -> None:
        await asyncio.sleep(60)


@asynccontextmanager
async def managing(world: World, selected: str = "", **options: Any) -> AsyncGenerator[Manager, None]:
    manager = Manager(world.server, ManagerOptions(**options), world.runtime)
    manager.cache.configure(ConfigMap, InformerOptions(label_selector=selected))
    manager.controller(Buoy).owns(ConfigMap).complete(Pilot)
    async with running(manager):
        yield manager


async def ask(manager: Manager, path: str) -> Any:
    path, _, query = path.partition("?")
    pages = DebugPages(manager._controllers, manager.cache)  # pyright: ignore[reportPrivateUsage]
    response = await pages.answer(Asked(path, query))
    assert (response.status, response.content_type) == (200, "application/json")
    return msgspec.json.decode(response.body)


@virtual_time
async def test_what_waits_what_runs_and_what_comes_later() -> None:
    world = World()
    world.make("a", "b")
    async with managing(world) as manager:
        await asyncio.sleep(1)
        world.make("slow")
        await asyncio.sleep(1)
        await world.client.patch(Buoy, key("a"), MergePatch({"spec": {"depth": 77}}))
        world.make("c")
        await asyncio.sleep(10)
        (controller,) = await ask(manager, "/debug/controllers")
        (only_c,) = await ask(manager, "/debug/controllers?object=sea/c")
        (first,) = await ask(manager, "/debug/controllers?limit=1")
    assert (controller["name"], controller["kind"], controller["apiVersion"]) == (
        "buoy",
        "Buoy",
        "sea.example.com/v1",
    )
    assert (controller["started"], controller["workers"]) == (True, 1)
    (running,) = controller["running"]
    assert (running["name"], running["age_seconds"], running["result"]) == ("slow", pytest.approx(11), None)
    assert running["triggers"] == [{"reason": "created", "origin": "for", "kind": "Buoy", "object": "sea/slow"}]
    queue = controller["queue"]
    assert queue["depth"]["0"] == 2
    # Field paths, no values. What was to come in an hour comes at once, for both reasons.
    a, c = queue["waiting"]
    updated = {"reason": "updated", "origin": "for", "kind": "Buoy", "object": "sea/a", "fields": ["spec.depth"]}
    assert (a["name"], a["triggers"]) == ("a", [{"reason": "requeue", "origin": "requeue"}, updated])
    assert (c["namespace"], c["name"], c["priority"], c["omitted_triggers"]) == ("sea", "c", 0, 0)
    assert c["waited_seconds"] == pytest.approx(10)
    (b,) = queue["delayed"]
    assert (b["name"], b["priority"], b["failures_in_a_row"], queue["delayed_keys"]) == ("b", LOW, 0, 1)
    assert b["due_in_seconds"] == pytest.approx(3600 - 12)
    assert [item["name"] for item in only_c["queue"]["waiting"]] == ["c"]
    assert only_c["queue"]["delayed"] == []
    assert [item["name"] for item in first["queue"]["waiting"]] == ["a"]


@virtual_time
async def test_why_an_object_was_reconciled() -> None:
    world = World()
    world.make("a", "reef")
    async with managing(world) as manager:
        await asyncio.sleep(0.008)
        newest, *_ = await ask(manager, "/debug/controllers/buoy/recent?object=sea/reef")
        every = await ask(manager, "/debug/controllers/buoy/recent")
        (controller,) = await ask(manager, "/debug/controllers?object=sea/reef")
    assert (newest["result"], newest["errors"], newest["attempt"]) == ("error", ["RuntimeError"], 2)
    assert newest["triggers"] == [{"reason": "retry", "origin": "RuntimeError"}]
    assert newest["duration_seconds"] is not None
    assert [(run["name"], run["result"], run["requeue_after_seconds"]) for run in every] == [
        ("reef", "error", None),
        ("reef", "error", None),
        ("a", "requeue_after", 3600),
    ]
    assert len(newest["reconcile_id"]) == 16
    (delayed,) = controller["queue"]["delayed"]
    assert delayed["failures_in_a_row"] == 2


@virtual_time
async def test_caches_tell_what_they_hold_and_what_is_wrong() -> None:
    world = World()
    world.make("a", "b")
    async with managing(world, selected="app=sea") as manager:
        await asyncio.sleep(1)
        world.server.fail_next(matching("GET", "/configmaps"), ConnectionFailed("the line is cut"), times=1000)
        world.server.break_watches()
        await asyncio.sleep(60)
        world.make("c")
        await asyncio.sleep(1)
        buoys, config_maps = await ask(manager, "/debug/caches")
    assert (buoys["kind"], buoys["objects"], buoys["synced"]) == ("Buoy", 3, True)
    assert buoys["bytes"] > 100
    (watch,) = buoys["watches"]
    assert (watch["state"], watch["last_error"], watch["uncertain_writes"]) == ("watching", None, 0)
    assert int(watch["resource_version"]) > 0
    (broken,) = config_maps["watches"]
    assert (broken["label_selector"], broken["state"]) == ("app=sea", "backing off")
    assert broken["last_error"] == "ConnectionFailed: the line is cut"
    assert config_maps["staleness_seconds"] > 50


@virtual_time
async def test_tasks_tell_where_they_stand_and_no_values() -> None:
    world = World()
    world.make("slow")
    async with managing(world) as manager:
        await asyncio.sleep(1)
        tasks = await ask(manager, "/debug/tasks")
    (worker,) = [task for task in tasks if task["name"] == "buoy worker"]
    names = [place.partition(" (")[0] for place in worker["stack"]]
    assert names[:2] == ["Controller._work", "Controller._reconcile"]
    assert names[2:5] == ["Pilot.reconcile", "Pilot.linger", "sleep"]
    assert "test_debug.py:" in worker["stack"][2]
    assert "hunter222" not in str(tasks)


@virtual_time
async def test_what_there_is_and_what_there_is_not() -> None:
    world = World()
    async with managing(world) as manager:
        assert "/debug/controllers/buoy/recent" in await ask(manager, "/debug")
        pages = DebugPages(manager._controllers, manager.cache)  # pyright: ignore[reportPrivateUsage]
        for path in ("/debug/controllers/ship/recent", "/debug/passwords", "/", "/debug/controllers/buoy"):
            assert (await pages.answer(Asked(path))).status == 404


async def test_it_is_served_on_loopback() -> None:
    world = World(Runtime())
    world.make("a")
    with capture_logs() as logs:
        async with managing(world, debug_bind_address="127.0.0.1:0") as manager:
            await eventually(lambda: bool(manager._controllers[0].recent()))  # pyright: ignore[reportPrivateUsage]
            (port,) = [entry["port"] for entry in logs if entry["event"] == "listening"]
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                async with session.get("/debug/controllers/buoy/recent?limit=1") as response:
                    (run,) = await response.json()
                async with session.get("/metrics") as response:
                    assert response.status == 404
    assert run["name"] == "a"


@pytest.mark.parametrize("bind", [":8082", "0.0.0.0:8082", "[::]:8082", "10.1.2.3:8082", "debug.example.com:8082"])
async def test_it_is_not_served_to_everybody(bind: str) -> None:
    manager = Manager(World(Runtime()).server, ManagerOptions(debug_bind_address=bind))
    with pytest.raises(ConfigurationError, match="kubectl port-forward"):
        await manager.run()


async def test_elsewhere_it_is_served_as_secure_metrics_are(tmp_path: Path) -> None:
    certificate, private_key = Authority().issue("debug", names=["localhost"])
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(private_key)
    secure: dict[str, Any] = {"metrics_secure": True, "metrics_cert_path": str(tmp_path)}
    with capture_logs() as logs:
        async with managing(World(Runtime()), debug_bind_address="0.0.0.0:0", **secure):
            await eventually(lambda: any(entry["event"] == "listening" for entry in logs))
            (port,) = [entry["port"] for entry in logs if entry["event"] == "listening"]
            url = f"https://127.0.0.1:{port}/debug/caches"
            async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
                assert response.status == 401
