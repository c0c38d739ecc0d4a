"""What a server of MySQL or MariaDB has set for all sessions does not hold for the operator's."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from database_support.accounts_contract import At, claim, user
from database_support.modest_mysql import (
    CARETAKER,
    CLERK,
    KEEPER,
    LEDGER,
    as_seen,
    has,
    is_mariadb,
    ledger,
    modest,
    on,
)
from database_support.mysql_server import MySQLServer
from steersman_databases.engines import SqlFailed

__all__ = ["modest"]

_SET = {
    "autocommit": "OFF",
    "init_connect": "'SET autocommit = OFF'",
    "max_execution_time": "1",
    "max_join_size": "1",
    "sql_safe_updates": "ON",
    "sql_select_limit": "1",
    "transaction_read_only": "ON",
}
_MARIADB_CALLS_IT = {
    "max_execution_time": "max_statement_time",
    "transaction_read_only": "tx_read_only",
    "transaction_isolation": "tx_isolation",
}


@asynccontextmanager
async def for_all(server: MySQLServer, name: str, value: str) -> AsyncGenerator[None]:
    """A variable's global value during the block. `name` is MySQL's."""
    if await is_mariadb(server):
        name = _MARIADB_CALLS_IT.get(name, name)
    [(former,)] = await server.execute(f"SELECT @@GLOBAL.{name}")
    await server.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        await server.execute(f"SET GLOBAL {name} = {former if isinstance(former, int) else repr(former)}")


@pytest.mark.parametrize("name", sorted(_SET))
async def test_the_operator_sees_all_and_may_write(modest: At, mysql_server: MySQLServer, name: str) -> None:
    more = on(LEDGER, "SELECT", "INSERT")
    # What is set counts from the next login on.
    await modest.close()
    async with for_all(mysql_server, name, _SET[name]):
        for one in (KEEPER, CLERK):
            await modest.make(user(one.username))
        await modest.make(ledger())
        await modest.make(user(CLERK.username, grants=(more,)))
    assert await has(mysql_server, CLERK.username) == {"SELECT", "INSERT"}
    async with for_all(mysql_server, name, _SET[name]):
        await modest.drop_database(LEDGER, claim(KEEPER.username))
        await modest.drop(CLERK.username)
    assert LEDGER not in await mysql_server.databases()
    assert CLERK.username not in await mysql_server.users()
    assert await mysql_server.execute(f"SELECT name FROM steersman.claims WHERE name = '{CLERK.username}'") == []


async def test_marks_outlive_the_server_whatever_its_usual_engine_is(modest: At, mysql_server: MySQLServer) -> None:
    engine = "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'steersman' AND TABLE_NAME = 'claims'"
    await mysql_server.execute("DROP TABLE IF EXISTS steersman.claims")
    async with for_all(mysql_server, "default_storage_engine", "'MEMORY'"):
        await modest.make(user())
    assert await mysql_server.execute(engine) == [("InnoDB",)]
    # As an earlier version may have made it. A look is enough: nothing else may be to do.
    await mysql_server.execute("ALTER TABLE steersman.claims ENGINE = MEMORY")
    assert await modest.make(user()) == []
    assert await mysql_server.execute(engine) == [("InnoDB",)]


async def test_a_mark_alone_is_there_for_others_at_once(modest: At, mysql_server: MySQLServer) -> None:
    """Nothing after it is done that would commit it."""
    await modest.make(user(KEEPER.username))
    await modest.make(ledger())
    await modest.close()
    await mysql_server.execute("DELETE FROM steersman.claims WHERE kind = 'owner'")
    async with for_all(mysql_server, "init_connect", "'SET autocommit = OFF'"):
        fresh = as_seen(mysql_server, CARETAKER)
        await fresh.make(ledger())
        await fresh.close()
    marked = await mysql_server.execute("SELECT mark FROM steersman.claims WHERE kind = 'owner' AND name = 'ledger'")
    assert marked == [(KEEPER.username,)]


async def test_a_database_does_not_go_with_tables_that_others_refer_to(modest: At, mysql_server: MySQLServer) -> None:
    reference = "FOREIGN KEY (id) REFERENCES ledger.entries (id)"
    async with for_all(mysql_server, "foreign_key_checks", "OFF"):
        await modest.make(user(KEEPER.username))
        await modest.make(ledger())
        await mysql_server.execute("CREATE DATABASE archive")
        await mysql_server.execute("CREATE TABLE ledger.entries (id INT PRIMARY KEY)")
        await mysql_server.execute(f"CREATE TABLE archive.copies (id INT PRIMARY KEY, {reference})")
        with pytest.raises(SqlFailed, match=r"(?i)foreign key"):
            await modest.drop_database(LEDGER, claim(KEEPER.username))
    await mysql_server.execute("DROP TABLE archive.copies")
    await modest.drop_database(LEDGER, claim(KEEPER.username))


async def test_what_is_not_committed_is_not_seen(modest: At, mysql_server: MySQLServer) -> None:
    await modest.make(user(CLERK.username))
    async with (
        for_all(mysql_server, "transaction_isolation", "'READ-UNCOMMITTED'"),
        mysql_server.connected(mysql_server.superuser, None) as other,
    ):
        await other.query("BEGIN")
        await other.query("DELETE FROM steersman.claims WHERE name = 'clerk'")
        assert await modest.make(user(CLERK.username)) == []
        await other.query("ROLLBACK")
