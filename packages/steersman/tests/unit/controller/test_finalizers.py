"""Finalizers change with a precondition, and only when they must."""

from __future__ import annotations

import pytest

from framework_support.controller_env import ControllerEnv, key
from framework_support.widget import Widget, WidgetSpec
from steersman.client import MergePatch
from steersman.controller import add_finalizer, remove_finalizer
from steersman.errors import Conflict
from steersman_testing import virtual_time

FINALIZER = "shop.example.com/chain"


@pytest.fixture
def world() -> ControllerEnv:
    world = ControllerEnv()
    world.create_widgets("a")
    return world


async def set_label(world: ControllerEnv, value: str) -> None:
    await world.client.patch(Widget, key("a"), MergePatch({"metadata": {"labels": {"touched": value}}}))


@virtual_time
async def test_add_finalizer_is_idempotent_and_keeps_others(world: ControllerEnv) -> None:
    await world.client.patch(Widget, key("a"), MergePatch({"metadata": {"finalizers": ["x.example.com/other"]}}))
    updated = await add_finalizer(world.cached, world.read_widget("a"), FINALIZER)
    assert updated.metadata.finalizers == ("x.example.com/other", FINALIZER)
    world.server.requests.clear()
    assert await add_finalizer(world.cached, updated, FINALIZER) is updated
    assert world.server.requests == []


@virtual_time
async def test_remove_finalizer_keeps_others(world: ControllerEnv) -> None:
    await world.client.patch(
        Widget, key("a"), MergePatch({"metadata": {"finalizers": ["x.example.com/other", FINALIZER]}})
    )
    await remove_finalizer(world.cached, world.read_widget("a"), FINALIZER)
    assert world.read_widget("a").metadata.finalizers == ("x.example.com/other",)
    world.server.requests.clear()
    await remove_finalizer(world.cached, world.read_widget("a"), FINALIZER)
    assert world.server.requests == []


@virtual_time
async def test_remove_finalizer_last_one_deletes_object(world: ControllerEnv) -> None:
    await add_finalizer(world.cached, world.read_widget("a"), FINALIZER)
    await world.client.delete(Widget, key("a"))
    dying = world.read_widget("a")
    assert dying.metadata.deletion_timestamp is not None
    await remove_finalizer(world.cached, dying, FINALIZER)
    assert world.server.read(Widget, key("a")) is None
    await remove_finalizer(world.cached, dying, FINALIZER)


@pytest.mark.requirement("programming/resource-version")
@virtual_time
async def test_finalizer_of_changed_object_conflicts(world: ControllerEnv) -> None:
    old = world.read_widget("a")
    await set_label(world, "once")
    with pytest.raises(Conflict):
        await add_finalizer(world.cached, old, FINALIZER)
    assert world.read_widget("a").metadata.finalizers == ()
    held = await add_finalizer(world.cached, world.read_widget("a"), FINALIZER)
    await set_label(world, "twice")
    with pytest.raises(Conflict):
        await remove_finalizer(world.cached, held, FINALIZER)


@virtual_time
async def test_remove_finalizer_ignores_recreated_object(world: ControllerEnv) -> None:
    old = await add_finalizer(world.cached, world.read_widget("a"), FINALIZER)
    await remove_finalizer(world.cached, old, FINALIZER)
    await world.client.delete(Widget, key("a"))
    world.create_widgets("a")
    await add_finalizer(world.cached, world.read_widget("a"), FINALIZER)
    with pytest.raises(Conflict):
        await remove_finalizer(world.cached, old, FINALIZER)
    assert world.read_widget("a").metadata.finalizers == (FINALIZER,)
    assert world.read_widget("a").spec == WidgetSpec()
