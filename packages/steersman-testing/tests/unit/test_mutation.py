"""Mutations of cached objects are detected."""

from __future__ import annotations

import sys

import pytest
from msgspec.structs import force_setattr

from framework_support.controller_env import ControllerEnv, drain_event_loop, key
from framework_support.widget import Widget
from steersman.api.core_v1 import ConfigMap
from steersman.meta import FrozenDict, ObjectMeta
from steersman_testing import CacheMutated, detect_mutations, virtual_time
from steersman_testing.mutation import detect_mutations_in_all_caches


@virtual_time
async def test_unchanged_cache_passes() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache(Widget):
        with detect_mutations(world.cache):
            world.create_widgets("b")
            await drain_event_loop()


@virtual_time
async def test_forced_setattr_is_detected() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache(Widget):
        found = world.cache.informer(Widget).store.get(key("a"))
        assert found is not None
        with pytest.raises(AttributeError):
            found.spec.depth = 3  # pyright: ignore[reportAttributeAccessIssue]
        with (
            pytest.raises(CacheMutated, match="Widget orders/a of the cache was mutated"),
            detect_mutations(world.cache),
        ):
            force_setattr(found.spec, "depth", 3)


@virtual_time
async def test_changed_mapping_is_detected() -> None:
    world = ControllerEnv()
    await world.client.create(
        ConfigMap(metadata=ObjectMeta(name="a", namespace="orders"), data=FrozenDict({"x": "y"}))
    )
    async with world.running_cache(ConfigMap):
        found = world.cache.informer(ConfigMap).store.get(key("a"))
        assert found is not None
        data: dict[str, str] = found.data
        with pytest.raises(TypeError):
            data["x"] = "z"
        with pytest.raises(CacheMutated, match="ConfigMap orders/a"), detect_mutations(world.cache):
            dict[str, str].__setitem__(data, "x", "z")


@virtual_time
async def test_replaced_object_is_checked() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache(Widget):
        found = world.cache.informer(Widget).store.get(key("a"))
        assert found is not None
        with pytest.raises(CacheMutated, match="orders/a"), detect_mutations(world.cache):
            force_setattr(found.spec, "depth", 3)
            await world.client.delete(Widget, key("a"))
            await drain_event_loop()
            assert world.cache.informer(Widget).store.get(key("a")) is None


@virtual_time
async def test_deleted_object_is_not_retained() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache(Widget):
        with detect_mutations_in_all_caches():
            found = world.cache.informer(Widget).store.get(key("a"))
            await world.client.delete(Widget, key("a"))
            await drain_event_loop()
            # Only this variable and the argument refer to the object: the check must not keep deleted objects.
            assert sys.getrefcount(found) == 2


@virtual_time
async def test_object_added_during_block_is_checked() -> None:
    world = ControllerEnv()
    async with world.running_cache(Widget):
        with pytest.raises(CacheMutated, match="orders/late"), detect_mutations(world.cache):
            world.create_widgets("late")
            await drain_event_loop()
            found = world.cache.informer(Widget).store.get(key("late"))
            assert found is not None
            force_setattr(found.spec, "depth", 3)
