"""Real servers keep what users of MySQL and MariaDB may have; and what it comes to, tried by who has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import asyncmy
import pytest

from accounts_contract import SHOP, At, TestAccounts, at, on_server, user
from mysql_server import MySQLServer
from steersman_databases.engines import Credentials
from steersman_databases.engines.desired import Claim, DesiredGrant, ObjectKind
from steersman_databases.engines.errors import InvalidName, ObjectsMissing, SqlFailed
from steersman_databases.engines.mysql.verifiers import NATIVE, native

__all__ = ["TestAccounts", "at"]


@pytest.fixture
def like_mysql(mysql_server: MySQLServer) -> MySQLServer:
    return mysql_server


async def test_all_that_somebody_granted_on_a_database_is_revoked(at: At, mysql_server: MySQLServer) -> None:
    await at.make(user())
    await mysql_server.execute("GRANT ALL ON {}.* TO {}@'%' WITH GRANT OPTION", mysql_server.in_grants(SHOP), "clerk")
    await mysql_server.execute("GRANT ALL ON {}.{} TO {}@'%'", SHOP, "till", "clerk")
    assert await at.make(user()) == ["GrantRevoked"] * 2
    assert await at.held("clerk") == set()


CLERK = Credentials("clerk", "s3cret")
DECLARED, OTHER = (f"{NATIVE} USING '{native(word).partition(':')[2]}'" for word in (CLERK.password, "other"))


@pytest.mark.parametrize(
    "ways",
    [
        *(f"{DECLARED} OR unix_socket", f"unix_socket OR {DECLARED}", "unix_socket"),
        *(f"{DECLARED} OR {OTHER}", f"{OTHER} OR {DECLARED}", f"{DECLARED} OR {OTHER} OR unix_socket"),
        f"{NATIVE} USING 'invalid' OR {DECLARED}",
    ],
)
async def test_what_opens_an_account_beside_its_password_is_taken_away(mariadb: MySQLServer, ways: str) -> None:
    at, shown = At(mariadb), "SHOW CREATE USER {}@'%'"
    try:
        await at.make(user())
        declared = await mariadb.execute(shown, "clerk")
        await mariadb.execute(f"ALTER USER {{}}@'%' IDENTIFIED VIA {ways}", "clerk")
        assert len(await at.make(user())) == 1
        assert await mariadb.execute(shown, "clerk") == declared
    finally:
        await at.drop("clerk")
        await at.close()


async def test_a_grant_opens_the_database_of_its_name_and_no_other(at: At, mysql_server: MySQLServer) -> None:
    alike = SHOP.replace("_", "x").replace("%", "yy")
    await mysql_server.execute("CREATE DATABASE {}", alike)
    try:
        await at.make(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
        assert await mysql_server.can_log_in(CLERK, SHOP) and not await mysql_server.can_log_in(CLERK, alike)
    finally:
        await mysql_server.execute("DROP DATABASE {}", alike)


async def test_grants_follow_where_the_server_begins_to_read_names_otherwise(mysql: MySQLServer) -> None:
    """What opened a database opens none any more then, or all that are called alike."""
    at, database = At(mysql), "read_other%wise"
    clerk = user(grants=(DesiredGrant(database, frozenset({"SELECT"})),))
    await mysql.execute("CREATE DATABASE {}", database)
    try:
        await at.make(clerk)
        for now in ("ON", "OFF"):
            await mysql.execute(f"SET GLOBAL partial_revokes = {now}")
            assert await mysql.can_log_in(CLERK, database) is (now == "OFF")
            assert sorted(await at.make(clerk)) == ["GrantRevoked", "Granted"]
            assert await at.held("clerk") == {(f"database {database}", "SELECT")}
            assert await mysql.can_log_in(CLERK, database)
    finally:
        await mysql.execute("SET GLOBAL partial_revokes = OFF")
        await mysql.execute("DROP DATABASE {}", database)
        await at.drop("clerk")
        await at.close()


async def test_who_goes_leaves_what_it_made(at: At, mysql_server: MySQLServer) -> None:
    """A view runs with the rights of who defined it, and MySQL does not let that one go unless it may."""
    routine = DesiredGrant(
        SHOP, frozenset({"ALL"}), ObjectKind.FUNCTION, None, ("count_all",), with_grant_option=True
    )
    await at.make(user())
    await mysql_server.execute("CREATE DEFINER = {}@'%' VIEW {}.{} AS SELECT 1 AS one", "clerk", SHOP, "v")
    create = "CREATE DEFINER = {}@'%' PROCEDURE {}.{}() SELECT 1"
    await mysql_server.execute_unprepared(create, "clerk", SHOP, "count_all")
    await at.make(user(grants=(routine,)))
    assert {privilege for _, privilege in await at.held("clerk")} == {"EXECUTE", "ALTER ROUTINE", "GRANT OPTION"}
    await at.drop("clerk")
    assert "clerk" not in await mysql_server.users()
    await mysql_server.execute("DROP VIEW {}.{}", SHOP, "v")
    await mysql_server.execute_unprepared("DROP PROCEDURE {}.{}", SHOP, "count_all")


async def test_nobody_acts_as_the_next_user_of_the_name(at: At, mysql_server: MySQLServer) -> None:
    """Who defined a procedure lends it his rights, and his name to whoever gets it next."""
    await at.make(user())
    create = "CREATE DEFINER = {}@'%' PROCEDURE {}.{}() SELECT 1"
    await mysql_server.execute_unprepared(create, "clerk", SHOP, "count_all")
    await at.drop("clerk")
    try:
        other = replace(user(), claim=Claim("c1", "DatabaseUser", "elsewhere", "clerk"))
        for _ in range(2):
            with pytest.raises(InvalidName, match="stored programs of a former user"):
                await at.make(other)
        assert "clerk" not in await mysql_server.users()
        assert "UserCreated" in await at.make(user()), "the same one may come back"
        await at.drop("clerk")
        assert "UserCreated" in await at.make(replace(other, adopt=True))
    finally:
        await mysql_server.execute_unprepared("DROP PROCEDURE {}.{}", SHOP, "count_all")
        await mysql_server.execute("DROP USER IF EXISTS {}@'%'", "clerk")
    assert "UserCreated" in await at.make(user())


async def test_what_only_a_superuser_can_take_away_is_told(at: At, mysql_server: MySQLServer) -> None:
    """In a cluster the operator has what it may give, and a person may have given more by hand."""
    await at.make(user())
    await mysql_server.execute("GRANT FILE, RELOAD, INSERT ON *.* TO {}@'%' WITH GRANT OPTION", "clerk")
    if mysql_server.administrator == mysql_server.superuser:
        assert await at.make(user()) == ["GrantRevoked"]
        return
    await mysql_server.execute("GRANT BACKUP_ADMIN ON *.* TO {}@'%'", "clerk")
    beyond = ["FILE", "RELOAD", *(["BACKUP_ADMIN"] if mysql_server.restricted else [])]
    with pytest.raises(ObjectsMissing) as caught:
        await at.make(user(password="an0ther"))
    words = "clerk has {} on the whole server, which only who has it can revoke: do that by hand"
    assert list(caught.value.missing) == sorted(map(words.format, beyond))
    assert [one.reason for one in caught.value.changes] == ["PasswordReset", "GrantRevoked"]
    with pytest.raises(ObjectsMissing, match="clerk has RELOAD") as again:
        await at.make(user(password="an0ther"))
    assert again.value.changes == ()
    assert await at.held("clerk") == set()
    await mysql_server.execute(f"REVOKE {', '.join(beyond)} ON *.* FROM {{}}@'%'", "clerk")
    assert await at.make(user(password="an0ther")) == []


async def test_the_option_of_a_dynamic_privilege_is_not_revoked_for_ever(mysql: MySQLServer) -> None:
    """The server takes it away with the privilege alone."""
    at, clerk = At(mysql), user(grants=(on_server("FLUSH_STATUS"),))
    try:
        await at.make(clerk)
        await mysql.execute("GRANT FLUSH_STATUS, BACKUP_ADMIN ON *.* TO clerk@'%' WITH GRANT OPTION")
        assert await at.make(clerk) == ["GrantRevoked"]
        assert await at.held("clerk") == {("the whole server", "FLUSH_STATUS")}
    finally:
        await at.drop("clerk")
        await at.close()


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


@pytest.mark.parametrize("limit", ["MAX_USER_CONNECTIONS", "MAX_CONNECTIONS_PER_HOUR"])
async def test_limits_are_counted_after_the_password(at: At, mysql_server: MySQLServer, limit: str) -> None:
    await at.make(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
    await mysql_server.execute(f"ALTER USER {{}}@'%' WITH {limit} 1", "clerk")
    async with mysql_server.connected(CLERK, SHOP):
        with pytest.raises(asyncmy.errors.MySQLError, match="has exceeded"):
            await mysql_server.execute("SELECT 1", credentials=CLERK)
        assert await at.contents.opens(at.sessions.server, CLERK, SHOP)
        assert not await at.contents.opens(at.sessions.server, Credentials("clerk", "wr0ng"), SHOP)
        await mysql_server.execute("ALTER USER {}@'%' ACCOUNT LOCK", "clerk")
        with pytest.raises(SqlFailed, match="locked"):
            await at.contents.opens(at.sessions.server, CLERK, SHOP)


async def test_who_is_dropped_is_put_out(at: At, mysql_server: MySQLServer) -> None:
    await at.make(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
    async with mysql_server.connected(CLERK, SHOP) as connection:
        await at.drop("clerk")
        with pytest.raises(asyncmy.errors.OperationalError):
            await connection.cursor().execute("SELECT 1")
    assert await at.state("clerk") is None


async def test_a_stranger_of_the_same_name_goes_on(at: At, mysql_server: MySQLServer) -> None:
    await at.make(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
    await mysql_server.execute("CREATE USER {}@'127.0.0.1' IDENTIFIED BY 's3cret'", "clerk")
    try:
        async with mysql_server.connected(CLERK, None) as connection:
            await at.drop("clerk")
            await connection.cursor().execute("SELECT 1")
    finally:
        await mysql_server.execute("DROP USER {}@'127.0.0.1'", "clerk")


async def test_a_stranger_who_is_spelled_otherwise_goes_on(at: At, mysql_server: MySQLServer) -> None:
    others = Credentials("Clerk", "s3cret")
    await at.make(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
    await mysql_server.execute("CREATE USER {}@'%' IDENTIFIED BY 's3cret'", others.username)
    try:
        async with mysql_server.connected(others, None) as connection:
            await at.drop("clerk")
            await connection.cursor().execute("SELECT 1")
    finally:
        await mysql_server.execute("DROP USER {}@'%'", others.username)
