"""What is made as somebody who is being dropped, and what sessions of the operator have set, whatever others do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import cast

import psycopg
import pytest

from database_support.postgresql_administrators import DATABASE, OWNER, SHOP, At, user
from database_support.postgresql_server import compose
from steersman_databases.engines import Credentials
from steersman_databases.engines.desired import DesiredGrant, DesiredMembership, ObjectKind, SecondCredential
from steersman_databases.engines.errors import Raced
from steersman_databases.engines.postgresql.pool import PostgreSQLSessions

CLERK = Credentials('the "clerk"; %s \\ żółw', "s3cret")
JANE = "jane's"

MAY_MAKE = (
    DesiredGrant(SHOP, frozenset({"CONNECT"})),
    DesiredGrant(SHOP, frozenset({"CREATE", "USAGE"}), ObjectKind.SCHEMA, "public"),
)


async def begun(at: At, who: Credentials) -> psycopg.AsyncConnection:
    """A transaction of somebody who acts as the clerk: it made `later`, and what is the clerk's waits for its end."""
    session = await at.postgresql.connected(who, SHOP)
    await session.execute(compose("SET ROLE {}", CLERK.username))
    await session.execute("BEGIN; SELECT FROM public.before; CREATE TABLE public.later ()")
    return session


async def until_it_waits(at: At, dropping: asyncio.Task[list[str]]) -> None:
    waits = "SELECT pid FROM pg_locks WHERE NOT granted"
    async with asyncio.timeout(10):
        while not dropping.done() and not at.postgresql.administer(waits):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("login", ["its own", "its second"])
async def test_what_a_dropped_user_makes_meanwhile_is_not_dropped(at: At, login: str) -> None:
    """Its sessions end before what it owns is given away: what one commits then would go with it."""
    await at.make(DATABASE)
    await at.make(user(CLERK.username, grants=MAY_MAKE, second=SecondCredential("s3cond")))
    await at.sql("CREATE TABLE public.before ()", who=CLERK)
    await at.hang_up()
    who = CLERK if login == "its own" else Credentials(CLERK.username + "~", "s3cond")
    session = await begun(at, who)
    dropping = asyncio.create_task(at.drop(CLERK.username))
    await until_it_waits(at, dropping)
    with pytest.raises(psycopg.OperationalError):
        await session.execute("COMMIT")
    assert "UserDropped" in await dropping
    tables = "SELECT relname FROM pg_class WHERE relname IN ('before', 'later')"
    assert await at.sql(tables) == "before"


@pytest.fixture
def set_for_all(at: At) -> Generator[Callable[[str], None]]:
    """What every session of the administrators begins with, as if a server or a role had it set."""
    names = sorted({at.sessions.server.login.username, at.postgresql.administrator.username})

    def alter(how: str) -> None:
        for name in names:
            at.postgresql.administer(f"ALTER ROLE {{}} {how}", name)

    yield lambda setting: alter(f"SET {setting}")
    alter("RESET ALL")


async def test_a_bound_for_transactions_does_not_end_the_operators(
    at: At, set_for_all: Callable[[str], None]
) -> None:
    if at.version < 17:
        return
    set_for_all("transaction_timeout = '5s'")
    await at.sessions.close()
    sessions = at.contents.connect(at.sessions.server)
    async with cast(PostgreSQLSessions, sessions).at(None, asyncio.get_running_loop().time() + 10) as session:
        assert await session.rows("looking", "SHOW transaction_timeout") == [("0",)]
    await sessions.close()


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_what_another_makes_as_a_dropped_user_meanwhile_is_not_dropped(
    at: At, set_for_all: Callable[[str], None], isolation: str
) -> None:
    """Sessions of others, who may act as the user, go on: it is looked at again."""
    set_for_all(f"default_transaction_isolation = '{isolation}'")
    await at.make(DATABASE)
    await at.make(user(CLERK.username, grants=MAY_MAKE))
    await at.make(user(JANE, roles=(DesiredMembership(CLERK.username),), grants=MAY_MAKE[:1]))
    await at.sql("CREATE TABLE public.before ()", who=CLERK)
    await at.hang_up()
    session = await begun(at, Credentials(JANE, "s3cret"))
    dropping = asyncio.create_task(at.drop(CLERK.username))
    await until_it_waits(at, dropping)
    await session.execute("COMMIT")
    # A transaction that ends gives up its locks one after the other, that on the role perhaps as the last.
    with pytest.raises(Raced, match=r"it has come to own something there|something is being made for it"):
        await dropping
    await session.close()
    assert await at.drop(CLERK.username) == ["UserDropped"]
    owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relname IN ('before', 'later')"
    assert await at.sql(owners) == OWNER.username
    assert len(await at.sql("SELECT relname FROM pg_class WHERE relname IN ('before', 'later')")) == 2
