"""What a database of MySQL or MariaDB leaves behind when it is dropped, and what the next of its name makes of it."""

from __future__ import annotations

import pytest
from asyncmy.errors import MySQLError

from database_support.contracts.mysql_accounts import MySQLAccountsHarness, mark_named, role, user
from database_support.servers.mysql import RealMySQLServer
from database_support.servers.mysql_non_superuser_admins import (
    CLERK,
    KEEPER,
    LEDGER,
    has,
    is_mariadb,
    ledger,
    non_superuser_admin,
)
from steersman_databases.core.outcome import error_with_advice
from steersman_databases.engines.errors import PrivilegeNotRevocable

__all__ = ["non_superuser_admin"]


async def test_grants_of_role_created_by_operator_are_revoked(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    """On MariaDB the administrator is a member of each that it made."""
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(role("reader", revoke_undeclared=False))
    await non_superuser_admin.reconcile(ledger())
    await mysql_server.execute("GRANT SELECT ON ledger.* TO reader")
    await non_superuser_admin.drop_database(LEDGER, mark_named("keeper"))
    assert await non_superuser_admin.reconcile(ledger()) == ["GrantRevoked", "DatabaseCreated"]
    host = "" if await is_mariadb(mysql_server) else "%"
    assert await has(mysql_server, "reader", host=host) == set()


@pytest.mark.parametrize("table", ["db", "tables_priv"])
async def test_grants_of_dropped_user_are_ignored(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer, table: str
) -> None:
    await non_superuser_admin.reconcile(user(KEEPER.username))
    more = ("", "") if table == "db" else (", Table_name, Table_priv", ", 'entries', 'Select'")
    for name in ("ghost", "")[: 1 if table == "db" else 2]:
        await mysql_server.execute(
            f"INSERT INTO mysql.{table} (Host, Db, User{more[0]}) VALUES ('%', '{LEDGER}', '{name}'{more[1]})"
        )
    await mysql_server.execute("FLUSH PRIVILEGES")
    try:
        assert await non_superuser_admin.reconcile(ledger()) == ["DatabaseCreated", "GrantsRestored"]
        # Nobody gets the name, and these rights with it, before they are gone.
        with pytest.raises(MySQLError, match="CREATE USER failed"):
            await mysql_server.execute("CREATE USER ghost@'%'")
    finally:
        await mysql_server.execute(f"DELETE FROM mysql.{table} WHERE Db = '{LEDGER}'")
        await mysql_server.execute("FLUSH PRIVILEGES")


async def test_public_grant_without_user_is_reported(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(user())
    await mysql_server.execute(
        f"INSERT INTO mysql.db (Host, Db, User, Select_priv) VALUES ('%', '{LEDGER}', '', 'Y')"
    )
    await mysql_server.execute("FLUSH PRIVILEGES")
    for _ in range(2):
        with pytest.raises(
            PrivilegeNotRevocable, match=r"revoking SELECT on database ledger, .* from all users"
        ) as caught:
            await non_superuser_admin.reconcile(ledger())
        assert "DELETE and FLUSH PRIVILEGES" in error_with_advice(caught.value)
    assert LEDGER not in await mysql_server.databases()
    await mysql_server.execute(f"DELETE FROM mysql.db WHERE Db = '{LEDGER}' AND User = ''")
    await mysql_server.execute("FLUSH PRIVILEGES")
    assert await non_superuser_admin.reconcile(ledger()) == ["DatabaseCreated", "GrantsRestored"]
    assert not await mysql_server.can_log_in(CLERK, LEDGER)


async def test_mariadb_public_grant_is_revoked(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    if not await is_mariadb(mysql_server):
        pytest.skip("MariaDB alone")
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await mysql_server.execute_unprepared("GRANT SELECT ON ledger.* TO PUBLIC")
    assert await non_superuser_admin.reconcile(ledger()) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]


async def test_existing_database_is_closed_to_public(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    """As PostgreSQL's is: nobody else comes in who was not granted it."""
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(user())
    await non_superuser_admin.reconcile(ledger())
    await mysql_server.execute("CREATE USER ''@'%'")
    await mysql_server.execute("GRANT SELECT ON ledger.* TO ''@'%'")
    try:
        assert await mysql_server.can_log_in(CLERK, LEDGER)
        assert await non_superuser_admin.reconcile(ledger()) == ["PublicAccessRevoked"]
        assert not await mysql_server.can_log_in(CLERK, LEDGER)
        assert await non_superuser_admin.reconcile(ledger()) == []
    finally:
        await mysql_server.execute("DROP USER ''@'%'")


async def test_anonymous_grant_on_existing_database_is_reported(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(ledger())
    await mysql_server.execute(
        f"INSERT INTO mysql.db (Host, Db, User, Select_priv) VALUES ('%', '{LEDGER}', '', 'Y')"
    )
    await mysql_server.execute("FLUSH PRIVILEGES")
    with pytest.raises(PrivilegeNotRevocable, match="revoking SELECT on database ledger from all users") as caught:
        await non_superuser_admin.reconcile(ledger())
    assert "DELETE and FLUSH PRIVILEGES" in error_with_advice(caught.value)
    await mysql_server.execute(f"DELETE FROM mysql.db WHERE Db = '{LEDGER}' AND User = ''")
    await mysql_server.execute("FLUSH PRIVILEGES")
    assert await non_superuser_admin.reconcile(ledger()) == []


async def test_existing_database_is_closed_to_mariadb_public(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    if not await is_mariadb(mysql_server):
        pytest.skip("MariaDB alone")
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(ledger())
    await mysql_server.execute_unprepared("GRANT SELECT ON ledger.* TO PUBLIC")
    assert await non_superuser_admin.reconcile(ledger()) == ["PublicAccessRevoked"]
    assert await non_superuser_admin.reconcile(ledger()) == []


async def test_pattern_name_database_is_closed_exactly(mysql_server: RealMySQLServer) -> None:
    """Whoever grants it thinks of one database."""
    at, named = MySQLAccountsHarness(mysql_server), "led_ger"
    await at.reconcile(user(KEEPER.username))
    await at.reconcile(user())
    await at.reconcile(ledger(named))
    mariadb = await is_mariadb(mysql_server)
    whom = "PUBLIC" if mariadb else "''@'%'"
    if not mariadb:
        await mysql_server.execute("CREATE USER ''@'%'")
    try:
        await mysql_server.execute_unprepared(f"GRANT SELECT ON led_ger.* TO {whom}")
        await mysql_server.execute_unprepared(f"GRANT INSERT ON `led\\_ger`.* TO {whom}")
        assert await mysql_server.can_log_in(CLERK, named)
        assert set(await at.reconcile(ledger(named))) == {"PublicAccessRevoked"}
        assert not await mysql_server.can_log_in(CLERK, named)
        assert await at.reconcile(ledger(named)) == []
    finally:
        await at.close()
        if not mariadb:
            await mysql_server.execute("DROP USER ''@'%'")
        await mysql_server.execute("DELETE FROM mysql.db WHERE Db LIKE 'led%'")
        await mysql_server.execute("FLUSH PRIVILEGES")
        await mysql_server.execute(f"DROP DATABASE {named}")
        await mysql_server.execute("DELETE FROM steersman.claims")
        for one in (KEEPER, CLERK):
            await mysql_server.execute("DROP USER {}@'%'", one.username)


async def test_user_named_public_is_allowed_on_mariadb(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    if not await is_mariadb(mysql_server):
        pytest.skip("MariaDB alone")
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(ledger())
    await mysql_server.execute_unprepared("CREATE USER 'PUBLIC'@'%'")
    try:
        await mysql_server.execute_unprepared("GRANT INSERT ON ledger.* TO 'PUBLIC'@'%'")
        await mysql_server.execute_unprepared("GRANT SELECT ON ledger.* TO PUBLIC")
        assert await non_superuser_admin.reconcile(ledger()) == ["PublicAccessRevoked"]
        assert await non_superuser_admin.reconcile(ledger()) == []
        assert await has(mysql_server, "PUBLIC") == {"INSERT"}
    finally:
        await mysql_server.execute_unprepared("DROP USER 'PUBLIC'@'%'")


async def test_grant_on_all_databases_is_kept(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    """On MySQL nobody takes anything from who has SYSTEM_USER without having that."""
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await mysql_server.execute("CREATE USER dba@'%'")
    await mysql_server.execute("GRANT ALL ON *.* TO dba@'%' WITH GRANT OPTION")
    await mysql_server.execute("GRANT ALL ON ledger.* TO dba@'%'")
    assert await non_superuser_admin.reconcile(ledger()) == ["DatabaseCreated", "GrantsRestored"]


async def test_grant_beyond_administrator_is_reported(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await mysql_server.execute("CREATE USER clerk@'%'")
    await mysql_server.execute("CREATE USER reader@'%'")
    for name, what in (("clerk", "SELECT, EVENT"), (KEEPER.username, "EVENT"), ("reader", "SELECT")):
        await mysql_server.execute(f"GRANT {what} ON ledger.* TO {{}}@'%'", name)
    await mysql_server.execute("REVOKE EVENT ON ledger.* FROM caretaker@'%'")
    with pytest.raises(
        PrivilegeNotRevocable, match=r"revoking EVENT, SELECT on database ledger, .* from clerk: Access denied"
    ):
        await non_superuser_admin.reconcile(ledger())
    assert await has(mysql_server, "reader") == set()
    assert LEDGER not in await mysql_server.databases()
    await mysql_server.execute("REVOKE EVENT ON ledger.* FROM clerk@'%'")
    assert await non_superuser_admin.reconcile(ledger()) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]


@pytest.fixture
async def namesakes(non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer) -> None:
    """A user and a role of one name."""
    if not await is_mariadb(mysql_server):
        pytest.skip("MariaDB alone")
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(user())
    await mysql_server.execute_unprepared("CREATE ROLE clerk")


@pytest.mark.usefixtures("namesakes")
@pytest.mark.parametrize("grantees", [("clerk@'%'",), ("clerk",), ("clerk@'%'", "clerk")], ids=str)
async def test_user_and_role_of_same_name_are_both_revoked(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer, grantees: tuple[str, ...]
) -> None:
    for grantee in grantees:
        await mysql_server.execute(f"GRANT SELECT ON ledger.* TO {grantee}")
    made = await non_superuser_admin.reconcile(ledger())
    assert made == [*(["GrantRevoked"] * len(grantees)), "DatabaseCreated", "GrantsRestored"]
    assert await has(mysql_server, "clerk") == await has(mysql_server, "clerk", host="") == set()


@pytest.mark.usefixtures("namesakes")
async def test_owner_is_not_role_of_same_name(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await mysql_server.execute_unprepared("DROP ROLE clerk")
    await mysql_server.execute_unprepared(f"CREATE ROLE {KEEPER.username}")
    try:
        await mysql_server.execute(f"GRANT SELECT ON ledger.* TO {KEEPER.username}")
        assert await non_superuser_admin.reconcile(ledger()) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]
        assert await has(mysql_server, KEEPER.username) == {"SELECT", "INSERT"}
    finally:
        await mysql_server.execute_unprepared(f"DROP ROLE {KEEPER.username}")


@pytest.mark.usefixtures("namesakes")
async def test_dropping_user_keeps_role_of_same_name(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await mysql_server.execute(f"CREATE DATABASE {LEDGER}")
    for grantee in ("clerk@'%'", "clerk"):
        await mysql_server.execute(f"GRANT SELECT ON ledger.* TO {grantee}")
    assert await non_superuser_admin.reconcile(user(expired=True)) == ["UserLocked", "GrantRevoked"]
    assert await has(mysql_server, "clerk") == set()
    assert await has(mysql_server, "clerk", host="") == {"SELECT"}
