"""Users of MySQL as whom something stored acts, and whose objects are deleted, in virtual time."""

from __future__ import annotations

import pytest

from database_support.unit.users_harness import CLERK, FORCED, UsersHarness, harness_of
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.engines.errors import SqlFailed
from steersman_databases.engines.sql.sql_actions import DropRole, SqlAction
from steersman_testing import virtual_time

ACTING = ("event shop.nightly", "procedure shop.pay", "view shop.sums", "view shop.totals")
NEEDED = (
    "clerk is the definer of event shop.nightly, procedure shop.pay, view shop.sums and 1 more."
    " Change their definer, or drop them"
)


@pytest.fixture
def world() -> UsersHarness:
    return harness_of("mysql")


@virtual_time
async def test_definer_is_locked_until_objects_are_gone(world: UsersHarness) -> None:
    async with world.operator():
        await world.user(engine="mysql")
        await world.ready()
        world.sql.definers["clerk"] = ACTING
        await world.client.delete(DatabaseUser, CLERK)
        annotation = "databases.steersman.dev/force-delete=true"
        forced = f"To delete the object without dropping the user, annotate it with {annotation}"
        told = f"The user provisioning has failed: {NEEDED}. {forced}"
        await world.until("told", lambda: world.message() == told)
        assert world.sql.users["clerk"].locked
        await world.runtime.clock.sleep(300)
        assert world.message() == told and "clerk" in world.sql.users
        notes = [note for note in world.event_messages() if "clerk" in note and not note.startswith("Created")]
        assert sorted(notes) == [
            f"ProvisionFailed: {told}",
            "UserCreated: created user clerk",
            "UserLocked: locked user clerk",
        ], "once each"
        del world.sql.definers["clerk"]
        await world.until("gone", lambda: world.read() is None, 45)
        assert "clerk" not in world.sql.users and "UserDropped: dropped user clerk" in world.event_messages()


@virtual_time
async def test_definer_is_released_by_force(world: UsersHarness) -> None:
    async with world.operator():
        await world.user(engine="mysql")
        await world.ready()
        world.sql.definers["clerk"] = ACTING[:1]
        await world.client.delete(DatabaseUser, CLERK)
        await world.wait_failed("clerk is the definer of event shop.nightly. Change")
        await world.client.patch(DatabaseUser, CLERK, MergePatch(FORCED))
        await world.until("by force", lambda: world.read() is None, 5)
        assert world.sql.users["clerk"].locked, "what acts as it works on"


@virtual_time
@pytest.mark.parametrize("shut_out", [False, True])
async def test_database_owner_stays_while_definer_elsewhere(
    world: UsersHarness, monkeypatch: pytest.MonkeyPatch, *, shut_out: bool
) -> None:
    """An attempt to drop it may have locked it before anything was defined."""
    apply, refuses = world.sql.apply, shut_out

    def refusing(action: SqlAction) -> None:
        if isinstance(action, DropRole) and refuses:
            world.sql.spoil_user(action.name, locked=True)
            raise SqlFailed("dropping user orders", "HY000", "not now")
        apply(action)

    monkeypatch.setattr(world.sql, "apply", refusing)
    async with world.operator():
        await world.database("orders", engine="mysql", deletionPolicy="Delete")
        await world.until("made", lambda: world.database_reason("orders") == "DatabaseReady")
        held, key = world.entries("orders-app"), ObjectKey("default", "orders")
        if not shut_out:
            world.sql.definers["orders"] = ("view archive.sums",)
        await world.client.delete(Database, key)
        if shut_out:
            await world.until("it waits", lambda: world.database_reason("orders") == "Deleting")
            assert not world.sql.accepts_password("orders", held["password"])
            world.sql.definers["orders"] = ("view archive.sums",)
        await world.until("gone", lambda: world.server.read(Database, key) is None)
        assert "orders" not in world.sql.databases and world.sql.accepts_password("orders", held["password"])
        told = "user orders was not dropped: orders is the definer of view archive.sums"
        assert f"DataRetained: {told}; Secret orders-app gives access to it and is retained" in world.event_messages()
