"""What is done to a user, or taken from it, in databases that its object does not name, and is found by looking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest

from database_support.fake_server.engine import ADMINISTRATOR, InMemoryServer, InMemorySqlEngine
from database_support.unit.users_harness import HOST
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import EngineError, ObjectsMissing
from steersman_databases.engines.server import DatabaseServer, Login, Verification
from steersman_databases.engines.sql.desired import (
    ANY,
    DesiredGrant,
    DesiredMembership,
    DesiredUser,
    OwnershipMark,
    SecondCredential,
    SecurableKind,
)
from steersman_databases.engines.sql.inspection import (
    DatabaseContents,
    Inspection,
    InspectionScope,
    SecuredObject,
    UngrantablePrivilege,
)
from steersman_databases.engines.sql.sql_actions import (
    CreateDatabase,
    CreateRole,
    DropRole,
    FinishDatabase,
    GrantPrivileges,
    RoleAttributes,
)
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.inspector.sql_drift import changed_grantees
from steersman_databases.sql.server_resolver import ResolvedServer
from steersman_testing import virtual_runtime, virtual_time

KIND = "DatabaseUser"
HEALED_WITHIN = 30.0
KEEPER, HR = "keeper", "hr"
CLERK = DesiredUser("clerk", "s3cret", mark=OwnershipMark("here", KIND, "default", "clerk"))


class Contents(InMemorySqlEngine):
    """A server on which some users have accounts for single hosts, too."""

    narrower: frozenset[str] = frozenset()

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        found = await super().inspect(sessions, scope, timeout)
        return replace(found, host_accounts=dict.fromkeys(self.narrower & scope.all_users, True))


@dataclass
class Watched:
    """A server under watch, on which others have databases, and who was told that it is not as declared."""

    engine: str
    runtime: Runtime = field(default_factory=virtual_runtime)
    told: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.surveys, self.held = ServerInspector(self.runtime), InMemoryServer(self.engine)
        self.contents = Contents({HOST: self.held}, self.engine)
        server = DatabaseServer(
            self.engine, HOST, Login(ADMINISTRATOR.username, ADMINISTRATOR.password), Verification()
        )
        self.located = ResolvedServer(server, self.contents, None)
        for name in (KEEPER, HR):
            self.held.apply(CreateRole(name, RoleAttributes(login=True), None, None))

    @property
    def grantor(self) -> str:
        """As whom something in `stock` is granted: MySQL knows none."""
        return HR if self.engine == "postgresql" else ""

    def make(self, name: str, owner: str = KEEPER) -> None:
        """A database with one table."""
        self.held.apply(CreateDatabase(name, "UTF8", None, None, "template0"))
        if self.engine == "postgresql":
            self.held.apply(FinishDatabase(name, owner, -1, None))
        self.held.create(self.table(name), owner)

    def table(self, database: str) -> SecuredObject:
        return SecuredObject(SecurableKind.TABLE, database, "public" if self.engine == "postgresql" else None, "kept")

    def on_table(self, database: str, *names: str) -> DesiredGrant:
        schema = self.table(database).schema
        return DesiredGrant(database, frozenset({"SELECT"}), SecurableKind.TABLE, schema, names or ("kept",))

    async def settle(self, desired: DesiredUser = CLERK) -> list[str]:
        """What was changed for one user, and what is missing."""
        try:
            changes = await self.surveys.reconcile(self.located, KIND, ObjectKey("default", desired.name), (desired,))
        except ObjectsMissing as error:
            return [*map(str, error.changes), str(error)]
        return [str(change) for change in changes]

    async def fill(self, databases: int) -> None:
        """So many databases more, in each of which another user was granted something."""
        for number in range(databases):
            self.make(f"d{number}")
            await self.settle(DesiredUser(f"user{number}", "x", grants=(self.on_table(f"d{number}"),)))

    async def told_within(self, seconds: float, name: str = CLERK.name) -> float | None:
        """After how long one was told; None where it was not."""
        began = self.runtime.clock.monotonic()
        self.told.clear()
        while (since := self.runtime.clock.monotonic() - began) < seconds:
            if name in self.told:
                return since
            await self.runtime.clock.sleep(0.25)
        return None


@asynccontextmanager
async def watched(engine: str) -> AsyncGenerator[Watched]:
    """With `shop`, in which `clerk` is granted something, and `stock`, in which it is not."""
    world = Watched(engine)

    def push(request: ObjectKey, *, priority: int = 0) -> None:
        world.told.append(request.name)

    def nowhere(request: ObjectKey, *, priority: int = 0) -> None:
        """A queue that is not used."""

    tasks = [
        asyncio.create_task(world.surveys.run(nowhere, world.runtime)),
        asyncio.create_task(world.surveys.events_for(KIND).run(push, world.runtime)),
    ]
    world.make("shop")
    world.make("stock", HR)
    yield world
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


Harm = Callable[[Watched], GrantPrivileges]


def _table(world: Watched) -> GrantPrivileges:
    return GrantPrivileges(CLERK.name, world.table("stock"), ("DELETE",), world.grantor)


def _database(world: Watched) -> GrantPrivileges:
    privilege = "CONNECT" if world.engine == "postgresql" else "DELETE"
    return GrantPrivileges(CLERK.name, SecuredObject(SecurableKind.DATABASE, "stock"), (privilege,), world.grantor)


def _server(world: Watched) -> GrantPrivileges:
    return GrantPrivileges(CLERK.name, SecuredObject(SecurableKind.SERVER, ANY), ("PROCESS",), "")


ELSEWHERE = [
    pytest.param("postgresql", _table, id="postgresql-table"),
    pytest.param("postgresql", _database, id="postgresql-database"),
    pytest.param("mysql", _table, id="mysql-table"),
    pytest.param("mysql", _database, id="mysql-database"),
    pytest.param("mysql", _server, id="mysql-server"),
]


@virtual_time
@pytest.mark.parametrize("others", [0, 30])
@pytest.mark.parametrize(("engine", "harm"), ELSEWHERE)
async def test_undeclared_grant_elsewhere_is_found(engine: str, harm: Harm, others: int) -> None:
    async with watched(engine) as world:
        await world.fill(others)
        declared = replace(CLERK, grants=(world.on_table("shop"),))
        await world.settle(declared)
        # Whenever it comes, and once it was revoked: what has come back looks as it did before.
        for pause in (0, 60, 64, 67):
            await world.runtime.clock.sleep(pause)
            world.held.apply(harm(world))
            assert await world.told_within(HEALED_WITHIN - 1), pause
            [change] = await world.settle(declared)
            assert change.startswith("revoked") and change.endswith("from clerk")
            assert await world.settle(declared) == []


@virtual_time
async def test_undeclared_grant_among_200_databases_is_found() -> None:
    async with watched("postgresql") as world:
        await world.fill(199)
        clerk = replace(CLERK, grants=(world.on_table("shop"),))
        await world.settle(clerk)
        await world.runtime.clock.sleep(65)
        world.held.apply(_database(world))
        assert await world.told_within(HEALED_WITHIN - 1)
        assert len(await world.settle(clerk)) == 1
        await world.settle(DesiredUser("other", "x", grants=(world.on_table("stock"),)))
        await world.runtime.clock.sleep(65)
        world.held.apply(_table(world))
        assert await world.told_within(HEALED_WITHIN - 1)
        assert len(await world.settle(clerk)) == 1


@virtual_time
async def test_databases_are_inspected_in_turn() -> None:
    async with watched("postgresql") as world:
        await world.fill(40)
        await world.settle(replace(CLERK, grants=(world.on_table("stock"),)))
        await world.runtime.clock.sleep(60)
        for number in range(12):
            # In alphabetical order, before all others.
            new = f"a{9 - number % 3}{number}"
            world.make(new)
            await world.settle(DesiredUser(f"new{number}", "x", grants=(world.on_table(new),)))
            world.held.revoke("clerk", "stock")
            assert await world.told_within(HEALED_WITHIN - 1), number
            await world.settle(replace(CLERK, grants=(world.on_table("stock"),)))


@virtual_time
async def test_rotation_login_drift_is_found() -> None:
    rotating = replace(CLERK, second_credential=SecondCredential("former"))
    async with watched("postgresql") as world:
        await world.settle(rotating)
        await world.runtime.clock.sleep(60)
        world.held.set_password("clerk~", "elsewhere")
        assert await world.told_within(8)
        assert await world.settle(rotating) == ["reset the password of user clerk~"]


def _drop_table(world: Watched) -> None:
    del world.held.contents["shop"].objects[world.table("shop")]
    world.held.revoke("clerk", "shop")


def _drop_role(world: Watched) -> None:
    world.held.apply(DropRole("team"))


MISSING = [
    pytest.param(_drop_table, "kept does not exist yet", id="table"),
    pytest.param(_drop_role, "role team does not exist yet", id="role"),
]


@virtual_time
@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@pytest.mark.parametrize(("harm", "words"), MISSING)
async def test_declared_object_dropped_is_reported_once(
    engine: str, harm: Callable[[Watched], None], words: str
) -> None:
    async with watched(engine) as world:
        world.held.apply(CreateRole("team", RoleAttributes(login=False), None, None))
        declared = replace(CLERK, grants=(world.on_table("shop"),), roles=(DesiredMembership("team"),))
        await world.settle(declared)
        for pause in (0, 60):
            await world.runtime.clock.sleep(pause)
        harm(world)
        assert await world.told_within(HEALED_WITHIN - 1)
        assert words in (await world.settle(declared))[-1]
        # Nobody comes for whatever else happens there, as long as it is missing.
        world.told.clear()
        for number in range(10):
            world.held.create(replace(world.table("shop"), name=f"other{number}"), KEEPER)
            await world.runtime.clock.sleep(8)
        assert world.told == []


@virtual_time
async def test_object_dropped_before_first_inspection_is_reported() -> None:
    async with watched("postgresql") as world:
        declared = replace(CLERK, grants=(world.on_table("shop"),))
        await world.settle(declared)
        _drop_table(world)
        assert await world.told_within(8)
        await world.settle(declared)
        world.told.clear()
        await world.runtime.clock.sleep(120)
        assert world.told == []


@virtual_time
async def test_host_specific_account_is_reported() -> None:
    async with watched("mysql") as world:
        await world.settle()
        await world.runtime.clock.sleep(60)
        world.contents.narrower = frozenset({"clerk"})
        assert await world.told_within(8)
        with suppress(EngineError):
            await world.settle()
        world.told.clear()
        await world.runtime.clock.sleep(120)
        assert world.told == []


def test_lost_ungrantable_privilege_is_noticed() -> None:
    """It is what its object tells, and waits for."""
    stays, goes = (UngrantablePrivilege("clerk~", on, "USAGE", HR) for on in ("type mood", "language plpgsql"))
    former, latest = (
        Inspection(
            "PostgreSQL",
            (17, 0),
            ADMINISTRATOR.username,
            contents={"vault": DatabaseContents(other_privileges=frozenset(held))},
        )
        for held in ((stays, goes), (stays,))
    )
    assert changed_grantees(former, former) == frozenset()
    assert changed_grantees(former, latest) == {"clerk~", HR}
