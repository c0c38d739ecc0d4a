"""Users that a Database made to own it, and who own it no more, or never did."""

from __future__ import annotations

import pytest

from database_support.fake_server.engine import InMemoryServer
from database_support.unit.users_harness import HOST, UsersHarness
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Database
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.sql.sql_actions import DropDatabase
from steersman_testing import matching, virtual_time

SHOP = ObjectKey("default", "shop")
PAUSED = MergePatch({"metadata": {"annotations": {"databases.steersman.dev/paused": "true"}}})
GIVEN = MergePatch({"spec": {"owner": "boss"}})


def world_of(engine: str) -> UsersHarness:
    """With one server, of this engine."""
    world = UsersHarness()
    sql = InMemoryServer(engine, now=world.runtime.clock.now)
    world.servers[ServerEndpoint(HOST.host, sql.like.port)] = world.sql = sql
    return world


async def boss(world: UsersHarness) -> None:
    """Somebody who can own databases."""
    await world.user("boss", engine=world.sql.like.name, login=False)
    await world.ready("boss")


async def shop(world: UsersHarness, policy: str) -> dict[str, str]:
    """A database with an owner of its own, and what opens it."""
    await world.database(engine=world.sql.like.name, deletionPolicy=policy)
    await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
    return world.entries("shop-app")


async def deleted(world: UsersHarness) -> None:
    """The database's object is gone."""
    await world.client.delete(Database, SHOP)
    await world.until("gone", lambda: world.server.read(Database, SHOP) is None)


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_previous_owner_is_dropped_with_secret_after_change(engine: str) -> None:
    """Wherever that is cut off."""
    world = world_of(engine)
    async with world.operator():
        held = await shop(world, "Delete")
        await world.client.patch(Database, SHOP, GIVEN)
        await world.until("it waits", lambda: world.database_reason("shop") == "OwnerMissing")
        assert world.sql.accepts_password("shop", held["password"]) and world.entries("shop-app") == held
        world.server.fail_next(matching("DELETE", "/secrets/shop-app"), 500, times=3)
        await boss(world)
        await world.until("dropped", lambda: "shop" not in world.sql.users, 40)
        await world.until("forgotten", lambda: world.entries("shop-app") == {})
        await world.until("well", lambda: world.database_message("shop") == "database shop is as declared")
        assert "UserDropped: dropped user shop" in world.event_messages() and "shop" in world.sql.databases
        await deleted(world)
        assert not world.sql.databases and world.sql.other_users == {"boss"}


@pytest.mark.parametrize("engine", ["mysql", "postgresql"])
@virtual_time
async def test_missing_new_owner_changes_nothing(engine: str) -> None:
    world = world_of(engine)
    async with world.operator():
        held = await shop(world, "Delete")
        before, written = dict(world.sql.databases), world.sql.writes
        await world.client.patch(Database, SHOP, GIVEN)
        told = "owner boss does not exist on the server. Declare it as a DatabaseUser, or set another owner"
        await world.until("told", lambda: world.database_message("shop") == told, 5)
        await world.runtime.clock.sleep(120)
        assert (world.sql.databases, world.sql.writes) == (before, written)
        assert world.entries("shop-app") == held and world.sql.accepts_password("shop", held["password"])
        assert [note for note in world.event_messages() if "boss" in note] == [f"OwnerMissing: {told}"]
        await boss(world)
        await world.until("well", lambda: world.database_reason("shop") == "DatabaseReady", 30)


@pytest.mark.parametrize("engine", ["mysql", "postgresql"])
@virtual_time
async def test_database_waiting_for_owner_drops_current_one(engine: str) -> None:
    world = world_of(engine)
    async with world.operator():
        await shop(world, "Delete")
        await world.client.patch(Database, SHOP, GIVEN)
        await world.until("it waits", lambda: world.database_reason("shop") == "OwnerMissing")
        await deleted(world)
        assert not world.sql.databases and not world.sql.other_users and world.entries("shop-app") == {}


@virtual_time
async def test_previous_owner_without_secret_is_dropped() -> None:
    world = world_of("postgresql")
    async with world.operator():
        await boss(world)
        await shop(world, "Retain")
        await world.client.patch(Database, SHOP, GIVEN)
        await world.until("given", lambda: world.sql.databases["shop"].owner == "boss")
        await world.client.delete(Secret, ObjectKey("default", "shop-app"))
        await world.client.patch(Database, SHOP, MergePatch({"spec": {"deletionPolicy": "Delete"}}))
        await deleted(world)
        assert world.sql.other_users == {"boss"}


@virtual_time
async def test_previous_owner_is_retained_and_reported() -> None:
    world = world_of("postgresql")
    async with world.operator():
        await boss(world)
        held = await shop(world, "Retain")
        await world.client.patch(Database, SHOP, GIVEN)
        told = (
            "database shop is as declared; user shop, made for it before, was not dropped: deletionPolicy is Retain;"
            " Secret shop-app gives access to it and is retained"
        )
        await world.until("told", lambda: world.database_message("shop") == told)
        assert world.database_reason("shop") == "DatabaseReady"
        await deleted(world)
        assert world.sql.accepts_password("shop", held["password"]) and world.entries("shop-app") == held
        left = "database shop and its owner were not dropped: deletionPolicy is Retain"
        note = "Secret shop-app gives access to user shop and is retained"
        assert f"DataRetained: {left}; {note}" in world.event_messages()


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_previous_owner_named_elsewhere_is_kept_until_unused(engine: str) -> None:
    world = world_of(engine)
    async with world.operator():
        await boss(world)
        held = await shop(world, "Delete")
        await world.database("archive", engine=engine, owner="shop")
        await world.until("made", lambda: world.database_reason("archive") == "DatabaseReady")
        await world.client.patch(Database, SHOP, GIVEN)
        said = "user shop, made for it before, was not dropped: "
        await world.until("told", lambda: said in world.database_message("shop"))
        assert world.sql.accepts_password("shop", held["password"]) and world.entries("shop-app") == held
        await world.client.patch(Database, ObjectKey("default", "archive"), GIVEN)
        await world.until("dropped", lambda: "shop" not in world.sql.users, 400)
        await world.until("forgotten", lambda: world.entries("shop-app") == {})


@virtual_time
async def test_secret_of_retained_database_on_other_server_is_kept() -> None:
    world = world_of("postgresql")
    world.servers[ServerEndpoint("other.example.com", 5432)] = InMemoryServer(now=world.runtime.clock.now)
    async with world.operator():
        held = await shop(world, "Retain")
        await deleted(world)
        reference = {"host": "other.example.com", "administrator": {"name": "admin"}}
        await world.user("boss", serverRef=reference, login=False)
        await world.ready("boss")
        await world.database(serverRef=reference, owner="boss", deletionPolicy="Delete")
        await world.until("made", lambda: world.database_message("shop") == "database shop is as declared")
        await world.runtime.clock.sleep(60)
        assert world.entries("shop-app") == held and world.sql.accepts_password("shop", held["password"])


@virtual_time
async def test_owner_declared_as_user_is_left_to_it() -> None:
    world = world_of("postgresql")
    async with world.operator():
        held = await shop(world, "Delete")
        await world.client.patch(Database, SHOP, MergePatch({"spec": {"owner": "shop"}}))
        await world.runtime.clock.sleep(60)
        assert (
            world.sql.accepts_password("shop", held["password"]) and world.database_reason("shop") == "DatabaseReady"
        )
        await deleted(world)
        assert not world.sql.other_users and world.entries("shop-app") == {}


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_impossible_database_creates_no_owner(engine: str) -> None:
    world = world_of(engine)
    async with world.operator():
        world.sql.make_database("shop")
        await world.database(engine=engine, deletionPolicy="Delete")
        await world.until("refused", lambda: world.database_reason("shop") == "AlreadyExists")
        assert not world.sql.other_users and world.entries("shop-app") == {}
        await world.client.patch(Database, SHOP, MergePatch({"spec": {"adopt": True}}))
        await world.until("adopted", lambda: world.database_reason("shop") == "DatabaseReady", 40)
        assert world.sql.accepts_password("shop", world.entries("shop-app")["password"])


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_owner_is_dropped_if_database_belongs_to_other(engine: str) -> None:
    """It was made, and somebody was faster with the database."""
    world = world_of(engine)
    async with world.operator():
        await shop(world, "Delete")
        await world.client.patch(Database, SHOP, PAUSED)
        await world.until("paused", lambda: world.database_reason("shop") == "Paused")
        world.sql.apply(DropDatabase("shop"))
        world.sql.make_database("shop")
        world.sql.revoke_on_database("shop")
        await deleted(world)
        assert set(world.sql.databases) == {"shop"} and not world.sql.other_users and world.entries("shop-app") == {}
        told = "database shop was not dropped: it has another ownership mark, or none"
        assert f"DataRetained: {told}" in world.event_messages()
