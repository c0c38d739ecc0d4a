"""A new leader catches up with the writes of the previous one."""

from __future__ import annotations

import asyncio

import pytest

from framework_support.controller_env import NAMESPACE, ControllerEnv, drain_event_loop, key
from framework_support.transports import (
    HoldableTransport,
    ScriptedTransport,
    bookmark_line,
    list_response,
    watch_line,
)
from framework_support.widget import Widget, WidgetApply, WidgetSpecApply, widget_document
from steersman.api.apply import meta
from steersman.cache import Cache
from steersman.client import Client
from steersman.errors import CacheNotSynced
from steersman_testing import virtual_runtime, virtual_time


def start_standby(world: ControllerEnv, door: HoldableTransport) -> Cache:
    cache = Cache(Client(door), runtime=world.runtime)
    cache.informer(Widget)
    cache.start()
    return cache


async def apply_depth(world: ControllerEnv, name: str, depth: int) -> None:
    metadata = meta.ObjectMeta(name=name, namespace=NAMESPACE)
    await world.client.apply(WidgetApply(metadata=metadata, spec=WidgetSpecApply(depth=depth)))


def cached_depths(cache: Cache) -> dict[str, int]:
    return {o.metadata.name: o.spec.depth for o in cache.informer(Widget).store}


@virtual_time
async def test_catch_up_reads_objects_the_watch_delays() -> None:
    world = ControllerEnv()
    world.create_widgets("changed", "deleted", "same")
    door = HoldableTransport(world.server)
    cache = start_standby(world, door)
    await cache.wait_for_sync()
    door.hold_watches()
    await apply_depth(world, "changed", 2)
    await apply_depth(world, "made", 3)
    await world.client.delete(Widget, key("deleted"))
    before = len(world.server.requests)
    await cache.catch_up()
    assert cached_depths(cache) == {"changed": 2, "made": 3, "same": 1}
    lists = world.server.requests[before:]
    assert "PartialObjectMetadataList" in lists[0].accept
    assert sorted(r.query["fieldSelector"] for r in lists[1:]) == [
        f"metadata.name={n}" for n in ("changed", "deleted", "made")
    ]
    door.release_watches()
    await drain_event_loop()
    assert cached_depths(cache) == {"changed": 2, "made": 3, "same": 1}
    await cache.stop()


@virtual_time
async def test_catch_up_skips_objects_the_watch_delivers() -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    door = HoldableTransport(world.server)
    cache = start_standby(world, door)
    await cache.wait_for_sync()
    door.hold_watches()
    await apply_depth(world, "a", 2)
    await world.client.delete(Widget, key("b"))
    before = len(world.server.requests)
    caught_up = asyncio.create_task(cache.catch_up())
    await asyncio.sleep(0.1)
    assert not caught_up.done()
    door.release_watches()
    await caught_up
    assert cached_depths(cache) == {"a": 2}
    assert len(world.server.requests) == before + 1
    await cache.stop()


@virtual_time
async def test_catch_up_without_lag_returns_at_once() -> None:
    world = ControllerEnv()
    world.create_widgets(*(f"widget-{n}" for n in range(50)))
    cache = start_standby(world, HoldableTransport(world.server))
    await cache.wait_for_sync()
    before = asyncio.get_running_loop().time()
    await cache.catch_up()
    assert asyncio.get_running_loop().time() == before
    await cache.stop()


@virtual_time
async def test_catch_up_ignores_undecodable_object() -> None:
    bad, good = widget_document("bad", 4, depth="deep"), widget_document("good", 3)
    pages = [
        list_response(good, bad, version="5"),
        list_response(good, bad, version="6"),
        list_response(bad, version="6"),
    ]
    cache = Cache(Client(ScriptedTransport(pages)), runtime=virtual_runtime())
    cache.informer(Widget)
    cache.start()
    await cache.catch_up()
    assert cached_depths(cache) == {"good": 1}
    await cache.stop()


@virtual_time
async def test_catch_up_timeout_names_the_kind() -> None:
    cache = Cache(Client(ScriptedTransport([list_response(version="5")])), runtime=virtual_runtime())
    cache.informer(Widget)
    cache.start()
    with pytest.raises(CacheNotSynced, match=r"not caught up after 3 s: widgets\.shop\.example\.com"):
        await cache.catch_up(3)
    await cache.stop()


@virtual_time
async def test_catch_up_with_opaque_versions_relists() -> None:
    pages = [
        list_response(widget_document("a", "x1"), version="l1"),
        list_response(widget_document("a", "x2"), version="l2"),
    ]
    transport = ScriptedTransport(
        pages, [[0.2, watch_line("MODIFIED", widget_document("a", "x2", depth=2)), bookmark_line("l3"), 90.0]]
    )
    cache = Cache(Client(transport), runtime=virtual_runtime())
    cache.informer(Widget)
    cache.start()
    await cache.catch_up()
    assert cached_depths(cache) == {"a": 2}
    await cache.stop()
