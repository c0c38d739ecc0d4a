"""Runnables: start, stop and errors."""

from __future__ import annotations

import asyncio

import pytest

from framework_support.controller_env import ControllerEnv
from steersman.api.core_v1 import Pod, Secret
from steersman.manager import Manager, ManagerOptions
from steersman_manifests.rbac import policy_rules
from steersman_testing import virtual_time


@virtual_time
async def test_runnable_error_stops_manager_and_is_raised() -> None:
    world = ControllerEnv()
    manager = Manager(world.server, runtime=world.runtime)
    others: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(5)
        raise ValueError("ran out")

    async def lasts() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            others.append("ended")

    manager.add(fails)
    manager.add(lasts)
    with pytest.raises(ValueError, match="ran out"):
        await manager.run()
    assert others == ["ended"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_runnable_may_return_or_be_added_later() -> None:
    world = ControllerEnv()
    manager = Manager(world.server, runtime=world.runtime)
    events: list[str] = []

    async def short() -> None:
        events.append("short")

    async def late() -> None:
        events.append("late")

    manager.add(short)
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(5)
    manager.add(late)
    await asyncio.sleep(5)
    assert events == ["short", "late"]
    assert not running.done()
    manager.stop()
    await running


@virtual_time
async def test_runnables_are_cancelled_after_grace_period() -> None:
    world = ControllerEnv()
    manager = Manager(world.server, ManagerOptions(graceful_shutdown_timeout=10), world.runtime)
    events: list[str] = []

    async def tidies_up() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(4)
            events.append("tidy")

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                if len(events) > 1:
                    raise
                events.append("no")

    manager.add(tidies_up)
    manager.add(stubborn)
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(5)
    manager.stop()
    await running
    assert events == ["no", "tidy"]
    assert asyncio.get_running_loop().time() == pytest.approx(15, abs=0.5)


def test_runnable_permissions_are_those_of_the_manager() -> None:
    manager = Manager(ControllerEnv().server)
    manager.needs(Pod, "list", "delete")
    manager.needs(Secret, "get", names=("token",))
    rules = policy_rules(manager.permissions)
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]} in rules
    secret = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["token"]}
    assert secret in rules
