"""The looks at servers that all objects on them share."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from contents_in_memory import ADMINISTRATOR, ContentsInMemory, ServerInMemory
from steersman.controller import Request
from steersman.meta import ObjectKey
from steersman.testing import virtual_runtime, virtual_time
from steersman_databases.controllers.servers import Located
from steersman_databases.controllers.surveys import Surveys
from steersman_databases.engines.desired import Claim, DesiredUser
from steersman_databases.engines.errors import AdministratorRejected, EngineError, ServerUnreachable
from steersman_databases.engines.model import ModelSessions
from steersman_databases.engines.plan import Change, Plan
from steersman_databases.engines.server import Login, Server, Verification
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.survey import Scope, Survey
from users_world import HOST

KIND = "DatabaseUser"


class Closing(ModelSessions):
    """Sessions that remember that they were closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


class Contents(ContentsInMemory):
    """A server that can be made to fail while it is looked at, or worked on."""

    def __init__(self) -> None:
        self.held = ServerInMemory()
        self.broken = False
        self.lost_at_work = False
        self.takes_seconds = 0.0
        super().__init__({HOST: self.held}, "postgresql")

    def connect(self, server: Server) -> Sessions:
        return Closing(server)

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        if self.broken:
            raise ZeroDivisionError("nobody thought of that")
        return await super().survey(sessions, scope, timeout)

    async def carry_out(self, sessions: Sessions, plan: Plan, timeout: float = 15.0) -> tuple[Change, ...]:
        await asyncio.sleep(self.takes_seconds)
        if isinstance(sessions, Closing) and sessions.closed:
            raise ServerUnreachable(HOST, "the connection was closed")
        changes = await super().carry_out(sessions, plan, timeout)
        if self.lost_at_work:
            error = ServerUnreachable(HOST, "it went")
            error.changes = changes
            raise error
        return changes


def located(contents: Contents, password: str = ADMINISTRATOR.password) -> Located:
    login = Login(ADMINISTRATOR.username, password)
    return Located(Server("postgresql", HOST, login, Verification()), contents, None)


async def settle(surveys: Surveys, where: Located, name: str) -> tuple[Change, ...]:
    desired = DesiredUser(name, "s3cret", claim=Claim("here", KIND, "default", name))
    return await surveys.settle(where, KIND, ObjectKey("default", name), (desired,))


def nowhere(request: Request, *, priority: int = 0) -> None:
    """A queue that is not used."""


@virtual_time
async def test_who_does_not_know_the_password_never_works_with_the_sessions_of_who_does() -> None:
    surveys, contents = Surveys(virtual_runtime()), Contents()
    for number in range(3):
        outcomes = await asyncio.gather(
            settle(surveys, located(contents, "guessed"), f"mallory{number}"),
            settle(surveys, located(contents), f"clerk{number}"),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], AdministratorRejected)
        assert isinstance(outcomes[1], tuple), "and is nobody's trouble"
    assert contents.held.others == {"clerk0", "clerk1", "clerk2"}


@virtual_time
async def test_what_was_changed_for_one_is_told_to_that_one_alone() -> None:
    surveys, contents = Surveys(virtual_runtime()), Contents()
    contents.lost_at_work = True
    with pytest.raises(ServerUnreachable) as first:
        await settle(surveys, located(contents), "clerk")
    assert [change.reason for change in first.value.changes] == ["UserCreated"]
    with pytest.raises(EngineError) as second:
        await settle(surveys, located(contents), "waiter")
    assert second.value.changes == ()


@virtual_time
async def test_an_error_that_nobody_thought_of_reaches_whoever_waits() -> None:
    surveys, contents = Surveys(virtual_runtime()), Contents()
    contents.broken = True
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(60):
                await settle(surveys, located(contents), "clerk")
    contents.broken = False
    assert await settle(surveys, located(contents), "clerk")


@virtual_time
async def test_a_server_is_forgotten_with_the_last_who_wants_something_there() -> None:
    runtime = virtual_runtime()
    surveys, contents = Surveys(runtime), Contents()
    former = located(contents)
    await settle(surveys, former, "clerk")
    now = replace(former, server=replace(former.server, verification=Verification(authorities=b"others")))
    await settle(surveys, now, "clerk")
    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    await runtime.clock.sleep(60)
    looks = contents.held.looks
    await runtime.clock.sleep(60)
    assert contents.held.looks - looks < 10, "one loop, for the credentials that are in use"
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


@virtual_time
async def test_nobody_is_cut_off_who_drops_the_last_thing_on_a_server() -> None:
    runtime = virtual_runtime()
    surveys, contents = Surveys(runtime), Contents()
    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    where, claim = located(contents), Claim("here", KIND, "default", "clerk")
    await settle(surveys, where, "clerk")
    surveys.forget(KIND, ObjectKey("default", "clerk"))
    contents.takes_seconds = 10
    scope = Scope(users=frozenset({"clerk", "clerk~"}))
    await surveys.carry_out(where, scope, lambda survey: contents.plan_drop_user(survey, "clerk", claim, None))
    assert contents.held.others == set()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
