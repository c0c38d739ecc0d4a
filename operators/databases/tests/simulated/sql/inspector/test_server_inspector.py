"""The looks at servers that all objects on them share."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from database_support.fake_server.engine import ADMINISTRATOR, InMemoryServer, InMemorySqlEngine
from database_support.fake_server.server import FakeConnections
from database_support.unit.users_harness import HOST
from steersman.meta import ObjectKey
from steersman_databases.core.outcome import MAX_CONCURRENT_RECONCILES
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import AdministratorRejected, EngineError, ObjectsMissing, ServerUnreachable
from steersman_databases.engines.server import DatabaseServer, Login, Verification
from steersman_databases.engines.sql.desired import (
    ANY,
    DesiredDatabase,
    DesiredGrant,
    DesiredUser,
    OwnershipMark,
    SecurableKind,
)
from steersman_databases.engines.sql.inspection import NOT_INSPECTED, Inspection, InspectionScope, SecuredObject
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan
from steersman_databases.sql.inspector.server_inspector import DATABASE_KIND, NoSlotFree, ServerInspector
from steersman_databases.sql.server_resolver import ResolvedServer
from steersman_testing import virtual_runtime, virtual_time

KIND = "DatabaseUser"


class Closing(FakeConnections):
    """Sessions that remember that they were closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


class Contents(InMemorySqlEngine):
    """A server that can be made to fail while it is looked at, or worked on."""

    def __init__(self) -> None:
        self.held = InMemoryServer()
        self.broken = False
        self.lost_at_work = False
        self.takes_seconds = 0.0
        self.shut: dict[str, str] = {}
        self.at_work = self.most_at_work = 0
        super().__init__({HOST: self.held}, "postgresql")

    def connect(self, server: DatabaseServer) -> ServerSessions:
        return Closing(server)

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        if self.broken:
            raise ZeroDivisionError("nobody thought of that")
        found = await super().inspect(sessions, scope, timeout)
        shut = {name: why for name, why in self.shut.items() if name in found.contents}
        return replace(found, contents={k: v for k, v in found.contents.items() if k not in shut}, uninspected=shut)

    async def execute(self, sessions: ServerSessions, plan: SqlPlan, timeout: float = 15.0) -> tuple[SqlChange, ...]:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        await asyncio.sleep(self.takes_seconds)
        self.at_work -= 1
        if isinstance(sessions, Closing) and sessions.closed:
            raise ServerUnreachable(HOST, "the connection was closed")
        changes = await super().execute(sessions, plan, timeout)
        if self.lost_at_work:
            error = ServerUnreachable(HOST, "it went")
            error.changes = changes
            raise error
        return changes


def located(contents: Contents, password: str = ADMINISTRATOR.password) -> ResolvedServer:
    login = Login(ADMINISTRATOR.username, password)
    return ResolvedServer(DatabaseServer("postgresql", HOST, login, Verification()), contents, None)


async def settle(
    surveys: ServerInspector, where: ResolvedServer, name: str, kind: str = KIND, namespace: str = "default"
) -> tuple[SqlChange, ...]:
    desired = DesiredUser(name, "s3cret", mark=OwnershipMark("here", kind, namespace, name))
    return await surveys.reconcile(where, kind, ObjectKey(namespace, name), (desired,))


def nowhere(request: ObjectKey, *, priority: int = 0) -> None:
    """A queue that is not used."""


@virtual_time
async def test_sessions_are_not_shared_across_passwords() -> None:
    surveys, contents = ServerInspector(virtual_runtime()), Contents()
    for number in range(3):
        outcomes = await asyncio.gather(
            settle(surveys, located(contents, "guessed"), f"mallory{number}"),
            settle(surveys, located(contents), f"clerk{number}"),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], AdministratorRejected)
        assert isinstance(outcomes[1], tuple), "and is nobody's trouble"
    assert contents.held.other_users == {"clerk0", "clerk1", "clerk2"}


@virtual_time
async def test_drift_is_reported_to_its_object_only() -> None:
    surveys, contents = ServerInspector(virtual_runtime()), Contents()
    contents.lost_at_work = True
    with pytest.raises(ServerUnreachable) as first:
        await settle(surveys, located(contents), "clerk")
    assert [change.reason for change in first.value.changes] == ["UserCreated"]
    with pytest.raises(EngineError) as second:
        await settle(surveys, located(contents), "waiter")
    assert [change.message for change in second.value.changes] == ["created user waiter"]


@virtual_time
async def test_busy_server_does_not_affect_other_servers() -> None:
    surveys, contents = ServerInspector(virtual_runtime()), Contents()
    contents.lost_at_work = True
    with pytest.raises(ServerUnreachable):
        await settle(surveys, located(contents), "clerk")
    contents.lost_at_work = False
    assert [change.reason for change in await settle(surveys, located(contents), "waiter")] == ["UserCreated"]


@virtual_time
async def test_hanging_server_is_waited_for_once() -> None:
    runtime = virtual_runtime()
    surveys, contents = ServerInspector(runtime), Contents()
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
async def test_step_after_lengthy_one_has_own_timeout() -> None:
    surveys, contents = ServerInspector(virtual_runtime()), Contents()
    contents.takes_seconds = 120
    key, claim = ObjectKey("default", "shop"), OwnershipMark("here", DATABASE_KIND, "default", "shop")
    wanted = (DesiredUser("clerk", "s3cret", mark=claim), DesiredDatabase("shop", "clerk", mark=claim))
    assert await surveys.reconcile(located(contents), DATABASE_KIND, key, wanted)
    contents.takes_seconds = 0
    assert await surveys.reconcile(located(contents), DATABASE_KIND, key, wanted) == (), "all of it is done"


@virtual_time
async def test_unexpected_error_reaches_all_waiters() -> None:
    surveys, contents = ServerInspector(virtual_runtime()), Contents()
    contents.broken = True
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(60):
                await settle(surveys, located(contents), "clerk")
    contents.broken = False
    assert await settle(surveys, located(contents), "clerk")


@virtual_time
async def test_server_without_subscriptions_is_forgotten() -> None:
    runtime = virtual_runtime()
    surveys, contents = ServerInspector(runtime), Contents()
    former = located(contents)
    await settle(surveys, former, "clerk")
    now = replace(former, server=replace(former.server, verification=Verification(ca_bundle=b"others")))
    await settle(surveys, now, "clerk")
    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    await runtime.clock.sleep(60)
    looks = contents.held.inspections
    await runtime.clock.sleep(60)
    assert contents.held.inspections - looks < 10, "one loop, for the credentials that are in use"
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


@virtual_time
async def test_shared_inspection_equals_own_inspection() -> None:
    surveys, contents = ServerInspector(virtual_runtime()), Contents()
    where, held = located(contents), contents.held
    for name in ("clerk", "zed"):
        await settle(surveys, where, name)
        held.make_database(f"{name}s")
        held.create(SecuredObject(SecurableKind.TABLE, f"{name}s", "public", "till"), name)
    before = held.inspections
    alone, _ = await asyncio.gather(
        surveys.inspect(where, KIND, ObjectKey("default", "clerk"), InspectionScope(users=frozenset({"clerk"}))),
        surveys.inspect(
            where, KIND, ObjectKey("default", "zed"), InspectionScope(without_contents=frozenset({"zed"}))
        ),
    )
    assert held.inspections == before + 1
    assert alone.users.keys() >= {"clerk", "zed"}
    assert alone.databases.keys() == alone.contents.keys() == {"clerks"}


@virtual_time
async def test_last_subscription_removal_aborts_nobody() -> None:
    runtime = virtual_runtime()
    surveys, contents = ServerInspector(runtime), Contents()
    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    key = ObjectKey("default", "clerk")
    where, claim = located(contents), OwnershipMark("here", KIND, "default", "clerk")
    await settle(surveys, where, "clerk")
    surveys.forget(KIND, key)
    contents.takes_seconds = 10
    scope = InspectionScope(users=frozenset({"clerk", "clerk~"}))
    await surveys.execute(
        where, KIND, key, scope, lambda survey: contents.plan_drop_user(survey, "clerk", claim, None)
    )
    assert contents.held.other_users == set()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


@virtual_time
async def test_hundreds_of_objects_share_slots() -> None:
    """Who finds no place is told when there is one: databases before users, who are granted something in them."""
    runtime = virtual_runtime()
    surveys, contents = ServerInspector(runtime), Contents()
    contents.takes_seconds = 1.0
    where, attempts, done = located(contents), 0, list[str]()

    async def attempt(kind: str, key: ObjectKey) -> None:
        nonlocal attempts
        attempts += 1
        try:
            await settle(surveys, where, key.name, kind)
        except NoSlotFree:
            return
        done.append(kind)

    started: list[asyncio.Task[None]] = []

    def begin(kind: str, key: ObjectKey) -> None:
        started.append(asyncio.create_task(attempt(kind, key)))

    def calls(kind: str) -> asyncio.Task[None]:
        def push(request: ObjectKey, *, priority: int = 0) -> None:
            begin(kind, request)

        return asyncio.create_task(surveys.events_for(kind).run(push, runtime))

    listening = [calls(KIND), calls(DATABASE_KIND)]
    for kind, number in ((KIND, 100), (DATABASE_KIND, 20)):
        for each in range(number):
            begin(kind, ObjectKey("default", f"{kind.lower()}-{each}"))
    await runtime.clock.sleep(20)
    assert len(done) == 120
    assert attempts <= 3 * len(done)
    assert contents.most_at_work == 16
    # The first of all, and who came while there were places still.
    assert done[:40].count(DATABASE_KIND) == 20
    for task in (*listening, *started):
        task.cancel()
    await asyncio.gather(*listening, *started, return_exceptions=True)


@virtual_time
async def test_slow_servers_of_a_namespace_leave_workers() -> None:
    """A tenant with more slow servers than there are workers delays no other tenant."""
    runtime = virtual_runtime()
    surveys, workers, contents = ServerInspector(runtime), asyncio.Semaphore(MAX_CONCURRENT_RECONCILES), Contents()
    contents.takes_seconds = 40.0
    done: list[ObjectKey] = []

    async def attempt(key: ObjectKey) -> None:
        server = located(contents)
        where = replace(server, server=replace(server.server, maintenance_database=f"shop{key.name}"))
        async with workers:
            with suppress(NoSlotFree):
                await settle(surveys, where, key.name, namespace=key.namespace)
                done.append(key)

    def push(request: ObjectKey, *, priority: int = 0) -> None:
        started.append(asyncio.create_task(attempt(request)))

    listening = asyncio.create_task(surveys.events_for(KIND).run(push, runtime))
    started = [asyncio.create_task(attempt(ObjectKey("guest", str(number)))) for number in range(300)]
    await runtime.clock.sleep(1)
    contents.takes_seconds = 0.0
    await asyncio.wait_for(attempt(ObjectKey("default", "1000")), 5)
    assert done == [ObjectKey("default", "1000")]
    await runtime.clock.sleep(60)
    assert len(done) == 301
    for task in (listening, *started):
        task.cancel()
    await asyncio.gather(listening, *started, return_exceptions=True)


@virtual_time
@pytest.mark.parametrize(("databases", "within"), [(12, 8), (40, 21)])
async def test_new_grant_is_found_in_bounded_time(databases: int, within: int) -> None:
    runtime = virtual_runtime()
    surveys, contents = ServerInspector(runtime), Contents()
    told: list[ObjectKey] = []

    def push(request: ObjectKey, *, priority: int = 0) -> None:
        told.append(request)

    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    listening = asyncio.create_task(surveys.events_for(KIND).run(push, runtime))
    for number in range(databases):
        contents.held.make_database(f"shop{number}", "kept")
        grant = DesiredGrant(f"shop{number}", frozenset({"SELECT"}), SecurableKind.TABLE, "public", (ANY,))
        key = ObjectKey("default", f"clerk{number}")
        claim = OwnershipMark("here", KIND, "default", key.name)
        desired = DesiredUser(key.name, "s3cret", mark=claim, grants=(grant,))
        await surveys.reconcile(located(contents), KIND, key, (desired,))
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
async def test_uninspectable_database_is_reported_to_its_objects() -> None:
    runtime = virtual_runtime()
    surveys, contents = ServerInspector(runtime), Contents()
    told: list[str] = []

    def push(request: ObjectKey, *, priority: int = 0) -> None:
        told.append(request.name)

    looking = asyncio.create_task(surveys.run(nowhere, runtime))
    listening = asyncio.create_task(surveys.events_for(KIND).run(push, runtime))

    async def grant(number: int) -> None:
        tables = DesiredGrant(f"shop{number}", frozenset({"SELECT"}), SecurableKind.TABLE, "public", (ANY,))
        key = ObjectKey("default", f"clerk{number}")
        desired = DesiredUser(
            key.name, "s3cret", mark=OwnershipMark("here", KIND, "default", key.name), grants=(tables,)
        )
        await surveys.reconcile(located(contents), KIND, key, (desired,))

    for number in range(3):
        contents.held.make_database(f"shop{number}", "kept")
        await grant(number)
    await runtime.clock.sleep(30)
    told.clear()
    contents.shut = {"shop1": "no such library"}
    await runtime.clock.sleep(8)
    with pytest.raises(ObjectsMissing, match="cannot be inspected: no such library"):
        await grant(1)
    await runtime.clock.sleep(30)
    assert told == ["clerk1"], "and all is quiet as long as nothing changes"
    contents.shut = {}
    await runtime.clock.sleep(8)
    assert told == ["clerk1", "clerk1"]
    await grant(1)
    contents.shut = {"shop1": NOT_INSPECTED}
    await runtime.clock.sleep(30)
    assert told == ["clerk1", "clerk1"], "what was known of one that is left out once is still known"
    for task in (looking, listening):
        task.cancel()
    await asyncio.gather(looking, listening, return_exceptions=True)
