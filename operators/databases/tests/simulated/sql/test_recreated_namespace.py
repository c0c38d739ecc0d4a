"""A namespace that is deleted and created again inherits nothing of the previous one."""

from __future__ import annotations

from dataclasses import replace

from database_support.unit.users_harness import CLERK, UsersHarness
from steersman.api.core_v1 import Namespace
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.engines.sql.desired import OwnershipMark
from steersman_testing import virtual_time

GUESTS = ObjectKey("", "guests")


async def recreate_namespace(world: UsersHarness) -> None:
    """Delete the namespace with its objects, and create it again."""
    await world.client.delete(Namespace, GUESTS)
    await world.until("deleted", lambda: world.server.read(Namespace, GUESTS) is None)
    await world.namespace(GUESTS.name)


def mark_of_clerk(world: UsersHarness) -> OwnershipMark | None:
    return OwnershipMark.read(world.sql.users["clerk"].mark)


@virtual_time
async def test_recreated_namespace_inherits_nothing() -> None:
    world, key = UsersHarness(), ObjectKey(GUESTS.name, "clerk")
    async with world.operator():
        await world.namespace(GUESTS.name)
        await world.user(namespace=GUESTS.name, deletionPolicy="Retain")
        await world.ready(namespace=GUESTS.name)
        await world.database(namespace=GUESTS.name)
        await world.until("ready", lambda: world.database_reason("shop", GUESTS.name) == "DatabaseReady")
        previous = world.entries(namespace=GUESTS.name)["password"]
        await recreate_namespace(world)
        await world.user(namespace=GUESTS.name)
        await world.wait_failed("belongs to a deleted namespace", namespace=GUESTS.name)
        await world.database(namespace=GUESTS.name)
        await world.until("refused", lambda: world.database_reason("shop", GUESTS.name) == "AlreadyExists")
        assert world.sql.accepts_password("clerk", previous)
        await world.client.delete(DatabaseUser, key)
        await world.client.delete(Database, ObjectKey(GUESTS.name, "shop"))
        await world.until("deleted", lambda: world.read(namespace=GUESTS.name) is None)
        assert world.sql.accepts_password("clerk", previous)
        assert "shop" in world.sql.databases
        await world.user(namespace=GUESTS.name, adopt=True)
        await world.ready(namespace=GUESTS.name)
        assert not world.sql.accepts_password("clerk", previous)


@virtual_time
async def test_mark_of_earlier_version_is_completed() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
    mark = mark_of_clerk(world)
    namespace = world.server.read(Namespace, ObjectKey("", "default"))
    assert mark is not None and namespace is not None and mark.namespace_uid == namespace.metadata.uid
    text = replace(mark, namespace_uid="").text
    world.sql.users["clerk"] = replace(world.sql.users["clerk"], mark=text)
    async with world.operator():
        await world.until("completed", lambda: mark_of_clerk(world) == mark)
        await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": {"connectionLimit": 3}}))
        await world.until("altered", lambda: world.sql.users["clerk"].connection_limit == 3)
    assert "UserAdopted" not in " ".join(world.event_messages())
