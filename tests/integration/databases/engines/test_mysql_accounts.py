"""Real servers keep what users of MySQL and MariaDB may have; and what it comes to, tried by who has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from accounts_contract import SHOP, At, TestAccounts, at, user
from mysql_server import MySQLServer
from steersman_databases.engines.errors import ObjectsMissing

__all__ = ["TestAccounts", "at"]


@pytest.fixture
def like_mysql(mysql_server: MySQLServer) -> MySQLServer:
    return mysql_server


async def test_all_that_somebody_granted_on_a_database_is_revoked(at: At, mysql_server: MySQLServer) -> None:
    await at.make(user())
    await mysql_server.execute("GRANT ALL ON {}.* TO {}@'%' WITH GRANT OPTION", "accounts\\_sh\\%op", "clerk")
    await mysql_server.execute("GRANT ALL ON {}.{} TO {}@'%'", SHOP, "till", "clerk")
    assert await at.make(user()) == ["GrantRevoked"] * 2
    assert await at.held("clerk") == set()


async def test_the_right_to_act_as_another_is_told(at: At, mysql_server: MySQLServer) -> None:
    await at.make(user())
    mine = "User = 'clerk' AND Proxied_user = 'teller'"
    await mysql_server.execute(
        "INSERT INTO mysql.proxies_priv (Host, User, Proxied_host, Proxied_user, With_grant, Grantor)"
        " VALUES ('%', 'clerk', '10.%', 'teller', 0, '')"
    )
    await mysql_server.execute("FLUSH PRIVILEGES")
    try:
        with pytest.raises(ObjectsMissing, match=r"clerk may act as `teller`@`10.%`: revoke that by hand"):
            await at.make(user(password="an0ther"))
    finally:
        await mysql_server.execute(f"DELETE FROM mysql.proxies_priv WHERE {mine}")
        await mysql_server.execute("FLUSH PRIVILEGES")
    # All else was done.
    assert await at.make(user(password="an0ther")) == []


@pytest.fixture
def with_table(mysql_server: MySQLServer) -> Callable[[str, str, tuple[str, ...]], Awaitable[object]]:
    def make(database: str, table: str, columns: tuple[str, ...]) -> Awaitable[object]:
        told = ", ".join("{} int" for _ in columns)
        return mysql_server.execute(f"CREATE TABLE {{}}.{{}} ({told})", database, table, *columns)

    return make
