"""Users and databases on a real PostgreSQL that is none of ours: what is declared there, and what is healed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.real_server import ADMINISTRATOR
from database_support.unit.users_harness import UsersHarness
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.registry import sql_engine_named
from steersman_databases.engines.sql.sql_engine import SqlEngine

SHOP = ObjectKey("default", "shop")


class RealWorld(UsersHarness):
    """The API server in memory, with a real server behind ``serverRef``."""

    def sql_engine(self, engine: str) -> SqlEngine:
        return sql_engine_named(engine)


def _world(server: RealPostgreSQLServer) -> tuple[RealWorld, dict[str, Any]]:
    reference = {
        "host": server.endpoint.host,
        "port": server.endpoint.port,
        "administrator": {"name": "root"},
        "tls": {"mode": "Require"},
    }
    return RealWorld(runtime=Runtime()), {"serverRef": reference}


async def _prepare(world: RealWorld) -> None:
    await world.secret("root", {"username": ADMINISTRATOR.username, "password": ADMINISTRATOR.password})


def _credentials(world: RealWorld, secret: str) -> SqlCredentials:
    entries = world.entries(secret)
    return SqlCredentials(entries["username"], entries["password"])


async def test_revoked_grant_is_restored(postgresql: RealPostgreSQLServer) -> None:
    """Scenario 11 of the research."""
    world, on = _world(postgresql)
    async with world.operator():
        await _prepare(world)
        await world.database("shop", **on, deletionPolicy="Delete", schemas=[{"name": "sales"}])
        await world.until("the database is there", lambda: "DatabaseReady" in str(world.server.read(Database, SHOP)))
        owner = _credentials(world, "shop-app")
        await postgresql.execute("CREATE TABLE sales.orders (id int)", credentials=owner, database="shop")
        grants = [
            {"database": "shop", "privileges": ["CONNECT"]},
            {"database": "shop", "schema": "sales", "privileges": ["USAGE"]},
            {"database": "shop", "schema": "sales", "tables": ["*"], "privileges": ["SELECT"], "future": True},
        ]
        await world.user("clerk", **on, grants=grants)
        await world.ready(seconds=20)
        clerk = _credentials(world, "clerk-user")
        await postgresql.execute("SELECT * FROM sales.orders", credentials=clerk, database="shop")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await postgresql.execute("INSERT INTO sales.orders VALUES (1)", credentials=clerk, database="shop")
        await postgresql.execute("CREATE TABLE sales.later (id int)", credentials=owner, database="shop")
        await postgresql.execute("SELECT * FROM sales.later", credentials=clerk, database="shop")

        await postgresql.execute("REVOKE SELECT ON sales.orders FROM clerk", database="shop")
        await postgresql.execute("GRANT DELETE ON sales.orders TO clerk", database="shop")
        held = (
            "SELECT privilege_type FROM information_schema.role_table_grants"
            " WHERE grantee = 'clerk' AND table_name = 'orders'"
        )
        deadline = world.runtime.clock.monotonic() + 30
        while await postgresql.execute(held, database="shop") != [("SELECT",)]:
            assert world.runtime.clock.monotonic() < deadline
            await world.runtime.clock.sleep(0.2)
        assert any(note.startswith("Grant") for note in world.event_messages())

        await world.client.delete(DatabaseUser, ObjectKey("default", "clerk"))
        await world.until("the user is gone", lambda: world.read() is None, 20)
        assert "clerk" not in await postgresql.users()
        await world.client.delete(Database, SHOP)
        await world.until("the database is gone", lambda: world.server.read(Database, SHOP) is None, 20)
        assert not {"shop"} & (await postgresql.users() | await postgresql.databases())


async def test_dropped_user_objects_are_reassigned(postgresql: RealPostgreSQLServer) -> None:
    world, on = _world(postgresql)
    async with world.operator():
        await _prepare(world)
        await world.database("shop", **on, deletionPolicy="Delete")
        await world.user(
            "maker",
            **on,
            grants=[
                {"database": "shop", "privileges": ["CONNECT"]},
                {"database": "shop", "schema": "public", "privileges": ["USAGE", "CREATE"]},
            ],
        )
        await world.ready("maker", seconds=20)
        maker = _credentials(world, "maker-user")
        await postgresql.execute("CREATE TABLE made (id int)", credentials=maker, database="shop")
        await world.client.delete(DatabaseUser, ObjectKey("default", "maker"))
        await world.until("the user is gone", lambda: world.read("maker") is None, 20)
        owned = await postgresql.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'made'", database="shop")
        assert owned == [("shop",)]
        await world.client.delete(Database, SHOP)
        await world.until("the database is gone", lambda: world.server.read(Database, SHOP) is None, 20)


async def test_dropped_user_code_gains_no_rights(postgresql: RealPostgreSQLServer) -> None:
    """A new owner has more rights than the user who wrote the function and the view."""
    world, on = _world(postgresql)
    connect = {"database": "shop", "privileges": ["CONNECT"]}
    usage = {"database": "shop", "schema": "public", "privileges": ["USAGE"]}
    async with world.operator():
        await _prepare(world)
        await world.database("shop", **on, deletionPolicy="Delete")
        await world.user("maker", **on, grants=[connect, {**usage, "privileges": ["USAGE", "CREATE"]}])
        await world.user("friend", **on, grants=[connect, usage])
        for name in ("maker", "friend"):
            await world.ready(name, seconds=20)
        owner, maker, friend = (_credentials(world, f"{name}") for name in ("shop-app", "maker-user", "friend-user"))
        await postgresql.execute(
            "CREATE TABLE public.wages AS SELECT 1000 AS wage", credentials=owner, database="shop"
        )
        for statement in (
            """CREATE FUNCTION public.read_wages() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
               AS $$ BEGIN RETURN (SELECT sum(wage) FROM public.wages); END $$""",
            "CREATE VIEW public.sums AS SELECT public.read_wages() AS wages",
            "GRANT EXECUTE ON FUNCTION public.read_wages() TO PUBLIC",
            "GRANT SELECT ON public.sums TO PUBLIC",
        ):
            await postgresql.execute(statement, credentials=maker, database="shop")
        await world.client.delete(DatabaseUser, ObjectKey("default", "maker"))
        await world.until("the user is gone", lambda: world.read("maker") is None, 20)
        options = "SELECT relowner::regrole::text, reloptions FROM pg_class WHERE relname = 'sums'"
        assert await postgresql.execute(options, database="shop") == [("shop", ["security_invoker=true"])]
        for statement in ("SELECT public.read_wages()", "SELECT * FROM public.sums"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="wages"):
                await postgresql.execute(statement, credentials=friend, database="shop")
        assert await postgresql.execute("SELECT * FROM public.sums", credentials=owner, database="shop") == [(1000,)]
        await world.client.delete(DatabaseUser, ObjectKey("default", "friend"))
        await world.until("the user is gone", lambda: world.read("friend") is None, 20)
        await world.client.delete(Database, SHOP)
        await world.until("the database is gone", lambda: world.server.read(Database, SHOP) is None, 20)


async def test_rotation_keeps_previous_password_during_overlap(postgresql: RealPostgreSQLServer) -> None:
    world, on = _world(postgresql)
    async with world.operator():
        await _prepare(world)
        await world.user("turner", **on, database="postgres", rotation={"every": "5m", "overlap": "1m"})
        await world.ready("turner", seconds=20)
        former = _credentials(world, "turner-user")
        # As if five minutes had gone.
        body = {"data": {"rotated-at": "MjAwMS0wMS0wMVQwMDowMDowMCswMDowMA=="}}
        await world.client.patch(Secret, ObjectKey("default", "turner-user"), MergePatch(body))
        await world.until("rotated", lambda: world.entries("turner-user")["username"] == "turner~", 20)
        present = _credentials(world, "turner-user")
        for credentials in (former, present):
            assert await postgresql.execute("SELECT current_user", credentials=credentials) == [("turner",)]
        until = "SELECT rolvaliduntil FROM pg_roles WHERE rolname = 'turner'"
        await world.ready("turner")
        assert (await postgresql.execute(until))[0][0] is not None, "it ends by itself"
        await world.client.delete(DatabaseUser, ObjectKey("default", "turner"))
        await world.until("the user is gone", lambda: world.read("turner") is None, 20)
        assert not {"turner", "turner~"} & await postgresql.users()
