"""Users of MySQL as whom something stored acts, and whose objects are deleted, in virtual time."""

from __future__ import annotations

import pytest

from database_support.users_world import CLERK, FORCED, UsersWorld, world_of
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.engines.actions import Action, DropUser
from steersman_databases.engines.errors import SqlFailed
from steersman_testing import virtual_time

ACTING = ("event shop.nightly", "procedure shop.pay", "view shop.sums", "view shop.totals")
NEEDED = (
    "clerk is the definer of event shop.nightly, procedure shop.pay, view shop.sums and 1 more:"
    " give each another definer, or drop it"
)


@pytest.fixture
def world() -> UsersWorld:
    return world_of("mysql")


@virtual_time
async def test_a_user_waits_locked_until_nothing_acts_as_it(world: UsersWorld) -> None:
    async with world.operator():
        await world.user(engine="mysql")
        await world.ready()
        world.sql.acting["clerk"] = ACTING
        await world.client.delete(DatabaseUser, CLERK)
        forced = "annotate it with databases.steersman.dev/force-delete=true to delete it without dropping the user"
        told = f"The user provisioning has failed: {NEEDED}; {forced}"
        await world.until("told", lambda: world.message() == told)
        assert world.sql.users["clerk"].locked
        await world.runtime.clock.sleep(300)
        assert world.message() == told and "clerk" in world.sql.users
        notes = [note for note in world.notes() if "clerk" in note and not note.startswith("Created")]
        assert sorted(notes) == [
            f"ProvisionFailed: {told}",
            "UserCreated: created user clerk",
            "UserLocked: locked user clerk",
        ], "once each"
        del world.sql.acting["clerk"]
        await world.until("gone", lambda: world.read() is None, 45)
        assert "clerk" not in world.sql.users and "UserDropped: dropped user clerk" in world.notes()


@virtual_time
async def test_a_user_as_whom_something_acts_is_let_go_by_force(world: UsersWorld) -> None:
    async with world.operator():
        await world.user(engine="mysql")
        await world.ready()
        world.sql.acting["clerk"] = ACTING[:1]
        await world.client.delete(DatabaseUser, CLERK)
        await world.failed("clerk is the definer of event shop.nightly: give")
        await world.client.patch(DatabaseUser, CLERK, MergePatch(FORCED))
        await world.until("by force", lambda: world.read() is None, 5)
        assert world.sql.users["clerk"].locked, "what acts as it works on"


@virtual_time
@pytest.mark.parametrize("shut_out", [False, True])
async def test_the_owner_of_a_database_goes_on_where_something_elsewhere_acts_as_it(
    world: UsersWorld, monkeypatch: pytest.MonkeyPatch, *, shut_out: bool
) -> None:
    """An attempt to drop it may have locked it before anything was defined."""
    apply, refuses = world.sql.apply, shut_out

    def refusing(action: Action) -> None:
        if isinstance(action, DropUser) and refuses:
            world.sql.spoil_user(action.name, locked=True)
            raise SqlFailed("dropping user orders", "HY000", "not now")
        apply(action)

    monkeypatch.setattr(world.sql, "apply", refusing)
    async with world.operator():
        await world.database("orders", engine="mysql", deletionPolicy="Delete")
        await world.until("made", lambda: world.database_reason("orders") == "DatabaseReady")
        held, key = world.entries("orders-app"), ObjectKey("default", "orders")
        if not shut_out:
            world.sql.acting["orders"] = ("view archive.sums",)
        await world.client.delete(Database, key)
        if shut_out:
            await world.until("it waits", lambda: world.database_reason("orders") == "Deleting")
            assert not world.sql.lets_in("orders", held["password"])
            world.sql.acting["orders"] = ("view archive.sums",)
        await world.until("gone", lambda: world.server.read(Database, key) is None)
        assert "orders" not in world.sql.databases and world.sql.lets_in("orders", held["password"])
        told = "user orders was not dropped: orders is the definer of view archive.sums"
        assert f"DataRetained: {told}; Secret orders-app opens it, and is kept" in world.notes()
