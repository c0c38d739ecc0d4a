"""Passwords that are rotated: somebody is let in at every moment, and by the former one for the overlap alone."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from database_support.fake_server.engine import InMemorySqlEngine
from database_support.unit.users_harness import CLERK, UsersHarness, harness_of
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import DatabaseUser
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import AccessDenied
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_testing import run_virtual, virtual_time


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
def test_rotation_always_has_valid_credentials(engine: str) -> None:

    async def story() -> None:
        world = harness_of(engine)
        async with world.operator():
            world.sql.make_database("shop")
            privilege = "CONNECT" if engine == "postgresql" else "SELECT"
            grants = [{"database": "shop", "privileges": [privilege]}]
            await world.user(engine=engine, grants=grants, rotation={"every": "10m", "overlap": "2m"})
            await world.ready()
            seen: list[tuple[str, str]] = []
            clock = world.runtime.clock
            end = clock.monotonic() + 45 * 60
            while clock.monotonic() < end:
                entries = world.entries()
                current = (entries["username"], entries["password"])
                assert world.sql.accepts_password(*current), f"{current[0]} is not let in"
                if not seen or seen[-1] != current:
                    seen.append(current)
                await clock.sleep(1)
            assert len(seen) == 5
            assert len({password for _, password in seen}) == 5
            told = [
                note
                for note in world.event_messages()
                if note.startswith("Rotated: Secret clerk-user has the next password")
            ]
            assert len(told) == 4 and all("the previous one is valid until 20" in note for note in told), (
                world.event_messages()
            )
            expected = ["clerk", "clerk~"] if engine == "postgresql" else ["clerk", "clerk"]
            assert [name for name, _ in seen[:2]] == expected
            found = world.read()
            assert found is not None and found.status.last_rotation_time is not None

    run_virtual(story())


@virtual_time
async def test_rotation_beyond_calendar_end_never_happens() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user(rotation={"every": "87600000h", "overlap": "2m"})
        await world.ready()
        former = world.entries()
        await world.runtime.clock.sleep(3600)
        assert world.entries() == former
        await world.ready()


@virtual_time
async def test_previous_credential_expires_after_overlap() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user(rotation={"every": "10m", "overlap": "2m"})
        await world.ready()
        former = world.entries()["password"]
        await world.until("rotated", lambda: world.entries()["username"] == "clerk~", 700)
        await world.runtime.clock.sleep(110)
        assert world.sql.accepts_password("clerk", former)
        await world.until("over", lambda: not world.sql.accepts_password("clerk", former), 20)
        await world.until("and forgotten", lambda: "previous-password" not in world.entries(), 5)


UNREADABLE, FUTURE = b64encode(b"now").decode(), b64encode(b"9999-12-31T23:59:59Z").decode()


# Each pair with one engine, in turn.
@pytest.mark.parametrize(
    ("written", "goes_on", "engine"),
    [
        pytest.param(UNREADABLE, True, "postgresql", id="unreadable, goes on"),
        pytest.param(UNREADABLE, False, "mysql", id="unreadable, turned off"),
        pytest.param(FUTURE, True, "mysql", id="future, goes on"),
        pytest.param(FUTURE, False, "postgresql", id="future, turned off"),
        pytest.param(None, True, "postgresql", id="missing, goes on"),
        pytest.param(None, False, "mysql", id="missing, turned off"),
    ],
)
def test_overlap_without_known_end_is_over(engine: str, written: str | None, goes_on: bool) -> None:

    async def story() -> None:
        world = harness_of(engine)
        async with world.operator():
            await world.user(engine=engine, rotation={"every": "10m", "overlap": "2m"})
            await world.ready()
            former = world.entries()["password"]
            await world.until("rotated", lambda: world.entries()["password"] != former, 700)
            await world.runtime.clock.sleep(10)
            entries = world.entries()
            await world.client.patch(
                Secret, ObjectKey("default", "clerk-user"), MergePatch({"data": {"rotated-at": written}})
            )
            if not goes_on:
                await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": {"rotation": None}}))
            await world.until("the former is refused", lambda: not world.sql.accepts_password("clerk", former), 30)
            assert world.sql.accepts_password(entries["username"], entries["password"])
            if goes_on:
                await world.until(
                    "rotated", lambda: world.entries().get("previous-password") == entries["password"], 5
                )
            await world.until("forgotten", lambda: "previous-password" not in world.entries(), 150)
            present = world.entries()
            assert world.sql.accepts_password(present["username"], present["password"])
            await world.ready()

    run_virtual(story())


@virtual_time
async def test_second_login_is_kept_without_rotation_record() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user(rotation={"every": "10m", "overlap": "2m"})
        await world.ready()
        await world.until("by the second", lambda: world.entries()["username"] == "clerk~", 700)
        await world.until("forgotten", lambda: "previous-password" not in world.entries(), 150)
        await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": {"rotation": None}}))
        forgotten = MergePatch({"data": {"rotated-at": None}})
        await world.client.patch(Secret, ObjectKey("default", "clerk-user"), forgotten)
        await world.runtime.clock.sleep(60)
        entries = world.entries()
        assert world.sql.accepts_password(entries["username"], entries["password"]), entries["username"]
        await world.ready()


@virtual_time
async def test_cancelled_rotation_keeps_current_credential() -> None:
    world = UsersHarness()
    await world.namespace("default")
    # As a process leaves it that ended between choosing the next password and switching to it.
    async with world.operator():
        await world.user()
        await world.ready()
        former = world.entries()["password"]
        half = {"next-username": b64encode(b"clerk~").decode(), "next-password": b64encode(b"never-used").decode()}
        await world.client.patch(Secret, ObjectKey("default", "clerk-user"), MergePatch({"data": half}))
        await world.until("it is given up", lambda: "next-password" not in world.entries(), 30)
        await world.ready()
        assert (world.entries()["username"], world.entries()["password"]) == ("clerk", former)
        assert world.sql.accepts_password("clerk", former) and world.sql.other_users == {"clerk"}


@virtual_time
async def test_missing_table_does_not_block_rotation() -> None:
    world = UsersHarness()
    async with world.operator():
        world.sql.make_database("shop")
        missing = {"database": "shop", "schema": "public", "tables": ["orders"], "privileges": ["SELECT"]}
        connect = {"database": "shop", "privileges": ["CONNECT"]}
        await world.user(grants=[connect, missing], rotation={"every": "10m", "overlap": "2m"})
        await world.wait_failed("orders does not exist yet")
        await world.until("rotated", lambda: world.entries()["username"] == "clerk~", 700)
        assert world.sql.accepts_password("clerk~", world.entries()["password"])
        assert "orders does not exist yet" in world.message()


@virtual_time
async def test_rotation_is_in_status_despite_missing_table() -> None:
    world = UsersHarness()
    async with world.operator():
        world.sql.make_database("shop")
        missing = {"database": "shop", "schema": "public", "tables": ["orders"], "privileges": ["SELECT"]}
        await world.user(grants=[missing], rotation={"every": "10m", "overlap": "2m"})
        await world.wait_failed("orders does not exist yet")

        def told() -> tuple[str | None, datetime | None]:
            found = world.read()
            assert found is not None
            return found.status.secret_name, found.status.last_rotation_time

        assert told() == ("clerk-user", None)
        for name in ("clerk~", "clerk"):
            await world.until("rotated", lambda name=name: world.entries()["username"] == name, 700)
            await world.runtime.clock.sleep(5)
            assert told() == ("clerk-user", datetime.fromisoformat(world.entries()["rotated-at"]))


@virtual_time
async def test_secret_of_removed_login_leaves_status() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user()
        await world.ready()
        world.sql.make_database("shop")
        missing = {"database": "shop", "schema": "public", "tables": ["orders"], "privileges": ["SELECT"]}
        await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": {"login": False, "grants": [missing]}}))
        await world.wait_failed("orders does not exist yet")
        found = world.read()
        assert not world.entries() and found is not None
        assert found.status.secret_name is None


@virtual_time
async def test_expired_user_is_not_rotated() -> None:
    world = UsersHarness()
    async with world.operator():
        world.sql.make_database("shop")
        end = world.runtime.clock.now() + timedelta(minutes=15)
        grants = [{"database": "shop", "privileges": ["CONNECT"]}]
        rotation = {"every": "10m", "overlap": "2m"}
        await world.user(grants=grants, rotation=rotation, validUntil=end.isoformat())
        await world.ready()
        await world.until("rotated", lambda: world.entries()["username"] == "clerk~", 700)
        await world.runtime.clock.sleep(3600)
        ready = world.condition()
        assert ready is not None and ready.reason == "ProvisionSucceeded", world.message()
        assert world.entries()["username"] == "clerk~"
        later = (world.runtime.clock.now() + timedelta(days=1)).isoformat()
        key = ObjectKey("default", "clerk")
        await world.client.patch(DatabaseUser, key, MergePatch({"spec": {"validUntil": later}}))
        await world.until("rotated again", lambda: world.entries()["username"] == "clerk", 700)


@dataclass
class Rules:
    """What pg_hba.conf says, seen from where the operator is."""

    refused: set[str] = field(default_factory=set[str])
    """Who may not come from there."""
    apart: bool = False
    """Whether the two names of a user are not let in from the same places."""
    readable: bool = True
    """Whether verifiers are."""
    met: Callable[[str], None] = lambda _: None
    """Is told whom they refuse."""


class Guarded(InMemorySqlEngine):
    """Servers with such rules."""

    rules: Rules

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        survey = await super().inspect(sessions, scope, timeout)
        if self.rules.readable:
            return survey
        users = {name: replace(state, verifier=None) for name, state in survey.users.items()}
        return replace(survey, users=users, verifiers_readable=False)

    async def can_log_in(
        self, server: DatabaseServer, credentials: SqlCredentials, database: str, timeout: float = 10.0
    ) -> bool:
        if credentials.username in self.rules.refused:
            self.rules.met(credentials.username)
            words = f'FATAL: pg_hba.conf rejects connection for host "10.0.0.1", user "{credentials.username}"'
            raise AccessDenied(server.endpoint, words)
        return await super().can_log_in(server, credentials, database, timeout)

    async def same_hba_access(
        self, sessions: ServerSessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        return not self.rules.apart


class GuardedWorld(UsersHarness):
    """With one."""

    rules = Rules()

    def sql_engine(self, engine: str) -> SqlEngine:
        made = Guarded(self.servers, engine)
        made.rules = self.rules
        return made

    async def begin(self, rules: Rules) -> None:
        """A user who was let in, and rules that come after that."""
        self.rules = Rules()
        self.sql.make_database("shop")
        grants = [{"database": "shop", "privileges": ["CONNECT"]}]
        await self.user(database="shop", grants=grants, rotation={"every": "10m", "overlap": "2m"})
        await self.ready()
        self.rules.__dict__.update(rules.__dict__)

    async def rotated(self, name: str) -> None:
        """Waits until applications are told to come by this name, which opens."""
        await self.until(f"as {name}", lambda: self.entries()["username"] == name, 900)
        assert self.sql.accepts_password(name, self.entries()["password"])
        await self.ready(seconds=5)


@pytest.mark.parametrize(
    "rules",
    [Rules({"clerk"}, apart=True), Rules({"clerk", "clerk~"})],
    ids=["of the user's own name", "of everybody"],
)
def test_untestable_login_is_rotated_by_verifier(rules: Rules) -> None:
    """The server keeps it; applications come from elsewhere, where the rules let them in as before."""

    async def story() -> None:
        world = GuardedWorld()
        async with world.operator():
            await world.begin(rules)
            for name in ("clerk~", "clerk", "clerk~"):
                await world.rotated(name)

    run_virtual(story())


@virtual_time
async def test_unknown_hba_name_is_not_published() -> None:
    """As where a line lets in clerk, and the next one nobody."""
    world = GuardedWorld()
    async with world.operator():
        await world.begin(Rules({"clerk", "clerk~"}, apart=True))
        former = world.entries()["password"]
        await world.wait_failed("in postgresql.pgHba of a cluster or in pg_hba.conf of another server", seconds=700)
        assert 'rejects connection for host "10.0.0.1", user "clerk~"' in world.message()
        assert "network policies" not in world.message()
        await world.runtime.clock.sleep(3600)
        assert (world.entries()["username"], world.entries()["password"]) == ("clerk", former)
        assert world.sql.accepts_password("clerk", former)
        world.rules.apart = False
        await world.rotated("clerk~")


@virtual_time
async def test_unverifiable_password_is_not_published() -> None:
    world = GuardedWorld()
    async with world.operator():
        await world.begin(Rules({"clerk", "clerk~"}, readable=False))
        former = world.entries()["password"]
        await world.wait_failed("in postgresql.pgHba of a cluster or in pg_hba.conf of another server", seconds=700)
        await world.runtime.clock.sleep(3600)
        assert (world.entries()["username"], world.entries()["password"]) == ("clerk", former)
        world.rules.refused.clear()
        await world.rotated("clerk~")


@virtual_time
async def test_password_not_kept_by_server_is_not_published() -> None:
    world = GuardedWorld()
    async with world.operator():
        await world.begin(
            Rules({"clerk", "clerk~"}, met=lambda name: world.sql.set_password(name, "set by somebody else"))
        )
        former = world.entries()["password"]
        await world.wait_failed("pg_hba.conf rejects", seconds=700)
        await world.runtime.clock.sleep(600)
        assert (world.entries()["username"], world.entries()["password"]) == ("clerk", former)
        world.rules.met = lambda _: None
        await world.rotated("clerk~")
