"""Rotations, and ends, while the clock is set."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest

from database_support.unit.users_harness import CLERK, UsersHarness, harness_of
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import DatabaseUser
from steersman_testing import run_virtual

DUE = MergePatch({"data": {"rotated-at": b64encode(b"2000-01-01T00:00:00Z").decode()}})


def set_clock(by: timedelta) -> None:
    """Sets the clock on the wall; how long the operator is up, stays."""
    loop: Any = asyncio.get_running_loop()
    loop.start += by


async def rotating(world: UsersHarness, engine: str) -> dict[str, str]:
    """A user whose password was just rotated. What its Secret said before."""
    await world.user(engine=engine, rotation={"every": "72h", "overlap": "24h"})
    await world.ready()
    former = world.entries()
    await world.client.patch(Secret, ObjectKey("default", "clerk-user"), DUE)
    await world.until("rotated", lambda: world.entries()["password"] != former["password"], 30)
    await world.ready()
    return former


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@pytest.mark.parametrize("hours", [0.5, 2, 14])
def test_clock_set_back_neither_expires_nor_rotates(engine: str, hours: float) -> None:

    async def story() -> None:
        world = harness_of(engine)
        async with world.operator():
            former = await rotating(world, engine)
            current = world.entries()
            set_clock(timedelta(hours=-hours))
            await world.client.patch(DatabaseUser, CLERK, MergePatch({"metadata": {"annotations": {"touch": "1"}}}))
            await world.runtime.clock.sleep(60)
            assert world.entries() == current
            assert world.sql.accepts_password(current["username"], current["password"])
            assert world.sql.accepts_password(former["username"], former["password"])

    run_virtual(story())


def test_clock_set_forward_expires_valid_until_late() -> None:
    """As by a machine that was suspended: the time that it was up does not move."""

    async def story() -> None:
        world = harness_of("mysql")
        async with world.operator():
            end = world.runtime.clock.now() + timedelta(hours=2)
            await world.user(engine="mysql", validUntil=end.isoformat())
            await world.ready()
            password = world.entries()["password"]
            set_clock(timedelta(hours=2))
            await world.until("locked", lambda: not world.sql.accepts_password("clerk", password), 310)

    run_virtual(story())


def test_clock_set_forward_ends_overlap_late() -> None:

    async def story() -> None:
        world = harness_of("mysql")
        async with world.operator():
            former = await rotating(world, "mysql")
            set_clock(timedelta(hours=24))
            await world.until("over", lambda: not world.sql.accepts_password("clerk", former["password"]), 310)
            await world.until("forgotten", lambda: "previous-password" not in world.entries(), 5)

    run_virtual(story())
