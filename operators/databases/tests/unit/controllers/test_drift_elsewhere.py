"""What is done to a user, or taken from it, in databases that its object does not name, and is found by looking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest

from database_support.contents_in_memory import ADMINISTRATOR, ContentsInMemory, ServerInMemory
from database_support.users_world import HOST
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_databases.controllers.drift import moved_between
from steersman_databases.controllers.servers import Located
from steersman_databases.controllers.surveys import Surveys
from steersman_databases.engines.actions import (
    Attributes,
    CreateDatabase,
    CreateUser,
    DropUser,
    FinishDatabase,
    Grant,
)
from steersman_databases.engines.desired import (
    EACH,
    Claim,
    DesiredGrant,
    DesiredMembership,
    DesiredUser,
    ObjectKind,
    SecondCredential,
)
from steersman_databases.engines.errors import EngineError, ObjectsMissing
from steersman_databases.engines.server import Login, Server, Verification
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.survey import Inside, OtherPrivilege, Scope, SecuredObject, Survey
from steersman_testing import virtual_runtime, virtual_time

KIND = "DatabaseUser"
HEALED_WITHIN = 30.0
KEEPER, HR = "keeper", "hr"
CLERK = DesiredUser("clerk", "s3cret", claim=Claim("here", KIND, "default", "clerk"))


class Contents(ContentsInMemory):
    """A server on which some users have accounts for single hosts, too."""

    narrower: frozenset[str] = frozenset()

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        found = await super().survey(sessions, scope, timeout)
        return replace(found, narrower=dict.fromkeys(self.narrower & scope.all_users, True))


@dataclass
class Watched:
    """A server under watch, on which others have databases, and who was told that it is not as declared."""

    engine: str
    runtime: Runtime = field(default_factory=virtual_runtime)
    told: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.surveys, self.held = Surveys(self.runtime), ServerInMemory(self.engine)
        self.contents = Contents({HOST: self.held}, self.engine)
        server = Server(self.engine, HOST, Login(ADMINISTRATOR.username, ADMINISTRATOR.password), Verification())
        self.located = Located(server, self.contents, None)
        for name in (KEEPER, HR):
            self.held.apply(CreateUser(name, Attributes(login=True), None, None))

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
        return SecuredObject(ObjectKind.TABLE, database, "public" if self.engine == "postgresql" else None, "kept")

    def on_table(self, database: str, *names: str) -> DesiredGrant:
        schema = self.table(database).schema
        return DesiredGrant(database, frozenset({"SELECT"}), ObjectKind.TABLE, schema, names or ("kept",))

    async def settle(self, desired: DesiredUser = CLERK) -> list[str]:
        """What was changed for one user, and what is missing."""
        try:
            changes = await self.surveys.settle(self.located, KIND, ObjectKey("default", desired.name), (desired,))
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
        asyncio.create_task(world.surveys.tells(KIND).run(push, world.runtime)),
    ]
    world.make("shop")
    world.make("stock", HR)
    yield world
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


Harm = Callable[[Watched], Grant]


def _table(world: Watched) -> Grant:
    return Grant(CLERK.name, world.table("stock"), ("DELETE",), world.grantor)


def _database(world: Watched) -> Grant:
    privilege = "CONNECT" if world.engine == "postgresql" else "DELETE"
    return Grant(CLERK.name, SecuredObject(ObjectKind.DATABASE, "stock"), (privilege,), world.grantor)


def _server(world: Watched) -> Grant:
    return Grant(CLERK.name, SecuredObject(ObjectKind.SERVER, EACH), ("PROCESS",), "")


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
async def test_what_is_granted_where_nothing_is_declared_is_found(engine: str, harm: Harm, others: int) -> None:
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
@pytest.mark.parametrize(
    "harm, declared", [(_table, True), (_database, False)], ids=["declared table", "undeclared database"]
)
async def test_it_is_found_in_time_on_a_server_with_two_hundred_databases(harm: Harm, declared: bool) -> None:
    async with watched("postgresql") as world:
        await world.fill(199)
        clerk = replace(CLERK, grants=(world.on_table("shop"),))
        await world.settle(clerk)
        if declared:
            await world.settle(DesiredUser("other", "x", grants=(world.on_table("stock"),)))
        await world.runtime.clock.sleep(65)
        world.held.apply(harm(world))
        assert await world.told_within(HEALED_WITHIN - 1)
        assert len(await world.settle(clerk)) == 1


@virtual_time
async def test_a_database_is_looked_inside_of_in_its_turn_whatever_comes_and_goes_beside_it() -> None:
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
async def test_what_becomes_of_the_second_credential_is_found() -> None:
    rotating = replace(CLERK, second=SecondCredential("former"))
    async with watched("postgresql") as world:
        await world.settle(rotating)
        await world.runtime.clock.sleep(60)
        world.held.set_password("clerk~", "elsewhere")
        assert await world.told_within(8)
        assert await world.settle(rotating) == ["reset the password of user clerk~"]


def _drop_table(world: Watched) -> None:
    del world.held.inside["shop"].objects[world.table("shop")]
    world.held.revoke("clerk", "shop")


def _drop_role(world: Watched) -> None:
    world.held.apply(DropUser("team"))


MISSING = [
    pytest.param(_drop_table, "kept is not there yet", id="table"),
    pytest.param(_drop_role, "role team is not there yet", id="role"),
]


@virtual_time
@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@pytest.mark.parametrize(("harm", "words"), MISSING)
async def test_what_is_declared_and_gone_is_told_once(
    engine: str, harm: Callable[[Watched], None], words: str
) -> None:
    async with watched(engine) as world:
        world.held.apply(CreateUser("team", Attributes(login=False), None, None))
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
async def test_what_is_gone_before_the_first_look_is_told_too() -> None:
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
async def test_an_account_that_comes_first_is_told() -> None:
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


def test_who_loses_what_no_grant_names_is_noticed() -> None:
    """It is what its object tells, and waits for."""
    stays, goes = (OtherPrivilege("clerk~", on, "USAGE", HR) for on in ("type mood", "language plpgsql"))
    former, latest = (
        Survey("PostgreSQL", (17, 0), ADMINISTRATOR.username, inside={"vault": Inside(others=frozenset(held))})
        for held in ((stays, goes), (stays,))
    )
    assert moved_between(former, former) == frozenset()
    assert moved_between(former, latest) == {"clerk~", HR}
