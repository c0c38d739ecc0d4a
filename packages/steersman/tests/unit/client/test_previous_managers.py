"""Fields of a previous field manager, on the in-memory API server."""

from __future__ import annotations

import pytest

from framework_support.controller_env import ControllerEnv
from framework_support.previous_manager_cases import (
    CURRENT,
    PREVIOUS,
    RenamedOperator,
    check_applied_fields,
    check_other_value,
    check_status,
    check_updated_fields,
)
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client
from steersman.client.previous_managers import take_over_fields
from steersman.errors import Conflict
from steersman.manager import Manager, ManagerOptions
from steersman_testing import virtual_time

NAMESPACE = "orders"


@pytest.mark.parametrize("is_cached", [True, False])
@virtual_time
async def test_fields_applied_by_previous_manager_are_moved(is_cached: bool) -> None:
    world = ControllerEnv()
    await check_applied_fields(RenamedOperator(world.server, NAMESPACE, world.runtime), is_cached=is_cached)


@pytest.mark.parametrize("is_cached", [True, False])
@virtual_time
async def test_unforced_apply_replaces_previous_value(is_cached: bool) -> None:
    world = ControllerEnv()
    await check_other_value(RenamedOperator(world.server, NAMESPACE, world.runtime), is_cached=is_cached)


@virtual_time
async def test_fields_updated_by_previous_manager_are_moved() -> None:
    world = ControllerEnv()
    await check_updated_fields(RenamedOperator(world.server, NAMESPACE, world.runtime))


@virtual_time
async def test_status_fields_of_previous_manager_are_moved() -> None:
    world = ControllerEnv()
    await check_status(RenamedOperator(world.server, NAMESPACE, world.runtime))


@pytest.mark.parametrize("previous", [PREVIOUS, CURRENT])
@virtual_time
async def test_move_of_fields_happens_once(previous: str) -> None:
    """Also from updates to applies under the same name."""
    world = ControllerEnv()
    operator = RenamedOperator(world.server, NAMESPACE, world.runtime, previous=previous)
    await operator.previous.create(operator.config("once", kept="1", stale="2"))
    async with operator.cached(ConfigMap):
        world.server.requests.clear()
        for _ in range(3):
            await operator.current.apply(operator.config("once", kept="1"))
        methods = [request.method for request in world.server.requests]
        assert (await operator.current.get(ConfigMap, operator.key("once"))).data == {"kept": "1"}
    assert methods == ["GET", "PATCH", "PATCH"], "one read, one move and one apply"


@virtual_time
async def test_move_of_fields_meets_concurrent_change() -> None:
    """The object changes between read and patch: the next reconcile continues."""
    world = ControllerEnv()
    operator = RenamedOperator(world.server, NAMESPACE, world.runtime)
    await operator.previous.apply(operator.config("raced", kept="1", stale="2"))
    live, raw = operator.current.live, operator.current.live.raw

    async def raced(path: str, **options: object) -> bytes:
        found = await raw(path)
        await Client(world.server, field_manager="user").apply(operator.config("raced", users="3"))
        return found

    async with operator.cached(ConfigMap):
        live.raw = raced  # type: ignore[method-assign, assignment]
        with pytest.raises(Conflict):
            await operator.current.apply(operator.config("raced", kept="1"))
        live.raw = raw  # type: ignore[method-assign]
        applied = await operator.current.apply(operator.config("raced", kept="1"))
    assert applied.data == {"kept": "1", "users": "3"}


@virtual_time
async def test_cut_after_move_is_completed_by_next_apply() -> None:
    world = ControllerEnv()
    operator = RenamedOperator(world.server, NAMESPACE, world.runtime)
    await operator.previous.apply(operator.config("cut", kept="1", stale="2"))
    async with operator.cached(ConfigMap):
        # The process ends after the move: another one finds its own entry with too many fields.
        await take_over_fields(operator.current.live, await operator.current.get(ConfigMap, operator.key("cut")))
        assert await operator.managers(ConfigMap, "cut") == [(CURRENT, "Apply", "")]
        applied = await operator.current.apply(operator.config("cut", kept="1"))
    assert applied.data == {"kept": "1"}


def test_manager_passes_previous_field_managers() -> None:
    world = ControllerEnv()
    manager = Manager(world.server, ManagerOptions(name=CURRENT, previous_field_managers=(PREVIOUS,)))
    assert manager.client.live.previous_field_managers == {PREVIOUS}
    assert manager.unfenced_client.live.previous_field_managers == {PREVIOUS}
