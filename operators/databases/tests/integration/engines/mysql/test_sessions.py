"""What a server of MySQL or MariaDB has set for all sessions does not hold for the operator's."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from database_support.contracts.mysql_accounts import MySQLAccountsHarness, mark_named, user
from database_support.servers.mysql import RealMySQLServer
from database_support.servers.mysql_non_superuser_admins import (
    CARETAKER,
    CLERK,
    KEEPER,
    LEDGER,
    as_admin,
    has,
    is_mariadb,
    ledger,
    non_superuser_admin,
    on,
)
from steersman_databases.engines import SqlFailed

__all__ = ["non_superuser_admin"]

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
async def for_all(server: RealMySQLServer, name: str, value: str) -> AsyncGenerator[None]:
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
async def test_operator_sees_all_databases_and_can_write(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer, name: str
) -> None:
    more = on(LEDGER, "SELECT", "INSERT")
    # What is set counts from the next login on.
    await non_superuser_admin.close()
    async with for_all(mysql_server, name, _SET[name]):
        for one in (KEEPER, CLERK):
            await non_superuser_admin.reconcile(user(one.username))
        await non_superuser_admin.reconcile(ledger())
        await non_superuser_admin.reconcile(user(CLERK.username, grants=(more,)))
    assert await has(mysql_server, CLERK.username) == {"SELECT", "INSERT"}
    async with for_all(mysql_server, name, _SET[name]):
        await non_superuser_admin.drop_database(LEDGER, mark_named(KEEPER.username))
        await non_superuser_admin.drop(CLERK.username)
    assert LEDGER not in await mysql_server.databases()
    assert CLERK.username not in await mysql_server.users()
    assert await mysql_server.execute(f"SELECT name FROM steersman.claims WHERE name = '{CLERK.username}'") == []


async def test_marks_use_innodb_whatever_the_default_engine(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    engine = "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'steersman' AND TABLE_NAME = 'claims'"
    await mysql_server.execute("DROP TABLE IF EXISTS steersman.claims")
    async with for_all(mysql_server, "default_storage_engine", "'MEMORY'"):
        await non_superuser_admin.reconcile(user())
    assert await mysql_server.execute(engine) == [("InnoDB",)]
    # As an earlier version may have made it. A look is enough: nothing else may be to do.
    await mysql_server.execute("ALTER TABLE steersman.claims ENGINE = MEMORY")
    assert await non_superuser_admin.reconcile(user()) == []
    assert await mysql_server.execute(engine) == [("InnoDB",)]


async def test_single_mark_is_visible_at_once(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    """Nothing after it is done that would commit it."""
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(ledger())
    await non_superuser_admin.close()
    await mysql_server.execute("DELETE FROM steersman.claims WHERE kind = 'owner'")
    async with for_all(mysql_server, "init_connect", "'SET autocommit = OFF'"):
        fresh = as_admin(mysql_server, CARETAKER)
        await fresh.reconcile(ledger())
        await fresh.close()
    marked = await mysql_server.execute("SELECT mark FROM steersman.claims WHERE kind = 'owner' AND name = 'ledger'")
    assert marked == [(KEEPER.username,)]


async def test_database_with_referenced_tables_is_not_dropped(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    reference = "FOREIGN KEY (id) REFERENCES ledger.entries (id)"
    async with for_all(mysql_server, "foreign_key_checks", "OFF"):
        await non_superuser_admin.reconcile(user(KEEPER.username))
        await non_superuser_admin.reconcile(ledger())
        await mysql_server.execute("CREATE DATABASE archive")
        await mysql_server.execute("CREATE TABLE ledger.entries (id INT PRIMARY KEY)")
        await mysql_server.execute(f"CREATE TABLE archive.copies (id INT PRIMARY KEY, {reference})")
        with pytest.raises(SqlFailed, match=r"(?i)foreign key"):
            await non_superuser_admin.drop_database(LEDGER, mark_named(KEEPER.username))
    await mysql_server.execute("DROP TABLE archive.copies")
    await non_superuser_admin.drop_database(LEDGER, mark_named(KEEPER.username))


async def test_uncommitted_mark_is_not_visible(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await non_superuser_admin.reconcile(user(CLERK.username))
    async with (
        for_all(mysql_server, "transaction_isolation", "'READ-UNCOMMITTED'"),
        mysql_server.connected(mysql_server.superuser, None) as other,
    ):
        await other.query("BEGIN")
        await other.query("DELETE FROM steersman.claims WHERE name = 'clerk'")
        assert await non_superuser_admin.reconcile(user(CLERK.username)) == []
        await other.query("ROLLBACK")
