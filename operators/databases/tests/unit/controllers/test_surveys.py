"""The looks at servers that all objects on them share."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from database_support.contents_in_memory import ADMINISTRATOR, ContentsInMemory, ServerInMemory
from database_support.users_world import HOST
from steersman.meta import ObjectKey
from steersman_databases.controllers.servers import Located
from steersman_databases.controllers.surveys import DATABASE, ServerBusy, Surveys
from steersman_databases.engines.desired import EACH, Claim, DesiredDatabase, DesiredGrant, DesiredUser, ObjectKind
from steersman_databases.engines.errors import AdministratorRejected, EngineError, ObjectsMissing, ServerUnreachable
from steersman_databases.engines.model import ModelSessions
from steersman_databases.engines.plan import Change, Plan
from steersman_databases.engines.server import Login, Server, Verification
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.survey import NOT_YET, Scope, SecuredObject, Survey
from steersman_testing import virtual_runtime, virtual_time

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
        self.shut: dict[str, str] = {}
        self.at_work = self.most_at_work = 0
        super().__init__({HOST: self.held}, "postgresql")

    def connect(self, server: Server) -> Sessions:
        return Closing(server)

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        if self.broken:
            raise ZeroDivisionError("nobody thought of that")
        found = await super().survey(sessions, scope, timeout)
        shut = {name: why for name, why in self.shut.items() if name in found.inside}
        return replace(found, inside={k: v for k, v in found.inside.items() if k not in shut}, unseen=shut)

    async def carry_out(self, sessions: Sessions, plan: Plan, timeout: float = 15.0) -> tuple[Change, ...]:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        await asyncio.sleep(self.takes_seconds)
        self.at_work -= 1
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


async def settle(surveys: Surveys, where: Located, name: str, kind: str = KIND) -> tuple[Change, ...]:
    desired = DesiredUser(name, "s3cret", claim=Claim("here", kind, "default", name))
    return await surveys.settle(where, kind, ObjectKey("default", name), (desired,))


def nowhere(request: ObjectKey, *, priority: int = 0) -> None:
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
    assert [change.message for change in second.value.changes] == ["created user waiter"]


@virtual_time
async def test_what_one_finds_no_room_for_is_nobody_elses_trouble() -> None:
    surveys, contents = Surveys(virtual_runtime()), Contents()
    contents.lost_at_work = True
    with pytest.raises(ServerUnreachable):
        await settle(surveys, located(contents), "clerk")
    contents.lost_at_work = False
    assert [change.reason for change in await settle(surveys, located(contents), "waiter")] == ["UserCreated"]


@virtual_time
async def test_a_server_that_hangs_is_waited_for_at_length_only_once() -> None:
    runtime = virtual_runtime()
    surveys, contents = Surveys(runtime), Contents()
    contents.held.hangs = True
    waited: list[float] = []
    for _ in range(3):
        begun = runtime.clock.monotonic()
        with pytest.raises(ServerUnreachable):
            await settle(surveys, located(contents), "clerk")
        waited.append(round(runtime.clock.monotonic() - begun))
        await runtime.clock.sleep(35)
    assert waited == [15, 5, 5]
    contents.held.hangs = False
    assert await settle(surveys, located(contents), "clerk")


@virtual_time
async def test_what_comes_after_a_step_that_takes_minutes_has_its_own_time() -> None:
    surveys, contents = Surveys(virtual_runtime()), Contents()
    contents.takes_seconds = 120
    key, claim = ObjectKey("default", "shop"), Claim("here", DATABASE, "default", "shop")
    wanted = (DesiredUser("clerk", "s3cret", claim=claim), DesiredDatabase("shop", "clerk", claim=claim))
    assert await surveys.settle(located(contents), DATABASE, key, wanted)
    contents.takes_seconds = 0
    assert await surveys.settle(located(contents), DATABASE, key, wanted) == (), "all of it is done"


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
async def test_who_shares_a_look_sees_what_it_would_alone_and_nobody_is_followed_for_it() -> None:
    surveys, contents = Surveys(virtual_runtime()), Contents()
    where, held = located(contents), contents.held
    for name in ("clerk", "zed"):
        await settle(surveys, where, name)
        held.make_database(f"{name}s")
        held.create(SecuredObject(ObjectKind.TABLE, f"{name}s", "public", "till"), name)
    before = held.looks
    alone, _ = await asyncio.gather(
        surveys.look(where, KIND, ObjectKey("default", "clerk"), Scope(users=frozenset({"clerk"}))),
        surveys.look(where, KIND, ObjectKey("default", "zed"), Scope(unfollowed=frozenset({"zed"}))),
    )
    assert held.looks == before + 1
    assert alone.users.keys() >= {"clerk", "zed"}
    assert alone.databases.keys() == alone.inside.keys() == {"clerks"}


@virtual_time
async def test_nobody_is_cut_off_who_drops_the_last_thing_on_a_server() -> None:
    runtime = virtual_runtime()
    surveys, contents = Surveys(runtime), Contents()
    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    key = ObjectKey("default", "clerk")
    where, claim = located(contents), Claim("here", KIND, "default", "clerk")
    await settle(surveys, where, "clerk")
    surveys.forget(KIND, key)
    contents.takes_seconds = 10
    scope = Scope(users=frozenset({"clerk", "clerk~"}))
    await surveys.carry_out(
        where, KIND, key, scope, lambda survey: contents.plan_drop_user(survey, "clerk", claim, None)
    )
    assert contents.held.others == set()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


@virtual_time
async def test_hundreds_on_one_server_take_turns_and_few_ask_in_vain() -> None:
    """Who finds no place is told when there is one: databases before users, who are granted something in them."""
    runtime = virtual_runtime()
    surveys, contents = Surveys(runtime), Contents()
    contents.takes_seconds = 1.0
    where, attempts, done = located(contents), 0, list[str]()

    async def attempt(kind: str, key: ObjectKey) -> None:
        nonlocal attempts
        attempts += 1
        try:
            await settle(surveys, where, key.name, kind)
        except ServerBusy:
            return
        done.append(kind)

    started: list[asyncio.Task[None]] = []

    def begin(kind: str, key: ObjectKey) -> None:
        started.append(asyncio.create_task(attempt(kind, key)))

    def calls(kind: str) -> asyncio.Task[None]:
        def push(request: ObjectKey, *, priority: int = 0) -> None:
            begin(kind, request)

        return asyncio.create_task(surveys.tells(kind).run(push, runtime))

    listening = [calls(KIND), calls(DATABASE)]
    for kind, number in ((KIND, 100), (DATABASE, 20)):
        for each in range(number):
            begin(kind, ObjectKey("default", f"{kind.lower()}-{each}"))
    await runtime.clock.sleep(20)
    assert len(done) == 120
    assert attempts <= 3 * len(done)
    assert contents.most_at_work == 16
    # The first of all, and who came while there were places still.
    assert done[:40].count(DATABASE) == 20
    for task in (*listening, *started):
        task.cancel()
    await asyncio.gather(*listening, *started, return_exceptions=True)


@virtual_time
@pytest.mark.parametrize(("databases", "within"), [(12, 8), (40, 21)])
async def test_what_is_new_in_a_database_is_found_in_time_however_many_there_are(databases: int, within: int) -> None:
    runtime = virtual_runtime()
    surveys, contents = Surveys(runtime), Contents()
    told: list[ObjectKey] = []

    def push(request: ObjectKey, *, priority: int = 0) -> None:
        told.append(request)

    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    listening = asyncio.create_task(surveys.tells(KIND).run(push, runtime))
    for number in range(databases):
        contents.held.make_database(f"shop{number}", "kept")
        grant = DesiredGrant(f"shop{number}", frozenset({"SELECT"}), ObjectKind.TABLE, "public", (EACH,))
        key = ObjectKey("default", f"clerk{number}")
        claim = Claim("here", KIND, "default", key.name)
        desired = DesiredUser(key.name, "s3cret", claim=claim, grants=(grant,))
        await surveys.settle(located(contents), KIND, key, (desired,))
    await runtime.clock.sleep(60)
    told.clear()
    for number in range(databases):
        contents.held.make_table(f"shop{number}", "later")
    await runtime.clock.sleep(within)
    assert {key.name for key in told} == {f"clerk{number}" for number in range(databases)}
    for task in (looking, listening):
        task.cancel()
    await asyncio.gather(looking, listening, return_exceptions=True)


@virtual_time
async def test_a_database_that_cannot_be_looked_inside_of_is_told_to_those_who_want_something_there() -> None:
    runtime = virtual_runtime()
    surveys, contents = Surveys(runtime), Contents()
    told: list[str] = []

    def push(request: ObjectKey, *, priority: int = 0) -> None:
        told.append(request.name)

    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    listening = asyncio.create_task(surveys.tells(KIND).run(push, runtime))

    async def grant(number: int) -> None:
        tables = DesiredGrant(f"shop{number}", frozenset({"SELECT"}), ObjectKind.TABLE, "public", (EACH,))
        key = ObjectKey("default", f"clerk{number}")
        desired = DesiredUser(key.name, "s3cret", claim=Claim("here", KIND, "default", key.name), grants=(tables,))
        await surveys.settle(located(contents), KIND, key, (desired,))

    for number in range(3):
        contents.held.make_database(f"shop{number}", "kept")
        await grant(number)
    await runtime.clock.sleep(30)
    told.clear()
    contents.shut = {"shop1": "no such library"}
    await runtime.clock.sleep(8)
    with pytest.raises(ObjectsMissing, match="look inside: no such library"):
        await grant(1)
    await runtime.clock.sleep(30)
    assert told == ["clerk1"], "and all is quiet as long as nothing changes"
    contents.shut = {}
    await runtime.clock.sleep(8)
    assert told == ["clerk1", "clerk1"]
    await grant(1)
    contents.shut = {"shop1": NOT_YET}
    await runtime.clock.sleep(30)
    assert told == ["clerk1", "clerk1"], "what was known of one that is left out once is still known"
    for task in (looking, listening):
        task.cancel()
    await asyncio.gather(looking, listening, return_exceptions=True)
