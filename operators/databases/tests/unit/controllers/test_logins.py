"""Passwords on servers that let nobody read verifiers, as RDS does: they are tried by a login, now and then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from database_support.contents_in_memory import ContentsInMemory
from database_support.users_world import UsersWorld
from steersman_databases.engines import Credentials
from steersman_databases.engines.errors import AccessRefused, SqlFailed
from steersman_databases.engines.port import Contents
from steersman_databases.engines.server import Server
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.survey import Scope, Survey
from steersman_testing import virtual_time


class Closed(ContentsInMemory):
    """Its verifiers are nobody's to read."""

    logins = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.kept_out: set[str] = set()
        """Users who may not come in, whatever their password."""
        self.shut_out: set[str] = set()
        """Users who may not come from here, as pg_hba.conf says it."""

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        survey = await super().survey(sessions, scope, timeout)
        users = {name: replace(state, verifier=None) for name, state in survey.users.items()}
        return replace(survey, users=users, verifiers_readable=False)

    async def opens(self, server: Server, credentials: Credentials, database: str, timeout: float = 10.0) -> bool:
        self.logins += 1
        if credentials.username in self.kept_out:
            raise SqlFailed("logging in", None, "is not permitted to log in")
        if credentials.username in self.shut_out:
            raise AccessRefused(server.endpoint, "no pg_hba.conf entry")
        return await super().opens(server, credentials, database, timeout)


class ClosedWorld(UsersWorld):
    """With such a server."""

    closed: Closed | None = None

    def contents(self, engine: str) -> Contents:
        if self.closed is None:
            self.closed = Closed(self.servers, engine)
        return self.closed


@virtual_time
async def test_passwords_are_set_and_their_drift_is_healed_where_verifiers_cannot_be_read() -> None:
    world = ClosedWorld()
    async with world.operator():
        await world.secret("given", {"password": "first"})
        await world.user(password={"name": "given", "key": "password"})
        await world.ready()
        assert world.sql.lets_in("clerk", "first")
        await world.secret("given", {"password": "second"})
        await world.until("set", lambda: world.sql.lets_in("clerk", "second"))
        world.sql.set_password("clerk", "drifted")
        await world.until("healed", lambda: world.sql.lets_in("clerk", "second"), 30)
        assert world.closed is not None
        logins, writes = world.closed.logins, world.sql.writes
        await world.runtime.clock.sleep(700)
        assert logins < world.closed.logins <= logins + 700 / 14, "it is tried at every third look"
        assert world.sql.writes == writes, "who may not come into the maintenance database has a right password"


@virtual_time
async def test_one_that_cannot_be_tried_keeps_no_other_from_being_healed() -> None:
    world = ClosedWorld()
    async with world.operator():
        for name in ("busy", "clerk"):
            await world.secret(f"{name}-given", {"password": "first"})
            await world.user(name, password={"name": f"{name}-given", "key": "password"})
            await world.ready(name)
        assert world.closed is not None
        world.closed.kept_out.add("busy")
        world.sql.set_password("clerk", "drifted")
        await world.until("healed", lambda: world.sql.lets_in("clerk", "first"), 30)
        await world.runtime.clock.sleep(330)
        assert [note for note in world.notes() if "reset the password of user busy" in note] == []


@virtual_time
async def test_one_that_is_shut_out_hides_no_others_password() -> None:
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
        await world.until("healed", lambda: world.sql.lets_in("clerk", "first"), 30)


@virtual_time
async def test_a_password_of_who_is_shut_out_from_here_is_set_once() -> None:
    """Whether it opens is seen by nobody then; that it was declared is."""
    world = ClosedWorld()
    async with world.operator():
        await world.secret("given", {"password": "first"})
        await world.user(password={"name": "given", "key": "password"})
        await world.ready()
        assert world.closed is not None
        world.closed.shut_out.add("clerk")
        await world.secret("given", {"password": "second"})
        await world.until("set", lambda: world.sql.lets_in("clerk", "second"), 30)
        await world.ready()
        writes = world.sql.writes
        await world.runtime.clock.sleep(700)
        assert world.sql.writes == writes
    world.sql.set_password("clerk", "drifted")
    async with world.operator():
        await world.until("set again by the next process", lambda: world.sql.lets_in("clerk", "second"), 60)
        writes = world.sql.writes
        await world.runtime.clock.sleep(700)
        assert world.sql.writes == writes


@virtual_time
async def test_the_former_password_never_opens_again_after_the_overlap() -> None:
    world = ClosedWorld()
    async with world.operator():
        await world.user(rotation={"every": "10m", "overlap": "2m"})
        await world.ready()
        former = world.entries()["password"]
        await world.until("rotated", lambda: world.entries()["username"] == "clerk~", 700)
        await world.until("over", lambda: "previous-password" not in world.entries(), 130)
        end = world.runtime.clock.monotonic() + 120
        while world.runtime.clock.monotonic() < end:
            assert not world.sql.lets_in("clerk", former)
            await world.runtime.clock.sleep(1)


@virtual_time
async def test_of_many_users_none_is_left_out() -> None:
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
            await world.until(f"{name} is healed", lambda name=name: world.sql.lets_in(name, "first"), 90)
        passed = world.runtime.clock.monotonic() - began
        assert world.closed.logins - logins <= 20 * (passed / 5.7 + 1) + 2 * len(names)
