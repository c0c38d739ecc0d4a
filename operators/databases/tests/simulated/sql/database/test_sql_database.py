"""The controller of databases that are on a server of somebody's, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from database_support.fake_server.engine import InMemoryServer, InMemorySqlEngine
from database_support.unit.users_harness import FORCED, HOST, UsersHarness, harness_of
from steersman.api.events_v1 import Event
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import SqlFailed
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope, SecuredObject
from steersman_databases.engines.sql.sql_actions import DropDatabase, DropRole, FinishDatabase, SqlAction
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.server_resolver import ResolvedServer
from steersman_testing import virtual_runtime, virtual_time


@virtual_time
async def test_database_owner_and_secret_are_created() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.database(deletionPolicy="Delete")
        key = ObjectKey("default", "shop")

        def phase() -> str | None:
            found = world.server.read(Database, key)
            return found.status.phase if found is not None else None

        await world.until("Ready", lambda: phase() == "Ready")
        assert world.sql.databases["shop"].owner == "shop"
        assert world.sql.accepts_password("shop", world.entries("shop-app")["password"])
        world.sql.apply(DropDatabase("shop"))
        await world.until("healed", lambda: "shop" in world.sql.databases, 30)
        await world.client.delete(Database, key)
        await world.until("gone", lambda: world.server.read(Database, key) is None)
        assert not world.sql.databases and not world.sql.other_users and world.entries("shop-app") == {}


@virtual_time
async def test_missing_owner_privilege_is_reported() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.database(owner="boss")
        key = ObjectKey("default", "shop")
        await world.until(
            "it waits", lambda: "owner boss does not exist on the server" in str(world.server.read(Database, key))
        )
        await world.user("boss", login=False)
        await world.until("Ready", lambda: "shop" in world.sql.databases, 40)
        assert world.entries("shop-app") == {}


@virtual_time
async def test_unreachable_server_is_reported_with_advice() -> None:
    world = UsersHarness()
    world.sql.hangs = True
    async with world.operator():
        await world.database()
        key = ObjectKey("default", "shop")
        await world.until("told", lambda: "network policies" in str(world.server.read(Database, key)), 60)
        database = world.server.read(Database, key)
        assert database is not None and database.status.phase == "Pending"

        def warned() -> bool:
            events = [e for e in world.server.read_all(Event) if e.reason == "ServerUnreachable"]
            return [event.type for event in events] == ["Warning"]

        await world.until("an Event", warned, 5)


@virtual_time
async def test_retained_database_is_adopted_by_same_name() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.database()
        await world.until("made", lambda: "shop" in world.sql.databases)
        password = world.entries("shop-app")["password"]
        key = ObjectKey("default", "shop")
        await world.client.delete(Database, key)
        await world.until("gone", lambda: world.server.read(Database, key) is None)
        assert world.sql.accepts_password("shop", password)
        await world.database()
        await world.until("Ready", lambda: "Ready" in str(world.server.read(Database, key)))
        assert world.entries("shop-app")["password"] == password


@virtual_time
async def test_force_deleted_database_is_reported_with_secret() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.database(deletionPolicy="Delete")
        key = ObjectKey("default", "shop")
        await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
        world.sql.up = False
        await world.client.delete(Database, key)
        await world.until("it waits", lambda: world.database_reason("shop") == "Deleting")
        await world.client.patch(Database, key, MergePatch(FORCED))
        await world.until("by force", lambda: world.server.read(Database, key) is None, 5)
        told = "database shop and its owner were not dropped: databases.steersman.dev/force-delete is true"
        assert f"DataRetained: {told}; Secret shop-app gives access to them and is retained" in world.event_messages()
        held = world.entries("shop-app")
        world.sql.up = True
        assert world.sql.accepts_password("shop", held["password"])
        await world.database()
        await world.until("taken again", lambda: world.database_reason("shop") == "DatabaseReady")
        assert world.entries("shop-app") == held


@virtual_time
async def test_paused_database_is_not_changed() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.database("shop")
        await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
        paused = {"metadata": {"annotations": {"databases.steersman.dev/paused": "true"}}}
        await world.client.patch(Database, ObjectKey("default", "shop"), MergePatch(paused))
        await world.until("paused", lambda: world.database_reason("shop") == "Paused", 5)
        world.sql.databases["shop"] = replace(world.sql.databases["shop"], connection_limit=3)
        change = MergePatch({"spec": {"deletionPolicy": "Delete"}})
        await world.client.patch(Database, ObjectKey("default", "shop"), change)
        await world.runtime.clock.sleep(60)
        assert world.sql.databases["shop"].connection_limit == 3
        found = world.server.read(Database, ObjectKey("default", "shop"))
        assert found is not None and found.metadata.generation is not None
        assert found.status.observed_generation == found.metadata.generation - 1
        go_on = {"metadata": {"annotations": {"databases.steersman.dev/paused": None}}}
        await world.client.patch(Database, ObjectKey("default", "shop"), MergePatch(go_on))
        await world.until("healed", lambda: world.sql.databases["shop"].connection_limit == -1, 10)


@virtual_time
async def test_unmarked_database_is_kept_and_reported() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.database(deletionPolicy="Delete")
        await world.until("ready", lambda: world.database_reason("shop") == "DatabaseReady")
        world.sql.databases["shop"] = replace(world.sql.databases["shop"], mark="sales")
        await world.client.delete(Database, ObjectKey("default", "shop"))
        await world.until("gone", lambda: world.server.read(Database, ObjectKey("default", "shop")) is None)
        assert "shop" in world.sql.databases
        told = "database shop and its owner were not dropped: it has another ownership mark, or none"
        assert f"DataRetained: {told}; Secret shop-app gives access to them and is retained" in world.event_messages()
        assert "shop" in world.sql.users


@virtual_time
async def test_owner_needed_by_other_database_is_kept() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.database("orders", deletionPolicy="Delete")
        await world.until("made", lambda: world.database_reason("orders") == "DatabaseReady")
        await world.database("archive", owner="orders")
        await world.until("made", lambda: world.database_reason("archive") == "DatabaseReady")
        held = world.entries("orders-app")
        key = ObjectKey("default", "orders")
        await world.client.delete(Database, key)
        await world.until("gone", lambda: world.server.read(Database, key) is None)
        assert set(world.sql.databases) == {"archive"}
        assert world.sql.accepts_password("orders", held["password"]) and world.entries("orders-app") == held
        told = "user orders was not dropped: orders owns objects in database archive and it owns the database itself"
        assert f"DataRetained: {told}; Secret orders-app gives access to it and is retained" in world.event_messages()
        await world.database("orders", deletionPolicy="Delete")
        await world.until("taken again", lambda: world.database_reason("orders") == "DatabaseReady")
        assert world.entries("orders-app") == held


@virtual_time
async def test_owner_drop_considers_all_databases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What others ask of the same look takes nothing from what is seen."""
    world, look = UsersHarness(), ServerInspector.execute

    async def beside_others(
        self: ServerInspector, located: ResolvedServer, kind: str, key: ObjectKey, *rest: Any
    ) -> Any:
        glance = self.inspect(
            located, kind, ObjectKey("default", "other"), InspectionScope(without_contents=frozenset({"boss"}))
        )
        changes, _ = await asyncio.gather(look(self, located, kind, key, *rest), glance)
        return changes

    monkeypatch.setattr(ServerInspector, "execute", beside_others)
    async with world.operator():
        await world.user("boss", login=False)
        await world.ready("boss")
        for name in ("orders", "billing"):
            await world.database(name, deletionPolicy="Delete")
            await world.until("made", lambda name=name: world.database_reason(name) == "DatabaseReady")
        await world.database("archive", owner="boss")
        await world.until("made", lambda: world.database_reason("archive") == "DatabaseReady")
        world.sql.create(SecuredObject(SecurableKind.TABLE, "archive", "public", "till"), "orders")
        # One that nobody declares.
        world.sql.make_database("ledger")
        world.sql.databases["ledger"] = replace(world.sql.databases["ledger"], owner="billing")
        held = world.entries("billing-app")
        for name in ("orders", "billing"):
            await world.client.delete(Database, ObjectKey("default", name))
            await world.until(
                "gone", lambda name=name: world.server.read(Database, ObjectKey("default", name)) is None
            )
        assert "orders" not in world.sql.users and world.entries("orders-app") == {}
        assert world.sql.accepts_password("billing", held["password"]) and world.entries("billing-app") == held
        [told] = [note for note in world.event_messages() if "not dropped" in note]
        assert "user billing was not dropped: billing owns objects in database ledger" in told


@virtual_time
async def test_mysql_owner_named_elsewhere_is_kept() -> None:
    world = harness_of("mysql")
    async with world.operator():
        for name in ("orders", "billing", "till"):
            await world.database(name, engine="mysql", deletionPolicy="Delete")
            await world.until("made", lambda name=name: world.database_reason(name) == "DatabaseReady")
        await world.database("archive", engine="mysql", owner="orders")
        # Nobody's who says so from elsewhere, or of another server, or is going itself.
        await world.namespace("strangers")
        await world.database("taken", "strangers", engine="mysql", owner="billing")
        await world.database("ledger", owner="billing")
        await world.database("tills", engine="mysql", owner="till", deletionPolicy="Delete")
        for name in ("archive", "tills"):
            await world.until("made", lambda name=name: world.database_reason(name) == "DatabaseReady")
        held = world.entries("orders-app")
        for name in ("tills", "orders", "billing", "till"):
            await world.client.delete(Database, ObjectKey("default", name))
        for name in ("tills", "orders", "billing", "till"):
            await world.until(
                "gone", lambda name=name: world.server.read(Database, ObjectKey("default", name)) is None
            )
        assert "archive" in world.sql.databases and "orders" not in world.sql.databases
        assert world.sql.accepts_password("orders", held["password"]) and world.entries("orders-app") == held
        told = "user orders was not dropped: Database archive declares it as its owner"
        assert f"DataRetained: {told}; Secret orders-app gives access to it and is retained" in world.event_messages()
        assert not {"billing", "till"} & world.sql.users.keys()
        await world.runtime.clock.sleep(60)
        assert world.database_reason("archive") == "DatabaseReady"


@pytest.mark.requirement("design/absent-server")
@virtual_time
async def test_unreachable_server_backs_off() -> None:
    world = UsersHarness()
    names = [f"shop{number}" for number in range(10)]
    async with world.operator():
        for name in names:
            await world.database(name)
        for name in names:
            await world.until("made", lambda name=name: world.database_reason(name) == "DatabaseReady")
        world.sql.up = False
        for name in names:
            await world.until("told", lambda name=name: world.database_reason(name) == "ServerUnreachable", 30)
        await world.runtime.clock.sleep(120)
        world.server.requests.clear()
        await world.runtime.clock.sleep(3600)
        tries = [one for one in world.server.requests if one.path.endswith("/secrets/admin")]
        assert len(tries) < len(names) * 3600 / 20, "each looks for the password every half a minute"
        world.sql.up = True
        for name in names:
            await world.until("it is well", lambda name=name: world.database_reason(name) == "DatabaseReady", 45)


@pytest.mark.parametrize("seed", range(5))
@virtual_time
async def test_rejected_inspection_is_retried_in_30s(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    world = UsersHarness(virtual_runtime(seed=seed))
    look, refuses = InMemorySqlEngine.inspect, True

    async def survey(
        self: InMemorySqlEngine, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0
    ) -> Inspection:
        if refuses:
            raise SqlFailed("inspecting accounts", "42501", "SELECT command denied to user")
        return await look(self, sessions, scope, timeout)

    monkeypatch.setattr(InMemorySqlEngine, "inspect", survey)
    async with world.operator():
        await world.user()
        await world.database()
        await world.wait_failed("SELECT command denied to user")
        for _ in range(5):
            await world.runtime.clock.sleep(60 + 30 * world.runtime.random.random())
            refuses = False
            await world.ready(seconds=30)
            await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady", 30)
            refuses = True
            await world.wait_failed("SELECT command denied to user")


@virtual_time
async def test_mysql_declared_user_owns_by_privileges() -> None:
    """Nothing else is declared for it: what comes by owning is not too much, and goes with the ownership."""
    world = harness_of("mysql")

    def owners() -> set[str]:
        return {one.grantee for one in world.sql.databases["archive"].privileges if one.privilege == "DROP"}

    async with world.operator():
        for name in ("keeper", "heir"):
            await world.user(name, engine="mysql", login=False)
        await world.database("archive", engine="mysql", owner="keeper")
        await world.until("made", lambda: world.database_reason("archive") == "DatabaseReady")
        await world.runtime.clock.sleep(60)
        writes = world.sql.writes
        await world.runtime.clock.sleep(600)
        assert world.sql.writes == writes
        assert owners() == {"keeper"}
        assert not [note for note in world.event_messages() if note.startswith("GrantRevoked")]
        world.sql.revoke_on_database("archive")
        await world.until("it has them back", lambda: owners() == {"keeper"}, 30)
        handed_over = MergePatch({"spec": {"owner": "heir"}})
        await world.client.patch(Database, ObjectKey("default", "archive"), handed_over)
        await world.until("the other has all, and it none", lambda: owners() == {"heir"}, 30)
        # Whoever got its name next would get the database with it.
        await world.client.delete(DatabaseUser, ObjectKey("default", "heir"))
        await world.wait_failed("Database archive declares it as its owner. Set another owner there", "heir")
        handed_back = MergePatch({"spec": {"owner": "keeper"}})
        await world.client.patch(Database, ObjectKey("default", "archive"), handed_back)
        await world.until("it goes", lambda: world.read("heir") is None, 45)
        assert owners() == {"keeper"} and "heir" not in world.sql.users


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_owner_is_dropped_when_no_database_names_it(engine: str) -> None:
    """Whoever is none there goes at once, and an end is kept meanwhile."""
    world = UsersHarness()
    sql = InMemoryServer(engine, now=world.runtime.clock.now)
    world.servers[ServerEndpoint(HOST.host, sql.like.port)] = world.sql = sql
    end = (world.runtime.clock.now() + timedelta(seconds=120)).isoformat()

    async def delete(name: str) -> None:
        await world.client.delete(DatabaseUser, ObjectKey("default", name))

    async with world.operator():
        await world.user("keeper", engine=engine, validUntil=end)
        await world.user("heir", engine=engine, login=False)
        for name in ("keeper", "heir"):
            await world.ready(name)
        await world.database("archive", engine=engine, owner="keeper")
        await world.until("made", lambda: world.database_reason("archive") == "DatabaseReady")
        password = world.entries("keeper-user")["password"]
        await world.user("typo", engine=engine, user="keeper")
        await world.wait_failed("keeper", "typo")
        for name in ("typo", "keeper"):
            await delete(name)
        await world.until("it made nothing", lambda: world.read("typo") is None, 30)
        await world.wait_failed("Database archive declares it as its owner. Set another owner there", "keeper")
        assert sql.accepts_password("keeper", password)
        await world.runtime.clock.sleep(180)
        assert not sql.accepts_password("keeper", password) and "keeper" in sql.users
        handed_over = MergePatch({"spec": {"owner": "heir"}})
        await world.client.patch(Database, ObjectKey("default", "archive"), handed_over)
        await world.until("it goes", lambda: world.read("keeper") is None, 45)
        assert "keeper" not in sql.users


@virtual_time
async def test_owner_kept_after_all_is_unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was shut out before it could not be dropped, and has a database by now."""
    world = UsersHarness()
    apply = world.sql.apply

    def refusing(action: SqlAction) -> None:
        if isinstance(action, DropRole):
            raise SqlFailed("dropping user orders", "2BP01", "some objects depend on it")
        apply(action)

    monkeypatch.setattr(world.sql, "apply", refusing)
    async with world.operator():
        await world.database("orders", deletionPolicy="Delete")
        await world.until("made", lambda: world.database_reason("orders") == "DatabaseReady")
        held, key = world.entries("orders-app"), ObjectKey("default", "orders")
        await world.client.delete(Database, key)
        await world.until("it waits", lambda: world.database_reason("orders") == "Deleting")
        assert not world.sql.accepts_password("orders", held["password"])
        await world.database("archive", owner="orders")
        await world.until("gone", lambda: world.server.read(Database, key) is None)
        assert world.sql.accepts_password("orders", held["password"]) and world.entries("orders-app") == held


@virtual_time
async def test_incomplete_database_is_dropped_with_object() -> None:
    world = UsersHarness()
    apply = world.sql.apply

    def refusing(action: SqlAction) -> None:
        if isinstance(action, FinishDatabase):
            raise SqlFailed("creating database shop", "42501", 'must be able to SET ROLE "boss"')
        apply(action)

    pytest.MonkeyPatch().setattr(world.sql, "apply", refusing)
    async with world.operator():
        await world.user("boss", login=False)
        await world.ready("boss")
        await world.database(owner="boss", deletionPolicy="Delete")
        await world.until("refused", lambda: world.database_reason("shop") == "SqlFailed")
        assert not world.sql.databases["shop"].allows_connections
        await world.client.delete(Database, ObjectKey("default", "shop"))
        await world.until("gone", lambda: world.server.read(Database, ObjectKey("default", "shop")) is None)
        assert not world.sql.databases and not any("Retained" in note for note in world.event_messages())
