"""The controller of users, in virtual time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from database_support.fake_server.engine import ADMINISTRATOR, InMemoryServer
from database_support.unit.users_harness import CLERK, FORCED, HOST, SERVER, UsersHarness
from steersman.api.core_v1 import Secret
from steersman.api.events_v1 import Event
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import DatabaseUser
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import SecuredObject, UserState
from steersman_databases.engines.sql.sql_actions import GrantPrivileges
from steersman_testing import virtual_time

GIVEN = {"name": "my-secret", "key": "my-key"}


@pytest.mark.requirement("user/no-root", "user/address", "user/success")
@virtual_time
async def test_user_is_created_then_nothing_is_written() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        entries = world.entries()
        assert world.sql.accepts_password("clerk", entries["password"])
        assert entries["uri"] == f"postgresql://clerk:{entries['password']}@db.example.com:5432/"
        found = world.condition()
        assert found is not None and found.message == "The user provisioning has succeeded."
        version, writes, looks = world.server.resource_version, world.sql.writes, world.sql.inspections
        await world.runtime.clock.sleep(600)
        assert (world.server.resource_version, world.sql.writes) == (version, writes)
        assert world.sql.inspections - looks < 110, "one look in six seconds"
        assert entries["password"] not in " ".join(world.event_messages())


@virtual_time
async def test_thirty_users_share_inspections() -> None:
    world = UsersHarness()
    async with world.operator():
        for number in range(30):
            await world.user(f"clerk{number}")
        for number in range(30):
            await world.ready(f"clerk{number}")
        version, looks = world.server.resource_version, world.sql.inspections
        await world.runtime.clock.sleep(600)
        assert world.server.resource_version == version
        assert 80 < world.sql.inspections - looks < 110, "one look in six seconds, for all of them"


@pytest.mark.requirement("user/secret-reference", "user/secret-read")
@virtual_time
async def test_custom_password_change_is_applied_at_once() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user(password=GIVEN)
        await world.wait_failed("Secret my-secret with the password does not exist")
        await world.secret("my-secret", {"other": "x"})
        await world.wait_failed("has no password in key my-key")
        await world.secret("my-secret", {"my-key": "first"})
        await world.ready(seconds=5)
        assert world.sql.accepts_password("clerk", "first")
        assert world.entries()["password"] == "first"
        await world.secret("my-secret", {"my-key": "second"})
        await world.until("it is in force", lambda: world.sql.accepts_password("clerk", "second"), 5)
        await world.until("applications have it", lambda: world.entries()["password"] == "second", 5)


@pytest.mark.requirement("overview/control-loop", "user/control-loop")
@virtual_time
async def test_drift_is_reverted_in_30s_and_reported() -> None:
    world = UsersHarness()
    async with world.operator():
        world.sql.make_database("shop", "orders")
        grants = [{"database": "shop", "schema": "public", "tables": ["orders"], "privileges": ["SELECT"]}]
        await world.user(grants=grants)
        await world.ready()
        password = world.entries()["password"]
        world.sql.drop_user("clerk")
        await world.until("the user is back", lambda: world.sql.accepts_password("clerk", password), 30)
        world.sql.revoke("clerk", "shop")
        await world.until(
            "the grant is back", lambda: world.sql.privileges_in("clerk", "shop") == {("SELECT", "orders")}, 30
        )
        assert "PrivilegesGranted: granted SELECT on table shop.public.orders to clerk" in world.event_messages()
        key = ObjectKey("default", "clerk-user")
        assert not [note for note in world.event_messages() if note.startswith("SecretRestored")]
        await world.client.patch(Secret, key, MergePatch({"data": {"host": None, "user": "eA=="}}))
        await world.until("the Secret is whole", lambda: world.entries().get("user") == "clerk", 30)
        assert world.entries()["host"] and world.entries()["password"] == password
        assert "SecretRestored: completed Secret clerk-user" in world.event_messages()
        await world.client.patch(Secret, key, MergePatch({"data": {"username": "eA=="}}))
        await world.until("it says who it is for", lambda: world.entries().get("username") == "clerk", 30)
        assert world.entries()["password"] != password
        assert world.sql.accepts_password("clerk", world.entries()["password"])
        assert "SecretRestored: completed Secret clerk-user, with a new password" in world.event_messages()
        await world.client.delete(Secret, key)
        await world.until("the Secret is back", lambda: world.entries(), 30)
        await world.until(
            "and in force", lambda: world.sql.accepts_password("clerk", world.entries()["password"]), 30
        )


@pytest.mark.requirement("design/status")
@virtual_time
async def test_status_edited_by_hand_is_rewritten() -> None:
    """Or that a former leader did, whose request was long on its way."""
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        late = MergePatch({"status": {"conditions": []}})
        await world.client.patch(DatabaseUser, CLERK, late, subresource="status")
        assert world.condition() is None
        await world.ready(seconds=30)


@virtual_time
async def test_relabelled_secret_is_still_maintained() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        secret = ObjectKey("default", "clerk-user")
        taken = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}
        await world.client.patch(Secret, secret, MergePatch(taken))

        def labels() -> object:
            found = world.server.read(Secret, secret)
            return found is not None and found.metadata.labels["app.kubernetes.io/managed-by"]

        await world.until("the labels are back", lambda: labels() == "steersman-databases", 30)
        await world.client.delete(Secret, secret)
        await world.until("the Secret is back", lambda: world.server.read(Secret, secret), 30)


@virtual_time
async def test_missing_reference_is_waited_for() -> None:
    world = UsersHarness()
    async with world.operator():
        world.sql.make_database("shop")
        grants = [{"database": "shop", "schema": "public", "tables": ["orders"], "privileges": ["SELECT"]}]
        await world.user(grants=grants)
        await world.wait_failed("orders does not exist yet")
        world.sql.make_table("shop", "orders")
        await world.ready(seconds=30)


@pytest.mark.requirement("user/retry", "user/status-errors")
@virtual_time
async def test_server_error_is_in_condition_and_retried() -> None:
    world = UsersHarness()
    async with world.operator():
        world.sql.rejects = "permission denied to create role"
        await world.user()
        await world.wait_failed("permission denied to create role")
        first, former = world.condition(), world.sql.rejections
        await world.runtime.clock.sleep(150)
        assert 6 <= world.sql.rejections - former <= 8, "after 2, 4, 8 and 16 seconds, and then each 30"
        again = world.condition()
        assert first is not None and again is not None
        assert again.last_update_time == first.last_update_time, "the same words are not told twice"
        world.sql.rejects = ""
        await world.ready(seconds=33)
        told = world.condition()
        assert told is not None and told.last_transition_time == told.last_update_time != first.last_update_time


@virtual_time
async def test_rejected_database_is_retried_like_users() -> None:
    world = UsersHarness()
    async with world.operator():
        world.sql.rejects = "permission denied to create database"
        await world.database()
        await world.until("told", lambda: world.database_reason("shop") == "SqlFailed")
        former = world.sql.rejections
        await world.runtime.clock.sleep(150)
        assert 6 <= world.sql.rejections - former <= 8, "after 2, 4, 8 and 16 seconds, and then each 30"
        told = world.database_message("shop")
        assert "permission denied to create database" in told and "Correct the cause" in told
        world.sql.rejects = ""
        await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady", 30)


@pytest.mark.requirement("design/absent-server")
@virtual_time
async def test_service_created_later_is_resolved() -> None:
    world = UsersHarness()
    world.servers[ServerEndpoint("late.default.svc", 5432)] = world.sql
    async with world.operator():
        await world.user(serverRef={"service": {"name": "late"}, "administrator": {"name": "admin"}})
        await world.wait_failed("Service late does not exist")
        await world.database(serverRef={"service": {"name": "late"}, "administrator": {"name": "admin"}})
        await world.until("told", lambda: world.database_reason("shop") == "ServerNotFound")
        await world.runtime.clock.sleep(300)
        await world.service("late")
        await world.ready(seconds=2)
        await world.until("found", lambda: world.database_reason("shop") == "DatabaseReady", 2)


def told_of_database(world: UsersHarness) -> Counter[str]:
    """How often each reason was told of the database shop."""
    told = Counter[str]()
    for event in world.server.read_all(Event):
        if (event.regarding.kind, event.regarding.name) == ("Database", "shop"):
            told[event.reason or ""] += 1 if event.series is None else event.series.count or 0
    return told


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_unreachable_server_costs_one_attempt_for_all(engine: str) -> None:
    world = UsersHarness()
    world.sql = InMemoryServer(engine, now=world.runtime.clock.now)
    at = ServerEndpoint(HOST.host, world.sql.like.port)
    world.servers[at] = world.sql
    async with world.operator():
        for number in range(30):
            await world.user(f"clerk{number}", engine=engine)
        for number in range(30):
            await world.ready(f"clerk{number}")
        await world.database(engine=engine)
        await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
        world.sql.up = False
        await world.wait_failed(f"cannot reach {at}", "clerk0")
        version = world.server.resource_version
        await world.until("told", lambda: told_of_database(world).get("ServerUnreachable"), 30)
        told, attempts = told_of_database(world), world.sql.attempts
        await world.runtime.clock.sleep(1800)
        assert 1800 / 40 < world.sql.attempts - attempts < 1800 / 20, "one in 20 to 30 seconds, for all of them"
        assert world.server.resource_version - version < 100, "nobody is told of the same thing all the time"
        assert world.database_reason("shop") == "ServerUnreachable"
        assert told_of_database(world) == told
        world.sql.up = True
        for number in range(30):
            await world.ready(f"clerk{number}", seconds=45)
        await world.until("it is well", lambda: world.database_reason("shop") == "DatabaseReady", 45)


@virtual_time
async def test_hanging_servers_delay_nobody_else() -> None:
    world = UsersHarness()
    async with world.operator():
        for number in range(99):
            engine, port = (("postgresql", 5432), ("mysql", 3306))[number % 2]
            world.servers[ServerEndpoint(f"hung{number}.example.com", port)] = InMemoryServer(engine, hangs=True)
            reference = {"host": f"hung{number}.example.com", "administrator": {"name": "admin"}}
            for member in range(3):
                await world.user(f"hung{number}-{member}", engine=engine, serverRef=reference)
        await world.user()
        await world.ready(seconds=20)


@virtual_time
async def test_wrong_administrator_password_is_reported() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.secret("admin", {"username": "admin", "password": "wrong"})
        await world.user()
        await world.wait_failed('the server rejected the administrator "admin"')
        await world.wait_failed("Put the current password of the administrator into its Secret")
        await world.secret("admin", {"username": "admin", "password": ADMINISTRATOR.password})
        await world.ready(seconds=5)


@virtual_time
async def test_changed_administrator_password_is_followed() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.database()
        await world.ready()
        await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
        world.sql.set_password("admin", "changed")
        await world.wait_failed('the server rejected the administrator "admin"', seconds=30)
        await world.until("told", lambda: world.database_reason("shop") == "AdministratorRejected", 30)
        assert world.sql.accepts_password("clerk", world.entries()["password"])
        await world.secret("admin", {"username": "admin", "password": "changed"})
        await world.ready(seconds=5)
        await world.until("well", lambda: world.database_reason("shop") == "DatabaseReady", 30)


@pytest.mark.requirement("design/status-updates")
@virtual_time
async def test_outage_is_reported_by_all_users() -> None:
    world = UsersHarness()
    names = [f"clerk{number}" for number in range(3)]
    async with world.operator():
        for name in names:
            await world.user(name)
        for name in names:
            await world.ready(name)
        looks = world.sql.inspections
        await world.until("the next look", lambda: world.sql.inspections > looks)
        # Before the one after it, somebody's reconcile is the first to meet the outage.
        world.sql.up = False
        key = ObjectKey("default", "clerk0")
        await world.client.patch(DatabaseUser, key, MergePatch({"spec": {"connectionLimit": 7}}))
        for name in names:
            await world.wait_failed("cannot reach", name, seconds=5)


@virtual_time
async def test_older_user_keeps_the_name() -> None:
    """Scenario 9 of the research: two objects claim one role."""
    world = UsersHarness()
    async with world.operator():
        await world.namespace("other")
        await world.user("first", user="clerk")
        await world.ready("first")
        await world.runtime.clock.sleep(2)
        await world.user("second", user="clerk")
        await world.user("spelled-out", user="clerk", serverRef={**SERVER["serverRef"], "port": 5432})
        await world.user("third", "other", user="clerk")
        await world.wait_failed("the older DatabaseUser first already declares user clerk on this server", "second")
        await world.wait_failed(
            "the older DatabaseUser first already declares user clerk on this server", "spelled-out"
        )
        # Nobody lets in to a host, so there a namespace keeps a name only by what is on the server.
        await world.wait_failed("user clerk on the server belongs to another object", "third", "other")
        password = world.entries("first-user")["password"]
        await world.client.delete(DatabaseUser, ObjectKey("default", "second"))
        await world.until("the loser goes", lambda: world.read("second") is None)
        assert world.sql.accepts_password("clerk", password), "and takes nothing with it"
        await world.client.delete(DatabaseUser, ObjectKey("default", "first"))
        await world.ready("third", "other", seconds=60)


@virtual_time
async def test_existing_role_needs_adopt() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        world.sql.users["old"] = UserState("old", verifier=world.sql.like.new_verifier("mine"))
        await world.user("old")
        await world.wait_failed("Set spec.adopt to true", "old")
        assert world.sql.accepts_password("old", "mine")
        key = ObjectKey("default", "old")
        await world.client.delete(DatabaseUser, key)
        await world.until("it goes", lambda: world.read("old") is None)
        assert world.sql.accepts_password("old", "mine"), "what bears no mark of ours is not dropped"


@pytest.mark.requirement("user/finalizer", "user/finalizer-order")
@virtual_time
async def test_deletion_drops_the_role_first() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        world.sql.up = False
        await world.client.delete(DatabaseUser, CLERK)
        await world.wait_failed("annotate it with databases.steersman.dev/force-delete=true")
        world.sql.up = True
        await world.until("gone", lambda: world.read() is None, 45)
        assert "clerk" not in world.sql.users
        assert "UserDropped: dropped user clerk" in world.event_messages()


@virtual_time
async def test_deletion_by_force_and_with_retain() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.user("kept", deletionPolicy="Retain")
        await world.ready()
        await world.ready("kept")
        world.sql.up = False
        for name in ("clerk", "kept"):
            await world.client.delete(DatabaseUser, ObjectKey("default", name))
        await world.until("the retained one goes", lambda: world.read("kept") is None)
        assert world.read() is not None
        await world.client.patch(DatabaseUser, CLERK, MergePatch(FORCED))
        await world.until("by force", lambda: world.read() is None, 5)
        assert world.sql.other_users == {"clerk", "kept"}
        left = {note for note in world.event_messages() if note.startswith("UserRetained")}
        forced, place = "databases.steersman.dev/force-delete is true", "on db.example.com:5432"
        assert left == {
            f"UserRetained: user kept was not dropped {place}: deletionPolicy is Retain",
            f"UserRetained: user clerk was not dropped {place}: {forced}",
        }


@pytest.mark.requirement("user/target-label")
@virtual_time
async def test_target_label_filters_users_case_insensitively() -> None:
    world = UsersHarness(target="Orders")
    async with world.operator():
        await world.user("mine", labels={"target": "orders"})
        await world.user("theirs", labels={"target": "stock"})
        await world.user("nobodys")
        await world.ready("mine")
        await world.runtime.clock.sleep(60)
        assert world.sql.other_users == {"mine"}
        assert all(world.read(n) and not world.read(n).metadata.finalizers for n in ("theirs", "nobodys"))  # type: ignore[union-attr]
        moved = MergePatch({"metadata": {"labels": {"target": "ORDERS"}}})
        await world.client.patch(DatabaseUser, ObjectKey("default", "theirs"), moved)
        await world.ready("theirs", seconds=5)
        away = MergePatch({"metadata": {"labels": {"target": "stock"}}})
        await world.client.patch(DatabaseUser, ObjectKey("default", "mine"), away)
        world.sql.drop_user("mine")
        await world.runtime.clock.sleep(60)
        assert "mine" not in world.sql.users, "another operator's now"


@virtual_time
async def test_foreign_namespace_must_be_allowed() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.namespace("guest")
        reference = {"host": HOST.host, "administrator": {"name": "admin", "namespace": "default"}}
        await world.user("clerk", "guest", serverRef=reference)
        await world.wait_failed("Secret default/admin does not exist, or does not permit", "clerk", "guest")
        data = {"username": "admin", "password": "s3cret"}
        await world.secret("admin", data, annotations={"databases.steersman.dev/allowed-namespaces": "a, guest"})
        await world.ready("clerk", "guest", seconds=5)


@virtual_time
async def test_paused_user_is_not_changed_until_resumed() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        pause = {"metadata": {"annotations": {"databases.steersman.dev/paused": "true"}}}
        await world.client.patch(DatabaseUser, CLERK, MergePatch(pause))
        await world.runtime.clock.sleep(1)
        world.sql.drop_user("clerk")
        await world.runtime.clock.sleep(120)
        assert "clerk" not in world.sql.users
        found = world.read()
        assert found is not None
        assert {c.type: c.status for c in found.status.conditions} == {"Ready": "True", "Paused": "True"}
        go_on = {"metadata": {"annotations": {"databases.steersman.dev/paused": None}}}
        await world.client.patch(DatabaseUser, CLERK, MergePatch(go_on))
        await world.until("healed", lambda: "clerk" in world.sql.users, 5)
        await world.until("and no more paused", lambda: "Paused" not in str(world.read()), 5)


@virtual_time
async def test_expired_user_is_locked_despite_errors() -> None:
    world = UsersHarness()
    world.sql = InMemoryServer("mysql", now=world.runtime.clock.now)
    world.servers[ServerEndpoint(HOST.host, 3306)] = world.sql
    async with world.operator():
        await world.secret("my-secret", {"my-key": "s3cret"})
        end = world.runtime.clock.now() + timedelta(minutes=10)
        grants = [{"database": "*", "privileges": ["PROCESS"]}]
        await world.user(engine="mysql", password=GIVEN, validUntil=end.isoformat(), grants=grants)
        await world.ready()
        await world.client.delete(Secret, ObjectKey("default", "my-secret"))
        await world.until("told", lambda: "Secret my-secret with the password does not exist" in world.message(), 60)
        assert world.sql.accepts_password("clerk", "s3cret")
        await world.until("ended", lambda: not world.sql.accepts_password("clerk", "s3cret"), 660)
        assert world.runtime.clock.now() >= end
        assert {one.privilege for one in world.sql.on_server} == {"PROCESS"}
        assert "Secret my-secret with the password does not exist" in world.message()
        world.sql.spoil_user("clerk", locked=False)
        await world.until("locked again", lambda: world.sql.users["clerk"].locked, 60)


@virtual_time
async def test_role_without_login_has_no_secret() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user("reporting", login=False)
        await world.ready("reporting")
        assert world.entries("reporting-user") == {}
        assert not world.sql.users["reporting"].login


@virtual_time
async def test_drift_between_two_inspections_is_found() -> None:
    """The second look finds what the first found, and it was healed in between."""
    world = UsersHarness()
    async with world.operator():
        world.sql.make_database("shop", "orders")
        grants = [{"database": "shop", "schema": "public", "tables": ["orders"], "privileges": ["SELECT"]}]
        await world.user(grants=grants)
        await world.ready()
        more = SecuredObject(SecurableKind.TABLE, "shop", "public", "orders")
        undeclared = GrantPrivileges("clerk", more, ("DELETE",), world.sql.administrator)

        def healed() -> bool:
            return world.sql.privileges_in("clerk", "shop") == {("SELECT", "orders")}

        for _ in range(4):
            world.sql.apply(undeclared)
            assert not healed()
            await world.until("it is revoked", healed, 30)


@virtual_time
async def test_unmarked_role_is_kept_and_reported() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        world.sql.spoil_user("clerk", mark="sales")
        await world.client.delete(DatabaseUser, CLERK)
        await world.until("gone", lambda: world.read() is None, 45)
        assert "clerk" in world.sql.users
        told = "user clerk was not dropped on db.example.com:5432: it has another ownership mark, or none"
        assert f"UserRetained: {told}" in world.event_messages()
