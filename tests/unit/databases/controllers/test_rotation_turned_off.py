"""A rotation that is declared no more: what was promised is kept, and the user is as if there had been none."""

from __future__ import annotations

from base64 import b64encode

import pytest

from contents_in_memory import ServerInMemory
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman.testing import run_virtual
from steersman_databases.api import DatabaseUser
from steersman_databases.engines import Endpoint
from users_world import CLERK, HOST, UsersWorld

SECRET = ObjectKey("default", "clerk-user")
DUE = b64encode(b"2000-01-01T00:00:00Z").decode()
ENGINES = pytest.mark.parametrize("engine", ["postgresql", "mysql"])


def world_of(engine: str) -> UsersWorld:
    world = UsersWorld()
    if engine == "mysql":
        mysql = ServerInMemory("mysql", now=world.runtime.clock.now)
        world.sql = world.servers[Endpoint(HOST.host, 3306)] = mysql
    return world


async def rotated(world: UsersWorld) -> dict[str, str]:
    """Rotates the password at once. What the Secret said before."""
    former = world.entries()
    await world.client.patch(Secret, SECRET, MergePatch({"data": {"rotated-at": DUE}}))
    await world.until("rotated", lambda: world.entries()["password"] != former["password"], 30)
    await world.ready()
    return former


async def declared(world: UsersWorld, **spec: object) -> None:
    """Changes these fields of the user's spec."""
    await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": spec}))


@ENGINES
@pytest.mark.parametrize("moved", [False, True], ids=["as declared", "declared later"])
def test_the_former_password_is_valid_until_the_moment_that_was_told(engine: str, moved: bool) -> None:

    async def story() -> None:
        world = world_of(engine)
        async with world.operator():
            rotation = {"every": "48h", "overlap": "2m" if moved else "20m"}
            await world.user(engine=engine, rotation=rotation)
            await world.ready()
            former = await rotated(world)
            if moved:
                await declared(world, rotation={"overlap": "20m"})
                await world.runtime.clock.sleep(60)
            await declared(world, rotation=None)
            await world.runtime.clock.sleep(15 * 60)
            assert world.sql.lets_in(former["username"], former["password"])
            await world.until("over", lambda: not world.sql.lets_in(former["username"], former["password"]), 300)
            await world.until("forgotten", lambda: not any(key.startswith("previous") for key in world.entries()), 5)
            current = world.entries()
            assert world.sql.lets_in(current["username"], current["password"])
            await world.ready()

    run_virtual(story())


@ENGINES
@pytest.mark.parametrize("written", [None, b64encode(b"later").decode()], ids=["gone", "unreadable"])
def test_an_overlap_whose_end_was_written_over_is_over(engine: str, written: str | None) -> None:

    async def story() -> None:
        world = world_of(engine)
        async with world.operator():
            await world.user(engine=engine, rotation={"every": "48h", "overlap": "20m"})
            await world.ready()
            former = await rotated(world)
            await declared(world, rotation=None)
            await world.runtime.clock.sleep(60)
            await world.client.patch(Secret, SECRET, MergePatch({"data": {"previous-until": written}}))
            await world.until("over", lambda: not world.sql.lets_in(former["username"], former["password"]), 30)
            await world.until("forgotten", lambda: "previous-password" not in world.entries(), 5)
            await world.ready()

    run_virtual(story())
