"""What is made as somebody who is being dropped, and what sessions of the operator have set, whatever others do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import cast

import psycopg
import pytest

from database_support.servers.postgresql import compose
from database_support.servers.postgresql_admins import DATABASE, OWNER, SHOP, PostgreSQLHarness, user
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.errors import ConcurrentChange
from steersman_databases.engines.postgresql.sql.pool import PostgreSQLSessions
from steersman_databases.engines.sql.desired import DesiredGrant, DesiredMembership, SecondCredential, SecurableKind

CLERK = SqlCredentials('the "clerk"; %s \\ żółw', "s3cret")
JANE = "jane's"

MAY_MAKE = (
    DesiredGrant(SHOP, frozenset({"CONNECT"})),
    DesiredGrant(SHOP, frozenset({"CREATE", "USAGE"}), SecurableKind.SCHEMA, "public"),
)


async def begun(at: PostgreSQLHarness, who: SqlCredentials) -> psycopg.AsyncConnection:
    """A transaction of somebody who acts as the clerk: it made `later`, and what is the clerk's waits for its end."""
    session = await at.postgresql.connected(who, SHOP)
    await session.execute(compose("SET ROLE {}", CLERK.username))
    await session.execute("BEGIN; SELECT FROM public.before; CREATE TABLE public.later ()")
    return session


async def until_it_waits(at: PostgreSQLHarness, dropping: asyncio.Task[list[str]]) -> None:
    waits = "SELECT pid FROM pg_locks WHERE NOT granted"
    async with asyncio.timeout(10):
        while not dropping.done() and not at.postgresql.administer(waits):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("login", ["its own", "its second"])
async def test_object_created_during_drop_is_kept(at: PostgreSQLHarness, login: str) -> None:
    """Its sessions end before what it owns is given away: what one commits then would go with it."""
    await at.reconcile(DATABASE)
    await at.reconcile(user(CLERK.username, grants=MAY_MAKE, second_credential=SecondCredential("s3cond")))
    await at.sql("CREATE TABLE public.before ()", who=CLERK)
    await at.close_connections()
    who = CLERK if login == "its own" else SqlCredentials(CLERK.username + "~", "s3cond")
    session = await begun(at, who)
    dropping = asyncio.create_task(at.drop(CLERK.username))
    await until_it_waits(at, dropping)
    with pytest.raises(psycopg.OperationalError):
        await session.execute("COMMIT")
    assert "UserDropped" in await dropping
    tables = "SELECT relname FROM pg_class WHERE relname IN ('before', 'later')"
    assert await at.sql(tables) == "before"


@pytest.fixture
def set_for_all(at: PostgreSQLHarness) -> Generator[Callable[[str], None]]:
    """What every session of the administrators begins with, as if a server or a role had it set."""
    names = sorted({at.sessions.server.login.username, at.postgresql.administrator.username})

    def alter(how: str) -> None:
        for name in names:
            at.postgresql.administer(f"ALTER ROLE {{}} {how}", name)

    changed: list[str] = []

    def change(setting: str) -> None:
        changed.append(setting.split()[0])
        alter(f"SET {setting}")

    yield change
    # The account of the operator has settings of its own.
    for name in changed:
        alter(f"RESET {name}")


async def test_transaction_timeout_does_not_abort_operator(
    at: PostgreSQLHarness, set_for_all: Callable[[str], None]
) -> None:
    if at.version < 17:
        return
    set_for_all("transaction_timeout = '5s'")
    await at.sessions.close()
    sessions = at.sql_engine.connect(at.sessions.server)
    async with cast(PostgreSQLSessions, sessions).at(None, asyncio.get_running_loop().time() + 10) as session:
        assert await session.rows("looking", "SHOW transaction_timeout") == [("0",)]
    await sessions.close()


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_object_created_by_member_during_drop_is_kept(
    at: PostgreSQLHarness, set_for_all: Callable[[str], None], isolation: str
) -> None:
    """Sessions of others, who can act as the user, go on: it is looked at again."""
    set_for_all(f"default_transaction_isolation = '{isolation}'")
    await at.reconcile(DATABASE)
    await at.reconcile(user(CLERK.username, grants=MAY_MAKE))
    await at.reconcile(user(JANE, roles=(DesiredMembership(CLERK.username),), grants=MAY_MAKE[:1]))
    await at.sql("CREATE TABLE public.before ()", who=CLERK)
    await at.close_connections()
    session = await begun(at, SqlCredentials(JANE, "s3cret"))
    dropping = asyncio.create_task(at.drop(CLERK.username))
    await until_it_waits(at, dropping)
    await session.execute("COMMIT")
    # A transaction that ends gives up its locks one after the other, that on the role perhaps as the last.
    with pytest.raises(
        ConcurrentChange, match=r"it has become the owner of an object there|an object is being created for it"
    ):
        await dropping
    await session.close()
    assert await at.drop(CLERK.username) == ["UserDropped"]
    owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relname IN ('before', 'later')"
    assert await at.sql(owners) == OWNER.username
    assert len(await at.sql("SELECT relname FROM pg_class WHERE relname IN ('before', 'later')")) == 2
