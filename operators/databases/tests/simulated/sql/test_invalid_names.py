"""A reference to what no object can be called, as `platform/rds`, is refused. One that an earlier version took is
told as one to what is not there, and its object can be deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from database_support.fake_server.engine import ADMINISTRATOR, InMemoryServer, InMemorySqlEngine
from database_support.unit.older_crds import without_validation
from database_support.unit.users_harness import CLERK, FORCED, HOST, SERVER, UsersHarness
from steersman.client import MergePatch
from steersman.errors import Invalid
from steersman.meta import ObjectKey
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import SqlFailed
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_testing import run_virtual, virtual_time

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
def test_user_with_invalid_name_is_reported(spec: dict[str, Any], says: str) -> None:
    async def story() -> None:
        world = UsersHarness()
        async with world.operator():
            with pytest.raises(Invalid, match="should match"):
                await world.user(**spec)
            with without_validation(world.server):
                await world.user(**spec)
            await world.wait_failed(says)

    run_virtual(story())


@virtual_time
async def test_ready_user_with_invalid_name_reports_how_to_delete() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        elsewhere = MergePatch({"spec": {"serverRef": ELSEWHERE}})
        with pytest.raises(Invalid, match="should match"):
            await world.client.patch(DatabaseUser, CLERK, elsewhere)
        with without_validation(world.server):
            await world.client.patch(DatabaseUser, CLERK, elsewhere)
        await world.wait_failed("platform/admin")
        await world.client.delete(DatabaseUser, CLERK)
        await world.wait_failed("force-delete")
        await world.client.patch(DatabaseUser, CLERK, MergePatch(FORCED))
        await world.until("gone", lambda: world.read() is None)


@virtual_time
async def test_database_with_invalid_name_is_reported() -> None:
    world = UsersHarness()
    async with world.operator():
        with pytest.raises(Invalid, match="should match"):
            await world.database(serverRef=ELSEWHERE, deletionPolicy="Delete")
        with without_validation(world.server):
            await world.database(serverRef=ELSEWHERE, deletionPolicy="Delete")
        await world.until("told", lambda: "platform/admin" in world.database_message("shop"))
        await world.client.delete(Database, SHOP)
        await world.until("told", lambda: "force-delete" in world.database_message("shop"))
        await world.client.patch(Database, SHOP, MergePatch(FORCED))
        await world.until("gone", lambda: world.server.read(Database, SHOP) is None)


class Strict(InMemorySqlEngine):
    """Servers that cannot look for what is no name, in their own words."""

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        for name in sorted({*scope.all_users, *scope.databases, *scope.dropped_databases}):
            if "\0" in name:
                raise SqlFailed("looking", None, "PostgreSQL text fields cannot contain NUL (0x00) bytes")
            if self.name == "mysql" and max(name) > "\uffff":
                raise SqlFailed("looking", None, "Illegal mix of collations")
        return await super().inspect(sessions, scope, timeout)


class StrictWorld(UsersHarness):
    """With such servers."""

    def __init__(self, engine: str) -> None:
        super().__init__()
        self.engine = engine
        self.of: dict[str, Any] = {"engine": engine}
        self.wrong = {"postgresql": "\0", "mysql": "😀"}[engine]
        self.told = {"postgresql": "U+0000", "mysql": "U+1F600"}[engine]
        port = {"postgresql": 5432, "mysql": 3306}[engine]
        self.sql = self.servers[ServerEndpoint(HOST.host, port)] = InMemoryServer(engine, now=self.runtime.clock.now)

    def sql_engine(self, engine: str) -> SqlEngine:
        return Strict(self.servers, engine)


ENGINES = ["mysql", "postgresql"]


@pytest.mark.parametrize("engine", ENGINES)
def test_user_with_invalid_name_deletes_without_force(engine: str) -> None:
    async def story() -> None:
        world = StrictWorld(engine)
        async with world.operator():
            with without_validation(world.server):
                await world.user(**world.of, user=f"clerk{world.wrong}")
            await world.wait_failed(world.told)
            await world.client.delete(DatabaseUser, CLERK)
            await world.until("gone", lambda: world.read() is None, 5)
            assert not [note for note in world.event_messages() if note.startswith("UserRetained")]

    run_virtual(story())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("field", ["databaseName", "username"])
def test_database_with_invalid_name_deletes_without_force(engine: str, field: str) -> None:
    async def story() -> None:
        world = StrictWorld(engine)
        async with world.operator():
            with without_validation(world.server):
                named = {field: f"shop{world.wrong}"}
                await world.database(**world.of, **named, deletionPolicy="Delete")
            await world.until("told", lambda: world.database_reason("shop") == "InvalidName")
            assert world.told in world.database_message("shop")
            await world.client.delete(Database, SHOP)
            await world.until("gone", lambda: world.server.read(Database, SHOP) is None, 5)
            assert world.entries("shop-app") == {} and not world.sql.other_users and not world.sql.databases
            assert not [note for note in world.event_messages() if note.startswith("DataRetained")]

    run_virtual(story())


@pytest.mark.parametrize("engine", ENGINES)
def test_invalid_name_is_reported_before_name_conflict(engine: str) -> None:
    """Whose of them it is would be looked for first."""

    async def story() -> None:
        world = StrictWorld(engine)
        async with world.operator():
            with without_validation(world.server):
                await world.user("first", **world.of, user=f"clerk{world.wrong}")
                await world.user("second", **world.of, user=f"clerk{world.wrong}")
            for name in ("first", "second"):
                await world.until("told", lambda name=name: world.condition(name) is not None)
                assert "looking" not in world.message(name)

    run_virtual(story())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("field", ["database", "reassignTo"])
def test_invalid_referenced_name_is_reported_and_recovers(engine: str, field: str) -> None:
    async def story() -> None:
        world = StrictWorld(engine)
        async with world.operator():
            await world.user(**world.of)
            await world.ready()
            wrong = MergePatch({"spec": {field: f"boss{world.wrong}"}})
            with without_validation(world.server):
                await world.client.patch(DatabaseUser, CLERK, wrong)
            await world.wait_failed(f"{field} ")
            assert world.told in world.message()
            await world.client.delete(DatabaseUser, CLERK)
            if field == "reassignTo" and engine == "postgresql":
                await world.wait_failed("force-delete")
                # Nobody logs in as who is deleted, whoever is to be its heir.
                assert world.told in world.message() and not world.sql.users["clerk"].login
                await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": {field: None}}))
            await world.until("gone", lambda: world.read() is None)
            assert not world.sql.other_users

    run_virtual(story())


@pytest.mark.parametrize("engine", ENGINES)
def test_user_never_created_needs_no_new_owner(engine: str) -> None:
    async def story() -> None:
        world = StrictWorld(engine)
        async with world.operator():
            with without_validation(world.server):
                await world.user(**world.of, reassignTo=f"boss{world.wrong}")
            await world.wait_failed("reassignTo")
            assert "clerk" not in world.sql.users
            await world.client.delete(DatabaseUser, CLERK)
            await world.until("gone", lambda: world.read() is None, 5)

    run_virtual(story())


@virtual_time
async def test_maintenance_database_name_is_validated() -> None:
    world = StrictWorld("postgresql")
    reference: dict[str, Any] = {**SERVER["serverRef"], "maintenanceDatabase": "defaultdb\0"}
    async with world.operator():
        with without_validation(world.server):
            await world.user(serverRef=reference)
            await world.database(serverRef=reference)
        await world.wait_failed("serverRef.maintenanceDatabase")
        await world.until("told", lambda: world.database_reason("shop") == "InvalidName")


@virtual_time
async def test_expired_user_is_locked_despite_invalid_names() -> None:
    world = StrictWorld("mysql")
    async with world.operator():
        await world.user(**world.of)
        await world.ready()
        past = (world.runtime.clock.now() - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        await world.client.patch(
            DatabaseUser, CLERK, MergePatch({"spec": {"reassignTo": "boss😀", "validUntil": past}})
        )
        await world.wait_failed("reassignTo")
        assert world.sql.users["clerk"].locked


@pytest.mark.parametrize("key", ["password", "username"])
@virtual_time
async def test_administrator_name_is_validated(key: str) -> None:
    """A driver would read no further than to the NUL, and so log in as somebody else."""
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        entries = {"username": ADMINISTRATOR.username, "password": ADMINISTRATOR.password}
        await world.secret("admin", {**entries, key: entries[key] + "\0"})
        await world.wait_failed(f"Secret admin has a NUL character in its key {key}")
        await world.secret("admin", {**entries, key: "x" * 1025})
        await world.wait_failed(f"Secret admin has more than 1024 bytes in its key {key}")
        await world.secret("admin", entries)
        await world.ready()
