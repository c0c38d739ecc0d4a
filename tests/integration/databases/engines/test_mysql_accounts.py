"""Real servers keep what users of MySQL and MariaDB may have; and what it comes to, tried by who has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from accounts_contract import SHOP, At, TestAccounts, at, user
from mysql_server import MySQLServer
from steersman_databases.engines.desired import DesiredGrant, ObjectKind
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


async def test_who_goes_leaves_what_it_made(at: At, mysql_server: MySQLServer) -> None:
    """A view runs with the rights of who defined it, and MySQL does not let that one go unless it may."""
    routine = DesiredGrant(
        SHOP, frozenset({"ALL"}), ObjectKind.FUNCTION, None, ("count_all",), with_grant_option=True
    )
    await mysql_server.execute("CREATE DEFINER = {}@'%' VIEW {}.{} AS SELECT 1 AS one", "clerk", SHOP, "v")
    create = "CREATE DEFINER = {}@'%' PROCEDURE {}.{}() SELECT 1"
    await mysql_server.execute_unprepared(create, "clerk", SHOP, "count_all")
    await at.make(user(grants=(routine,)))
    assert {privilege for _, privilege in await at.held("clerk")} == {"EXECUTE", "ALTER ROUTINE", "GRANT OPTION"}
    await at.drop("clerk")
    assert "clerk" not in await mysql_server.users()
    await mysql_server.execute("DROP VIEW {}.{}", SHOP, "v")
    await mysql_server.execute_unprepared("DROP PROCEDURE {}.{}", SHOP, "count_all")


async def test_what_only_a_superuser_can_take_away_is_told(at: At, mysql_server: MySQLServer) -> None:
    """In a cluster the operator has what it may give, and a person may have given more by hand."""
    await at.make(user())
    await mysql_server.execute("GRANT FILE, RELOAD, INSERT ON *.* TO {}@'%' WITH GRANT OPTION", "clerk")
    if mysql_server.administrator == mysql_server.superuser:
        assert await at.make(user()) == ["GrantRevoked"]
        return
    await mysql_server.execute("GRANT BACKUP_ADMIN ON *.* TO {}@'%'", "clerk")
    words = "clerk has FILE on the whole server, which only who has it can revoke: do that by hand"
    with pytest.raises(ObjectsMissing, match=words) as caught:
        await at.make(user(password="an0ther"))
    assert [one.reason for one in caught.value.changes] == ["PasswordReset", "GrantRevoked"]
    with pytest.raises(ObjectsMissing, match="clerk has RELOAD") as again:
        await at.make(user(password="an0ther"))
    assert again.value.changes == ()
    assert await at.held("clerk") == set()
    await mysql_server.execute("REVOKE FILE, RELOAD ON *.* FROM {}@'%'", "clerk")
    assert await at.make(user(password="an0ther")) == []


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
