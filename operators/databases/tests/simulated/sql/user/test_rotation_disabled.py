"""A rotation that is declared no more: what was promised is kept, and the user is as if there had been none."""

from __future__ import annotations

from base64 import b64encode

import pytest

from database_support.unit.users_harness import CLERK, UsersHarness, harness_of
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import DatabaseUser
from steersman_testing import run_virtual

SECRET = ObjectKey("default", "clerk-user")
DUE = b64encode(b"2000-01-01T00:00:00Z").decode()
ENGINES = pytest.mark.parametrize("engine", ["postgresql", "mysql"])


async def rotated(world: UsersHarness) -> dict[str, str]:
    """Rotates the password at once. What the Secret said before."""
    former = world.entries()
    await world.client.patch(Secret, SECRET, MergePatch({"data": {"rotated-at": DUE}}))
    await world.until("rotated", lambda: world.entries()["password"] != former["password"], 30)
    await world.ready()
    return former


async def declared(world: UsersHarness, **spec: object) -> None:
    """Changes these fields of the user's spec."""
    await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": spec}))


@ENGINES
@pytest.mark.parametrize("moved", [False, True], ids=["as declared", "declared later"])
def test_previous_password_is_valid_until_announced_time(engine: str, moved: bool) -> None:

    async def story() -> None:
        world = harness_of(engine)
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
            assert world.sql.accepts_password(former["username"], former["password"])
            await world.until(
                "over", lambda: not world.sql.accepts_password(former["username"], former["password"]), 300
            )
            await world.until("forgotten", lambda: not any(key.startswith("previous") for key in world.entries()), 5)
            current = world.entries()
            assert world.sql.accepts_password(current["username"], current["password"])
            await world.ready()

    run_virtual(story())


@ENGINES
@pytest.mark.parametrize("written", [None, b64encode(b"later").decode()], ids=["gone", "unreadable"])
def test_overwritten_overlap_end_is_over(engine: str, written: str | None) -> None:

    async def story() -> None:
        world = harness_of(engine)
        async with world.operator():
            await world.user(engine=engine, rotation={"every": "48h", "overlap": "20m"})
            await world.ready()
            former = await rotated(world)
            await declared(world, rotation=None)
            await world.runtime.clock.sleep(60)
            await world.client.patch(Secret, SECRET, MergePatch({"data": {"previous-until": written}}))
            await world.until(
                "over", lambda: not world.sql.accepts_password(former["username"], former["password"]), 30
            )
            await world.until("forgotten", lambda: "previous-password" not in world.entries(), 5)
            await world.ready()

    run_virtual(story())


def replicates(world: UsersHarness) -> bool:
    return "clerk" in world.sql.users and world.sql.users["clerk"].replication


@pytest.mark.parametrize("field", ["replication", "bypassRowLevelSecurity"])
def test_user_back_on_own_name_has_one_role(field: str) -> None:

    async def story() -> None:
        world = UsersHarness()
        async with world.operator():
            await world.user(rotation={"every": "48h", "overlap": "1m"})
            await world.ready()
            for _ in range(2):
                await rotated(world)
                await world.until("forgotten", lambda: "previous-password" not in world.entries(), 90)
            held = world.entries()
            await declared(world, rotation=None, **{field: True})
            await world.runtime.clock.sleep(10)
            await world.ready(seconds=1)
            clerk = world.sql.users["clerk"]
            assert clerk.replication or clerk.bypass_row_level_security
            assert world.sql.other_users == {"clerk"}
            assert world.entries() == held and world.sql.accepts_password("clerk", held["password"])

    run_virtual(story())


@pytest.mark.parametrize("in_overlap", [False, True], ids=["after the overlap", "in it"])
def test_user_on_second_name_returns_before_replication(in_overlap: bool) -> None:

    async def story() -> None:
        world = UsersHarness()
        async with world.operator():
            world.sql.make_database("shop")
            grants = [{"database": "shop", "privileges": ["CONNECT"]}]
            await world.user(grants=grants, rotation={"every": "48h", "overlap": "1m"})
            await world.ready()
            await rotated(world)
            if not in_overlap:
                await world.until("forgotten", lambda: "previous-password" not in world.entries(), 90)
            second = world.entries()
            await declared(world, rotation=None, replication=True)
            await world.until("its own name", lambda: world.entries()["username"] == "clerk", 150)
            await world.wait_failed(
                "replication and bypassRowLevelSecurity take effect after the last login of clerk~: 20"
            )
            until = world.entries()["previous-until"]
            world.sql.drop_user("clerk")
            await world.until("healed", lambda: world.sql.accepts_password("clerk", world.entries()["password"]), 60)
            await world.runtime.clock.sleep(50 * 60)
            assert world.entries()["previous-until"] == until
            assert world.sql.accepts_password(second["username"], second["password"]), "not read by everybody yet"
            assert not replicates(world)
            await world.until("replicates", lambda: replicates(world), 700)
            await world.ready()
            current = world.entries()
            assert world.sql.other_users == {"clerk"} and world.sql.accepts_password("clerk", current["password"])
            assert not any(key.startswith(("previous", "next")) for key in current)

    run_virtual(story())
