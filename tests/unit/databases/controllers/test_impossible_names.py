"""A reference to what no object can be called, as `platform/rds`, is refused. One that an earlier version took is
told as one to what is not there, and its object can be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from earlier_definitions import unchecked
from steersman.client import MergePatch
from steersman.errors import Invalid
from steersman.meta import ObjectKey
from steersman.testing import run_virtual, virtual_time
from steersman_databases.api import Database, DatabaseUser
from users_world import CLERK, FORCED, HOST, UsersWorld

SHOP = ObjectKey("default", "shop")
ELSEWHERE = {"host": HOST.host, "administrator": {"name": "platform/admin"}}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"serverRef": ELSEWHERE}, "platform/admin"),
        ({"password": {"name": "shop/given", "key": "password"}}, "shop/given"),
        ({"secretName": "shop/clerk"}, "shop/clerk"),
        ({"serverRef": None, "engine": None, "clusterRef": {"name": "platform/main"}}, "platform/main"),
        ({"serverRef": {"service": {"name": "platform/db"}, "administrator": {"name": "admin"}}}, "platform/db"),
    ],
    ids=["administrator", "password", "secretName", "clusterRef", "service"],
)
def test_a_user_says_what_is_wrong(spec: dict[str, Any], says: str) -> None:
    async def story() -> None:
        world = UsersWorld()
        async with world.operator():
            with pytest.raises(Invalid, match="should match"):
                await world.user(**spec)
            with unchecked(world.server):
                await world.user(**spec)
            await world.failed(says)

    run_virtual(story())


@virtual_time
async def test_a_user_that_was_ready_says_so_too_and_how_it_can_be_deleted() -> None:
    world = UsersWorld()
    async with world.operator():
        await world.user()
        await world.ready()
        elsewhere = MergePatch({"spec": {"serverRef": ELSEWHERE}})
        with pytest.raises(Invalid, match="should match"):
            await world.client.patch(DatabaseUser, CLERK, elsewhere)
        with unchecked(world.server):
            await world.client.patch(DatabaseUser, CLERK, elsewhere)
        await world.failed("platform/admin")
        await world.client.delete(DatabaseUser, CLERK)
        await world.failed("force-delete")
        await world.client.patch(DatabaseUser, CLERK, MergePatch(FORCED))
        await world.until("gone", lambda: world.read() is None)


@virtual_time
async def test_a_database_says_what_is_wrong() -> None:
    world = UsersWorld()
    async with world.operator():
        with pytest.raises(Invalid, match="should match"):
            await world.database(serverRef=ELSEWHERE, deletionPolicy="Delete")
        with unchecked(world.server):
            await world.database(serverRef=ELSEWHERE, deletionPolicy="Delete")
        await world.until("told", lambda: "platform/admin" in world.database_message("shop"))
        await world.client.delete(Database, SHOP)
        await world.until("told", lambda: "force-delete" in world.database_message("shop"))
        await world.client.patch(Database, SHOP, MergePatch(FORCED))
        await world.until("gone", lambda: world.server.read(Database, SHOP) is None)
