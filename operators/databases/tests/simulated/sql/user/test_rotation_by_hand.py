"""What somebody writes into the Secret of a user whose password rotates."""

from __future__ import annotations

from base64 import b64encode

import pytest

from database_support.unit.users_harness import UsersHarness
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_testing import run_virtual, virtual_time

ROTATION = {"every": "48h", "overlap": "24h"}


async def write(world: UsersHarness, **entries: str) -> None:
    """Writes these entries, with dashes for underscores."""
    data = {key.replace("_", "-"): b64encode(value.encode()).decode() for key, value in entries.items()}
    await world.client.patch(Secret, ObjectKey("default", "clerk-user"), MergePatch({"data": data}))


@virtual_time
async def test_hand_written_previous_credentials_work() -> None:
    """As by a restore in an overlap: they are the current ones, whatever was valid beside."""
    world = UsersHarness()
    async with world.operator():
        await world.user(rotation=ROTATION)
        await world.ready()
        former = world.entries()["password"]
        await write(world, rotated_at="2000-01-01T00:00:00Z")
        await world.until("rotated", lambda: world.entries()["username"] == "clerk~", 30)
        await world.ready()
        await write(world, username="clerk", password="mine")
        await world.until("in force", lambda: world.sql.accepts_password("clerk", "mine"), 30)
        await world.until("forgotten", lambda: "previous-password" not in world.entries(), 5)
        await world.ready()
        assert (world.entries()["username"], world.entries()["password"]) == ("clerk", "mine")
        assert not world.sql.accepts_password("clerk", former)


@pytest.mark.parametrize("name", ["somebody", "clerk"], ids=["of nobody", "in use"])
def test_invalid_next_username_is_discarded(name: str) -> None:

    async def story() -> None:
        world = UsersHarness()
        async with world.operator():
            world.sql.make_database("shop")
            await world.user(grants=[{"database": "shop", "privileges": ["CONNECT"]}], rotation=ROTATION)
            await world.ready()
            former = world.entries()
            await write(world, next_username=name, next_password="x")
            await world.until("given up", lambda: "next-password" not in world.entries(), 30)
            await world.runtime.clock.sleep(60)
            await world.ready(seconds=1)
            assert world.entries() == former and world.sql.accepts_password("clerk", former["password"])
            await write(world, rotated_at="2000-01-01T00:00:00Z")
            await world.until("rotated", lambda: world.entries()["username"] == "clerk~", 30)

    run_virtual(story())
