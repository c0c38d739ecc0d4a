"""Who changes an object of the cache through a back door is found out."""

from __future__ import annotations

import sys

import pytest
from msgspec.structs import force_setattr

from framework_support.buoy import Buoy
from framework_support.world import World, key, settle
from steersman.api.core_v1 import ConfigMap
from steersman.meta import FrozenDict, ObjectMeta
from steersman_testing import CacheMutated, detect_mutations, virtual_time
from steersman_testing.mutation import watch_all_caches


@virtual_time
async def test_a_cache_that_nobody_changed_passes() -> None:
    world = World()
    world.make("a")
    async with world.cache_running(Buoy):
        with detect_mutations(world.cache):
            world.make("b")
            await settle()


@virtual_time
async def test_a_back_door_is_noticed() -> None:
    world = World()
    world.make("a")
    async with world.cache_running(Buoy):
        found = world.cache.informer(Buoy).store.get(key("a"))
        assert found is not None
        with pytest.raises(AttributeError):
            found.spec.depth = 3  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(CacheMutated, match="Buoy sea/a of the cache was changed"), detect_mutations(world.cache):
            force_setattr(found.spec, "depth", 3)


@virtual_time
async def test_a_mapping_that_is_changed_is_noticed() -> None:
    world = World()
    await world.client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="sea"), data=FrozenDict({"x": "y"})))
    async with world.cache_running(ConfigMap):
        found = world.cache.informer(ConfigMap).store.get(key("a"))
        assert found is not None
        data: dict[str, str] = found.data
        with pytest.raises(TypeError):
            data["x"] = "z"
        with pytest.raises(CacheMutated, match="ConfigMap sea/a"), detect_mutations(world.cache):
            dict[str, str].__setitem__(data, "x", "z")


@virtual_time
async def test_what_was_replaced_meanwhile_was_watched_too() -> None:
    world = World()
    world.make("a")
    async with world.cache_running(Buoy):
        found = world.cache.informer(Buoy).store.get(key("a"))
        assert found is not None
        with pytest.raises(CacheMutated, match="sea/a"), detect_mutations(world.cache):
            force_setattr(found.spec, "depth", 3)
            await world.client.delete(Buoy, key("a"))
            await settle()
            assert world.cache.informer(Buoy).store.get(key("a")) is None


@virtual_time
async def test_what_is_gone_is_not_kept() -> None:
    world = World()
    world.make("a")
    async with world.cache_running(Buoy):
        with watch_all_caches():
            found = world.cache.informer(Buoy).store.get(key("a"))
            await world.client.delete(Buoy, key("a"))
            await settle()
            # By this variable, and by the argument: a sweep would keep all that ever was.
            assert sys.getrefcount(found) == 2


@virtual_time
async def test_what_comes_during_the_block_is_watched_too() -> None:
    world = World()
    async with world.cache_running(Buoy):
        with pytest.raises(CacheMutated, match="sea/late"), detect_mutations(world.cache):
            world.make("late")
            await settle()
            found = world.cache.informer(Buoy).store.get(key("late"))
            assert found is not None
            force_setattr(found.spec, "depth", 3)
