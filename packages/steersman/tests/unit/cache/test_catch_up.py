"""A standby that becomes the leader first comes to what its predecessor did last."""

from __future__ import annotations

import asyncio

import pytest

from framework_support.buoy import Buoy, BuoyApply, BuoySpecApply, wire
from framework_support.door import Door
from framework_support.scripted_transport import ScriptedTransport, bookmark, event, listed
from framework_support.world import NAMESPACE, World, key, settle
from steersman.cache import Cache
from steersman.client import Client
from steersman.errors import CacheNotSynced
from steersman.meta import ObjectMetaApply
from steersman_testing import virtual_runtime, virtual_time


def standby(world: World, door: Door) -> Cache:
    cache = Cache(Client(door), runtime=world.runtime)
    cache.informer(Buoy)
    cache.start()
    return cache


async def change(world: World, name: str, depth: int) -> None:
    metadata = ObjectMetaApply(name=name, namespace=NAMESPACE)
    await world.client.apply(BuoyApply(metadata=metadata, spec=BuoySpecApply(depth=depth)))


def held(cache: Cache) -> dict[str, int]:
    return {o.metadata.name: o.spec.depth for o in cache.informer(Buoy).store}


@virtual_time
async def test_what_the_watch_does_not_bring_in_time_is_read() -> None:
    world = World()
    world.make("changed", "deleted", "same")
    door = Door(world.server)
    cache = standby(world, door)
    await cache.wait_for_sync()
    door.shut()
    await change(world, "changed", 2)
    await change(world, "made", 3)
    await world.client.delete(Buoy, key("deleted"))
    before = len(world.server.requests)
    await cache.catch_up()
    assert held(cache) == {"changed": 2, "made": 3, "same": 1}
    lists = world.server.requests[before:]
    assert "PartialObjectMetadataList" in lists[0].accept
    assert sorted(r.query["fieldSelector"] for r in lists[1:]) == [
        f"metadata.name={n}" for n in ("changed", "deleted", "made")
    ]
    door.open()
    await settle()
    assert held(cache) == {"changed": 2, "made": 3, "same": 1}
    await cache.stop()


@virtual_time
async def test_what_the_watch_brings_in_time_is_not_read() -> None:
    world = World()
    world.make("a", "b")
    door = Door(world.server)
    cache = standby(world, door)
    await cache.wait_for_sync()
    door.shut()
    await change(world, "a", 2)
    await world.client.delete(Buoy, key("b"))
    before = len(world.server.requests)
    caught_up = asyncio.create_task(cache.catch_up())
    await asyncio.sleep(0.1)
    assert not caught_up.done()
    door.open()
    await caught_up
    assert held(cache) == {"a": 2}
    assert len(world.server.requests) == before + 1
    await cache.stop()


@virtual_time
async def test_where_nothing_is_late_nothing_is_waited_for() -> None:
    world = World()
    world.make(*(f"buoy-{n}" for n in range(50)))
    cache = standby(world, Door(world.server))
    await cache.wait_for_sync()
    before = asyncio.get_running_loop().time()
    await cache.catch_up()
    assert asyncio.get_running_loop().time() == before
    await cache.stop()


@virtual_time
async def test_an_unreadable_object_does_not_stand_in_the_way() -> None:
    bad, good = wire("bad", 4, depth="deep"), wire("good", 3)
    pages = [listed(good, bad, version="5"), listed(good, bad, version="6"), listed(bad, version="6")]
    cache = Cache(Client(ScriptedTransport(pages)), runtime=virtual_runtime())
    cache.informer(Buoy)
    cache.start()
    await cache.catch_up()
    assert held(cache) == {"good": 1}
    await cache.stop()


@virtual_time
async def test_a_leader_that_cannot_catch_up_learns_which_kind() -> None:
    cache = Cache(Client(ScriptedTransport([listed(version="5")])), runtime=virtual_runtime())
    cache.informer(Buoy)
    cache.start()
    with pytest.raises(CacheNotSynced, match=r"not caught up after 3 s: buoys\.sea\.example\.com"):
        await cache.catch_up(3)
    await cache.stop()


@virtual_time
async def test_versions_that_cannot_be_compared_are_told_apart() -> None:
    pages = [listed(wire("a", "x1"), version="l1"), listed(wire("a", "x2"), version="l2")]
    transport = ScriptedTransport(pages, [[0.2, event("MODIFIED", wire("a", "x2", depth=2)), bookmark("l3"), 90.0]])
    cache = Cache(Client(transport), runtime=virtual_runtime())
    cache.informer(Buoy)
    cache.start()
    await cache.catch_up()
    assert held(cache) == {"a": 2}
    await cache.stop()
