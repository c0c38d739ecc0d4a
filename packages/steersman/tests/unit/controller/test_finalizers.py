"""Finalizers change with a precondition, and only when they must."""

from __future__ import annotations

import pytest

from framework_support.buoy import Buoy, BuoySpec
from framework_support.world import World, key
from steersman.client import MergePatch
from steersman.controller import add_finalizer, remove_finalizer
from steersman.errors import Conflict
from steersman_testing import virtual_time

OURS = "sea.example.com/chain"


@pytest.fixture
def world() -> World:
    world = World()
    world.make("a")
    return world


async def touch(world: World, value: str) -> None:
    await world.client.patch(Buoy, key("a"), MergePatch({"metadata": {"labels": {"touched": value}}}))


@virtual_time
async def test_added_once_beside_others(world: World) -> None:
    await world.client.patch(Buoy, key("a"), MergePatch({"metadata": {"finalizers": ["x.example.com/other"]}}))
    updated = await add_finalizer(world.cached, world.buoy("a"), OURS)
    assert updated.metadata.finalizers == ("x.example.com/other", OURS)
    world.server.requests.clear()
    assert await add_finalizer(world.cached, updated, OURS) is updated
    assert world.server.requests == []


@virtual_time
async def test_removed_and_others_stay(world: World) -> None:
    await world.client.patch(Buoy, key("a"), MergePatch({"metadata": {"finalizers": ["x.example.com/other", OURS]}}))
    await remove_finalizer(world.cached, world.buoy("a"), OURS)
    assert world.buoy("a").metadata.finalizers == ("x.example.com/other",)
    world.server.requests.clear()
    await remove_finalizer(world.cached, world.buoy("a"), OURS)
    assert world.server.requests == []


@virtual_time
async def test_the_last_one_lets_the_object_go(world: World) -> None:
    await add_finalizer(world.cached, world.buoy("a"), OURS)
    await world.client.delete(Buoy, key("a"))
    dying = world.buoy("a")
    assert dying.metadata.deletion_timestamp is not None
    await remove_finalizer(world.cached, dying, OURS)
    assert world.server.read(Buoy, key("a")) is None
    await remove_finalizer(world.cached, dying, OURS)


@virtual_time
async def test_an_object_that_changed_meanwhile_is_a_conflict(world: World) -> None:
    old = world.buoy("a")
    await touch(world, "once")
    with pytest.raises(Conflict):
        await add_finalizer(world.cached, old, OURS)
    assert world.buoy("a").metadata.finalizers == ()
    held = await add_finalizer(world.cached, world.buoy("a"), OURS)
    await touch(world, "twice")
    with pytest.raises(Conflict):
        await remove_finalizer(world.cached, held, OURS)


@virtual_time
async def test_a_namesake_is_not_touched(world: World) -> None:
    old = await add_finalizer(world.cached, world.buoy("a"), OURS)
    await remove_finalizer(world.cached, old, OURS)
    await world.client.delete(Buoy, key("a"))
    world.make("a")
    await add_finalizer(world.cached, world.buoy("a"), OURS)
    with pytest.raises(Conflict):
        await remove_finalizer(world.cached, old, OURS)
    assert world.buoy("a").metadata.finalizers == (OURS,)
    assert world.buoy("a").spec == BuoySpec()
