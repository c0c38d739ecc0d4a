"""Passwords on servers that let nobody read verifiers, as RDS does: they are tried by a login, now and then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from database_support.fake_server.engine import InMemorySqlEngine
from database_support.unit.users_harness import UsersHarness
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import AccessDenied, SqlFailed
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_testing import virtual_time


class Closed(InMemorySqlEngine):
    """Its verifiers are nobody's to read."""

    logins = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.kept_out: set[str] = set()
        """Users who may not come in, whatever their password."""
        self.shut_out: set[str] = set()
        """Users who may not come from here, as pg_hba.conf says it."""

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        survey = await super().inspect(sessions, scope, timeout)
        users = {name: replace(state, verifier=None) for name, state in survey.users.items()}
        return replace(survey, users=users, verifiers_readable=False)

    async def can_log_in(
        self, server: DatabaseServer, credentials: SqlCredentials, database: str, timeout: float = 10.0
    ) -> bool:
        self.logins += 1
        if credentials.username in self.kept_out:
            raise SqlFailed("logging in", None, "is not permitted to log in")
        if credentials.username in self.shut_out:
            raise AccessDenied(server.endpoint, "no pg_hba.conf entry")
        return await super().can_log_in(server, credentials, database, timeout)


class ClosedWorld(UsersHarness):
    """With such a server."""

    closed: Closed | None = None

    def sql_engine(self, engine: str) -> SqlEngine:
        if self.closed is None:
            self.closed = Closed(self.servers, engine)
        return self.closed


@virtual_time
async def test_passwords_are_restored_by_login_checks() -> None:
    world = ClosedWorld()
    async with world.operator():
        await world.secret("given", {"password": "first"})
        await world.user(password={"name": "given", "key": "password"})
        await world.ready()
        assert world.sql.accepts_password("clerk", "first")
        await world.secret("given", {"password": "second"})
        await world.until("set", lambda: world.sql.accepts_password("clerk", "second"))
        world.sql.set_password("clerk", "drifted")
        await world.until("healed", lambda: world.sql.accepts_password("clerk", "second"), 30)
        assert world.closed is not None
        logins, writes = world.closed.logins, world.sql.writes
        await world.runtime.clock.sleep(700)
        assert logins < world.closed.logins <= logins + 700 / 14, "it is tried at every third look"
        assert world.sql.writes == writes, "who may not come into the maintenance database has a right password"


@virtual_time
async def test_failed_login_check_does_not_block_others() -> None:
    world = ClosedWorld()
    async with world.operator():
        for name in ("busy", "clerk"):
            await world.secret(f"{name}-given", {"password": "first"})
            await world.user(name, password={"name": f"{name}-given", "key": "password"})
            await world.ready(name)
        assert world.closed is not None
        world.closed.kept_out.add("busy")
        world.sql.set_password("clerk", "drifted")
        await world.until("healed", lambda: world.sql.accepts_password("clerk", "first"), 30)
        await world.runtime.clock.sleep(330)
        assert [note for note in world.event_messages() if "reset the password of user busy" in note] == []


@virtual_time
async def test_locked_out_user_hides_no_other_password() -> None:
    world = ClosedWorld()
    async with world.operator():
        for name in ("away", "clerk"):
            await world.secret(f"{name}-given", {"password": "first"})
            await world.user(name, password={"name": f"{name}-given", "key": "password"})
            await world.ready(name)
        assert world.closed is not None
        world.closed.shut_out.add("away")
        await world.runtime.clock.sleep(330)  # both are to be tried again
        world.sql.set_password("clerk", "drifted")
        await world.until("healed", lambda: world.sql.accepts_password("clerk", "first"), 30)


@virtual_time
async def test_password_rejected_by_hba_is_set_once() -> None:
    """Whether it opens is seen by nobody then; that it was declared is."""
    world = ClosedWorld()
    async with world.operator():
        await world.secret("given", {"password": "first"})
        await world.user(password={"name": "given", "key": "password"})
        await world.ready()
        assert world.closed is not None
        world.closed.shut_out.add("clerk")
        await world.secret("given", {"password": "second"})
        await world.until("set", lambda: world.sql.accepts_password("clerk", "second"), 30)
        await world.ready()
        writes = world.sql.writes
        await world.runtime.clock.sleep(700)
        assert world.sql.writes == writes
    world.sql.set_password("clerk", "drifted")
    async with world.operator():
        await world.until("set again by the next process", lambda: world.sql.accepts_password("clerk", "second"), 60)
        writes = world.sql.writes
        await world.runtime.clock.sleep(700)
        assert world.sql.writes == writes


@virtual_time
async def test_previous_password_is_rejected_after_overlap() -> None:
    world = ClosedWorld()
    async with world.operator():
        await world.user(rotation={"every": "10m", "overlap": "2m"})
        await world.ready()
        former = world.entries()["password"]
        await world.until("rotated", lambda: world.entries()["username"] == "clerk~", 700)
        await world.until("over", lambda: "previous-password" not in world.entries(), 130)
        end = world.runtime.clock.monotonic() + 120
        while world.runtime.clock.monotonic() < end:
            assert not world.sql.accepts_password("clerk", former)
            await world.runtime.clock.sleep(1)


@virtual_time
async def test_login_checks_cover_all_users() -> None:
    """So many that they cannot all be tried within half a minute."""
    world = ClosedWorld()
    names = [f"clerk{number:03}" for number in range(150)]
    async with world.operator():
        await world.secret("given", {"password": "first"})
        for name in names:
            await world.user(name, password={"name": "given", "key": "password"})
        for name in names:
            await world.ready(name, seconds=300)
        for name in names:
            world.sql.set_password(name, "drifted")
        assert world.closed is not None
        logins, began = world.closed.logins, world.runtime.clock.monotonic()
        for name in names:
            await world.until(f"{name} is healed", lambda name=name: world.sql.accepts_password(name, "first"), 90)
        passed = world.runtime.clock.monotonic() - began
        assert world.closed.logins - logins <= 20 * (passed / 5.7 + 1) + 2 * len(names)
