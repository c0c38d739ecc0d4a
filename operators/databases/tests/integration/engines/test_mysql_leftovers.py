"""What a database of MySQL or MariaDB leaves behind when it is dropped, and what the next of its name makes of it."""

from __future__ import annotations

import pytest
from asyncmy.errors import MySQLError

from database_support.accounts_contract import At, claim, role, user
from database_support.modest_mysql import CLERK, KEEPER, LEDGER, has, is_mariadb, ledger, modest
from database_support.mysql_server import MySQLServer
from steersman_databases.controllers.outcome import with_next_step
from steersman_databases.engines.errors import StillGranted

__all__ = ["modest"]


async def test_what_a_role_had_that_the_operator_made_is_revoked(modest: At, mysql_server: MySQLServer) -> None:
    """On MariaDB the administrator is a member of each that it made."""
    await modest.make(user(KEEPER.username))
    await modest.make(role("reader", exact=False))
    await modest.make(ledger())
    await mysql_server.execute("GRANT SELECT ON ledger.* TO reader")
    await modest.drop_database(LEDGER, claim("keeper"))
    assert await modest.make(ledger()) == ["GrantRevoked", "DatabaseCreated"]
    host = "" if await is_mariadb(mysql_server) else "%"
    assert await has(mysql_server, "reader", host=host) == set()


@pytest.mark.parametrize("table", ["db", "tables_priv"])
async def test_what_a_user_had_who_is_gone_is_in_nobodys_way(
    modest: At, mysql_server: MySQLServer, table: str
) -> None:
    await modest.make(user(KEEPER.username))
    more = ("", "") if table == "db" else (", Table_name, Table_priv", ", 'entries', 'Select'")
    for name in ("ghost", "")[: 1 if table == "db" else 2]:
        await mysql_server.execute(
            f"INSERT INTO mysql.{table} (Host, Db, User{more[0]}) VALUES ('%', '{LEDGER}', '{name}'{more[1]})"
        )
    await mysql_server.execute("FLUSH PRIVILEGES")
    try:
        assert await modest.make(ledger()) == ["DatabaseCreated", "GrantsRestored"]
        # Nobody gets the name, and these rights with it, before they are gone.
        with pytest.raises(MySQLError, match="CREATE USER failed"):
            await mysql_server.execute("CREATE USER ghost@'%'")
    finally:
        await mysql_server.execute(f"DELETE FROM mysql.{table} WHERE Db = '{LEDGER}'")
        await mysql_server.execute("FLUSH PRIVILEGES")


async def test_what_everybody_has_by_a_row_without_a_user_is_told(modest: At, mysql_server: MySQLServer) -> None:
    await modest.make(user(KEEPER.username))
    await modest.make(user())
    await mysql_server.execute(
        f"INSERT INTO mysql.db (Host, Db, User, Select_priv) VALUES ('%', '{LEDGER}', '', 'Y')"
    )
    await mysql_server.execute("FLUSH PRIVILEGES")
    for _ in range(2):
        with pytest.raises(StillGranted, match=r"revoking SELECT on database ledger, .* from everybody") as told:
            await modest.make(ledger())
        assert "DELETE and FLUSH PRIVILEGES" in with_next_step(told.value)
    assert LEDGER not in await mysql_server.databases()
    await mysql_server.execute(f"DELETE FROM mysql.db WHERE Db = '{LEDGER}' AND User = ''")
    await mysql_server.execute("FLUSH PRIVILEGES")
    assert await modest.make(ledger()) == ["DatabaseCreated", "GrantsRestored"]
    assert not await mysql_server.can_log_in(CLERK, LEDGER)


async def test_what_everybody_has_by_mariadbs_public_is_revoked(modest: At, mysql_server: MySQLServer) -> None:
    if not await is_mariadb(mysql_server):
        pytest.skip("MariaDB alone")
    await modest.make(user(KEEPER.username))
    await mysql_server.execute_unprepared("GRANT SELECT ON ledger.* TO PUBLIC")
    assert await modest.make(ledger()) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]


async def test_a_database_that_is_there_is_closed_to_everybody(modest: At, mysql_server: MySQLServer) -> None:
    """As PostgreSQL's is: nobody else comes in who was not granted it."""
    await modest.make(user(KEEPER.username))
    await modest.make(user())
    await modest.make(ledger())
    await mysql_server.execute("CREATE USER ''@'%'")
    await mysql_server.execute("GRANT SELECT ON ledger.* TO ''@'%'")
    try:
        assert await mysql_server.can_log_in(CLERK, LEDGER)
        assert await modest.make(ledger()) == ["PublicAccessRevoked"]
        assert not await mysql_server.can_log_in(CLERK, LEDGER)
        assert await modest.make(ledger()) == []
    finally:
        await mysql_server.execute("DROP USER ''@'%'")


async def test_what_opens_a_database_that_is_there_by_a_row_without_a_user_is_told(
    modest: At, mysql_server: MySQLServer
) -> None:
    await modest.make(user(KEEPER.username))
    await modest.make(ledger())
    await mysql_server.execute(
        f"INSERT INTO mysql.db (Host, Db, User, Select_priv) VALUES ('%', '{LEDGER}', '', 'Y')"
    )
    await mysql_server.execute("FLUSH PRIVILEGES")
    with pytest.raises(StillGranted, match="revoking SELECT on database ledger from everybody") as told:
        await modest.make(ledger())
    assert "DELETE and FLUSH PRIVILEGES" in with_next_step(told.value)
    await mysql_server.execute(f"DELETE FROM mysql.db WHERE Db = '{LEDGER}' AND User = ''")
    await mysql_server.execute("FLUSH PRIVILEGES")
    assert await modest.make(ledger()) == []


async def test_a_database_that_is_there_is_closed_to_mariadbs_public(modest: At, mysql_server: MySQLServer) -> None:
    if not await is_mariadb(mysql_server):
        pytest.skip("MariaDB alone")
    await modest.make(user(KEEPER.username))
    await modest.make(ledger())
    await mysql_server.execute_unprepared("GRANT SELECT ON ledger.* TO PUBLIC")
    assert await modest.make(ledger()) == ["PublicAccessRevoked"]
    assert await modest.make(ledger()) == []


async def test_so_it_is_by_its_name_alone_where_that_is_a_pattern(mysql_server: MySQLServer) -> None:
    """Whoever grants it thinks of one database."""
    at, named = At(mysql_server), "led_ger"
    await at.make(user(KEEPER.username))
    await at.make(user())
    await at.make(ledger(named))
    mariadb = await is_mariadb(mysql_server)
    whom = "PUBLIC" if mariadb else "''@'%'"
    if not mariadb:
        await mysql_server.execute("CREATE USER ''@'%'")
    try:
        await mysql_server.execute_unprepared(f"GRANT SELECT ON led_ger.* TO {whom}")
        await mysql_server.execute_unprepared(f"GRANT INSERT ON `led\\_ger`.* TO {whom}")
        assert await mysql_server.can_log_in(CLERK, named)
        assert set(await at.make(ledger(named))) == {"PublicAccessRevoked"}
        assert not await mysql_server.can_log_in(CLERK, named)
        assert await at.make(ledger(named)) == []
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


async def test_a_user_may_be_called_as_mariadbs_public(modest: At, mysql_server: MySQLServer) -> None:
    if not await is_mariadb(mysql_server):
        pytest.skip("MariaDB alone")
    await modest.make(user(KEEPER.username))
    await modest.make(ledger())
    await mysql_server.execute_unprepared("CREATE USER 'PUBLIC'@'%'")
    try:
        await mysql_server.execute_unprepared("GRANT INSERT ON ledger.* TO 'PUBLIC'@'%'")
        await mysql_server.execute_unprepared("GRANT SELECT ON ledger.* TO PUBLIC")
        assert await modest.make(ledger()) == ["PublicAccessRevoked"]
        assert await modest.make(ledger()) == []
        assert await has(mysql_server, "PUBLIC") == {"INSERT"}
    finally:
        await mysql_server.execute_unprepared("DROP USER 'PUBLIC'@'%'")


async def test_who_may_do_it_in_each_database_keeps_what_it_has(modest: At, mysql_server: MySQLServer) -> None:
    """On MySQL nobody takes anything from who has SYSTEM_USER without having that."""
    await modest.make(user(KEEPER.username))
    await mysql_server.execute("CREATE USER dba@'%'")
    await mysql_server.execute("GRANT ALL ON *.* TO dba@'%' WITH GRANT OPTION")
    await mysql_server.execute("GRANT ALL ON ledger.* TO dba@'%'")
    assert await modest.make(ledger()) == ["DatabaseCreated", "GrantsRestored"]


async def test_who_has_more_than_the_administrator_is_told_and_keeps_nobody_elses(
    modest: At, mysql_server: MySQLServer
) -> None:
    await modest.make(user(KEEPER.username))
    await mysql_server.execute("CREATE USER clerk@'%'")
    await mysql_server.execute("CREATE USER reader@'%'")
    for name, what in (("clerk", "SELECT, EVENT"), (KEEPER.username, "EVENT"), ("reader", "SELECT")):
        await mysql_server.execute(f"GRANT {what} ON ledger.* TO {{}}@'%'", name)
    await mysql_server.execute("REVOKE EVENT ON ledger.* FROM caretaker@'%'")
    with pytest.raises(
        StillGranted, match=r"revoking EVENT, SELECT on database ledger, .* from clerk: Access denied"
    ):
        await modest.make(ledger())
    assert await has(mysql_server, "reader") == set()
    assert LEDGER not in await mysql_server.databases()
    await mysql_server.execute("REVOKE EVENT ON ledger.* FROM clerk@'%'")
    assert await modest.make(ledger()) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]


@pytest.fixture
async def namesakes(modest: At, mysql_server: MySQLServer) -> None:
    """A user and a role of one name."""
    if not await is_mariadb(mysql_server):
        pytest.skip("MariaDB alone")
    await modest.make(user(KEEPER.username))
    await modest.make(user())
    await mysql_server.execute_unprepared("CREATE ROLE clerk")


@pytest.mark.usefixtures("namesakes")
@pytest.mark.parametrize("grantees", [("clerk@'%'",), ("clerk",), ("clerk@'%'", "clerk")], ids=str)
async def test_user_and_role_of_one_name_lose_what_each_had(
    modest: At, mysql_server: MySQLServer, grantees: tuple[str, ...]
) -> None:
    for grantee in grantees:
        await mysql_server.execute(f"GRANT SELECT ON ledger.* TO {grantee}")
    made = await modest.make(ledger())
    assert made == [*(["GrantRevoked"] * len(grantees)), "DatabaseCreated", "GrantsRestored"]
    assert await has(mysql_server, "clerk") == await has(mysql_server, "clerk", host="") == set()


@pytest.mark.usefixtures("namesakes")
async def test_who_owns_a_database_does_not_by_a_role_of_its_name(modest: At, mysql_server: MySQLServer) -> None:
    await mysql_server.execute_unprepared("DROP ROLE clerk")
    await mysql_server.execute_unprepared(f"CREATE ROLE {KEEPER.username}")
    try:
        await mysql_server.execute(f"GRANT SELECT ON ledger.* TO {KEEPER.username}")
        assert await modest.make(ledger()) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]
        assert await has(mysql_server, KEEPER.username) == {"SELECT", "INSERT"}
    finally:
        await mysql_server.execute_unprepared(f"DROP ROLE {KEEPER.username}")


@pytest.mark.usefixtures("namesakes")
async def test_the_end_of_a_user_takes_nothing_from_a_role_of_its_name(modest: At, mysql_server: MySQLServer) -> None:
    await mysql_server.execute(f"CREATE DATABASE {LEDGER}")
    for grantee in ("clerk@'%'", "clerk"):
        await mysql_server.execute(f"GRANT SELECT ON ledger.* TO {grantee}")
    assert await modest.make(user(ended=True)) == ["UserLocked", "GrantRevoked"]
    assert await has(mysql_server, "clerk") == set()
    assert await has(mysql_server, "clerk", host="") == {"SELECT"}
