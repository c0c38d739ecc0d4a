"""Real servers keep what users of MySQL and MariaDB may have; and what it comes to, tried by who has it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

import asyncmy
import pytest

from database_support.contracts.mysql_accounts import (
    SHOP,
    MySQLAccountsHarness,
    TestAccounts,
    at,
    mark_named,
    on_server,
    on_table,
    role,
    user,
)
from database_support.servers.mysql import RealMySQLServer
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.errors import EngineError, InvalidName, ObjectsMissing, SqlFailed
from steersman_databases.engines.mysql.sql.verifiers import NATIVE, native_verifier
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredGrant, OwnershipMark, SecurableKind
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.reconcile_sql import reconcile

__all__ = ["TestAccounts", "at"]


@pytest.fixture
def like_mysql(mysql_server: RealMySQLServer) -> RealMySQLServer:
    return mysql_server


async def test_foreign_grants_on_database_are_revoked(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await at.reconcile(user())
    await mysql_server.execute("GRANT ALL ON {}.* TO {}@'%' WITH GRANT OPTION", mysql_server.in_grants(SHOP), "clerk")
    await mysql_server.execute("GRANT ALL ON {}.{} TO {}@'%'", SHOP, "till", "clerk")
    assert await at.reconcile(user()) == ["GrantRevoked"] * 2
    assert await at.held_privileges("clerk") == set()


CLERK = SqlCredentials("clerk", "s3cret")
DECLARED, OTHER = (
    f"{NATIVE} USING '{native_verifier(word).partition(':')[2]}'" for word in (CLERK.password, "other")
)


@pytest.mark.parametrize(
    "ways",
    [
        *(f"{DECLARED} OR unix_socket", f"unix_socket OR {DECLARED}", "unix_socket"),
        *(f"{DECLARED} OR {OTHER}", f"{OTHER} OR {DECLARED}", f"{DECLARED} OR {OTHER} OR unix_socket"),
        f"{NATIVE} USING 'invalid' OR {DECLARED}",
    ],
)
async def test_additional_authentication_methods_are_removed(mariadb: RealMySQLServer, ways: str) -> None:
    at, shown = MySQLAccountsHarness(mariadb), "SHOW CREATE USER {}@'%'"
    try:
        await at.reconcile(user())
        declared = await mariadb.execute(shown, "clerk")
        await mariadb.execute(f"ALTER USER {{}}@'%' IDENTIFIED VIA {ways}", "clerk")
        assert len(await at.reconcile(user())) == 1
        assert await mariadb.execute(shown, "clerk") == declared
    finally:
        await at.drop("clerk")
        await at.close()


async def test_grant_applies_to_exact_database_name_only(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    alike = SHOP.replace("_", "x").replace("%", "yy")
    await mysql_server.execute("CREATE DATABASE {}", alike)
    try:
        await at.reconcile(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
        assert await mysql_server.can_log_in(CLERK, SHOP) and not await mysql_server.can_log_in(CLERK, alike)
    finally:
        await mysql_server.execute("DROP DATABASE {}", alike)


async def test_grants_survive_partial_revokes_change(mysql: RealMySQLServer) -> None:
    """What opened a database opens none any more then, or all that are called alike."""
    at, database = MySQLAccountsHarness(mysql), "read_other%wise"
    clerk = user(grants=(DesiredGrant(database, frozenset({"SELECT"})),))
    await mysql.execute("CREATE DATABASE {}", database)
    try:
        await at.reconcile(clerk)
        for now in ("ON", "OFF"):
            await mysql.execute(f"SET GLOBAL partial_revokes = {now}")
            assert await mysql.can_log_in(CLERK, database) is (now == "OFF")
            assert sorted(await at.reconcile(clerk)) == ["GrantRevoked", "PrivilegesGranted"]
            assert await at.held_privileges("clerk") == {(f"database {database}", "SELECT")}
            assert await mysql.can_log_in(CLERK, database)
    finally:
        await mysql.execute("SET GLOBAL partial_revokes = OFF")
        await mysql.execute("DROP DATABASE {}", database)
        await at.drop("clerk")
        await at.close()


DEFINED = {
    "view v": "CREATE DEFINER = {}@'%' VIEW {}.v AS SELECT coin FROM {}.till",
    "function f": "CREATE DEFINER = {}@'%' FUNCTION {}.f() RETURNS int READS SQL DATA RETURN (SELECT 1 FROM {}.till)",
    "procedure p": "CREATE DEFINER = {}@'%' PROCEDURE {}.p() SELECT coin FROM {}.till",
    "trigger t": "CREATE DEFINER = {}@'%' TRIGGER {}.t BEFORE INSERT ON {}.till FOR EACH ROW SET NEW.note = 1",
    "event e": "CREATE DEFINER = {}@'%' EVENT {}.e ON SCHEDULE EVERY 1 DAY DISABLE DO DELETE FROM {}.till",
}
"""What acts as a user, and how it is made."""
READS = DesiredGrant(SHOP, frozenset({"SELECT"}), SecurableKind.TABLE, None, ("v",))
CALLS = DesiredGrant(SHOP, frozenset({"EXECUTE"}), SecurableKind.FUNCTION, None, ("p",))
READER = SqlCredentials("reader", "s3cret")


@contextlib.asynccontextmanager
async def defined(server: RealMySQLServer, definer: str, *which: str) -> AsyncGenerator[None]:
    """What acts as a user, during the block."""
    try:
        for what in which:
            await server.execute_unprepared(DEFINED[what], definer, SHOP, SHOP)
        yield
    finally:
        for what in which:
            kind, _, name = what.partition(" ")
            await server.execute_unprepared(f"DROP {kind} IF EXISTS {{}}.{{}}", SHOP, name)


async def refused(at: MySQLAccountsHarness, name: str = "clerk") -> str:
    """Why a user is not dropped, told the same each time."""
    told: set[str] = set()
    for _ in range(2):
        with pytest.raises(EngineError) as caught:
            await at.drop(name)
        told.add(str(caught.value))
    [words] = told
    assert await at.state(name) is not None
    return words


async def test_definer_is_locked_until_objects_are_gone(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await at.reconcile(user())
    async with defined(mysql_server, "clerk", "view v", "procedure p"):
        await at.reconcile(user(grants=(on_table("SELECT"), CALLS)))
        await at.reconcile(user("reader", grants=(READS, CALLS)))
        told = f"clerk is the definer of procedure {SHOP}.p and view {SHOP}.v"
        assert await refused(at) == f"{told}. Change their definer, or drop them"
        assert not await mysql_server.can_log_in(CLERK, SHOP)
        for use in ("SELECT * FROM v", "CALL p()"):
            await mysql_server.execute(use, credentials=READER, database=SHOP)
        await mysql_server.execute_unprepared("DROP VIEW {}.v", SHOP)
        assert f"the definer of procedure {SHOP}.p." in await refused(at)
        await mysql_server.execute_unprepared("DROP PROCEDURE {}.p", SHOP)
        await mysql_server.execute_unprepared(DEFINED["procedure p"], "accounts", SHOP, SHOP)
        await at.reconcile(user("reader", grants=(CALLS,)))
        await at.drop("clerk")
        assert "clerk" not in await mysql_server.users()
        await mysql_server.execute("CALL p()", credentials=READER, database=SHOP)


async def test_definer_objects_are_summarised(at: MySQLAccountsHarness, mysql_server: RealMySQLServer) -> None:
    await at.reconcile(user())
    async with defined(mysql_server, "clerk", *DEFINED):
        named = f"event {SHOP}.e, function {SHOP}.f, procedure {SHOP}.p and 2 more."
        assert named in await refused(at)
    for what in DEFINED:
        async with defined(mysql_server, "clerk", what):
            assert what.replace(" ", f" {SHOP}.") in await refused(at)
    await at.drop("clerk")
    assert "clerk" not in await mysql_server.users()


async def test_object_defined_during_drop_is_kept(at: MySQLAccountsHarness, mysql_server: RealMySQLServer) -> None:
    await at.reconcile(user())
    names = frozenset({"clerk"})
    survey = await at.sql_engine.inspect(at.connections, InspectionScope(names, dropped_databases=names))
    plan = at.sql_engine.plan_drop_user(survey, "clerk", mark_named("clerk"), None)
    async with defined(mysql_server, "clerk", "view v"):
        with pytest.raises(EngineError, match="clerk is the definer of view"):
            await at.sql_engine.execute(at.connections, plan)
        assert await at.state("clerk") is not None


async def test_definer_of_other_host_does_not_block_drop(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await at.reconcile(user())
    others = DEFINED["view v"].replace("'%'", "'10.%'")
    await mysql_server.execute("CREATE USER {}@'10.%'", "clerk")
    await mysql_server.execute(others, "clerk", SHOP, SHOP)
    try:
        async with defined(mysql_server, "Clerk", "procedure p"):
            await at.drop("clerk")
        assert await at.state("clerk") is None
    finally:
        await mysql_server.execute("DROP VIEW {}.v", SHOP)
        await mysql_server.execute("DROP USER {}@'10.%'", "clerk")


async def test_database_objects_are_dropped_before_definer(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await at.reconcile(user(revoke_undeclared=False))
    await at.reconcile(DesiredDatabase("definers", "clerk", mark=mark_named("clerk")))
    await mysql_server.execute("CREATE DEFINER = {}@'%' VIEW definers.v AS SELECT 1 AS one", "clerk")
    assert "view definers.v" in await refused(at)
    await at.drop_database("definers", mark_named("clerk"))
    await at.drop("clerk")
    assert "clerk" not in await mysql_server.users()


async def test_restricted_administrator_reports_definers(mysql: RealMySQLServer) -> None:
    """As that of many managed servers: there the server refuses to drop them, error 4006."""
    at, right = MySQLAccountsHarness(mysql), "ALLOW_NONEXISTENT_DEFINER"
    await mysql.execute(f"REVOKE {right} ON *.* FROM {{}}@'%'", mysql.administrator.username)
    try:
        await mysql.execute("CREATE DATABASE {}", "modest")
        await at.reconcile(user())
        await mysql.execute("CREATE DEFINER = {}@'%' VIEW modest.v AS SELECT 1 AS one", "clerk")
        assert "the definer of view modest.v." in await refused(at)
        await mysql.execute("DROP DATABASE {}", "modest")
        await at.drop("clerk")
        assert "clerk" not in await mysql.users()
    finally:
        await mysql.execute("DROP DATABASE IF EXISTS {}", "modest")
        await mysql.execute("DROP USER IF EXISTS {}@'%'", "clerk")
        await mysql.execute(f"GRANT {right} ON *.* TO {{}}@'%'", mysql.administrator.username)
        await at.close()


async def test_definer_role_is_kept(mariadb: RealMySQLServer) -> None:
    """There a role is no account: who becomes one is dropped and made anew."""
    at = MySQLAccountsHarness(mariadb)
    await mariadb.execute("CREATE DATABASE {}", "modest")
    try:
        for one, other, definer in ((role("clerk"), user(), "{}"), (user(), role("clerk"), "{}@'%'")):
            await at.reconcile(one)
            await mariadb.execute(f"CREATE DEFINER = {definer} VIEW modest.v AS SELECT 1 AS one", "clerk")
            await mariadb.execute_unprepared(f"CREATE DEFINER = {definer} PROCEDURE modest.p() SELECT 1", "clerk")
            assert "the definer of procedure modest.p and view modest.v." in await refused(at)
            with pytest.raises(EngineError, match=r"the definer of procedure modest.p and view modest\.v\."):
                await reconcile(at.sql_engine, at.connections, other)
            assert await mariadb.execute("SELECT one FROM modest.v") == [(1,)]
            await mariadb.execute("DROP VIEW modest.v")
            await mariadb.execute_unprepared("DROP PROCEDURE modest.p")
            await at.reconcile(other)
            await at.drop("clerk")
            assert await at.state("clerk") is None
    finally:
        await mariadb.execute("DROP DATABASE {}", "modest")
        await at.drop("clerk")
        await at.close()


async def test_next_user_of_name_inherits_no_definer(at: MySQLAccountsHarness, mysql_server: RealMySQLServer) -> None:
    """Who defined a procedure lends it his rights, and his name to whoever gets it next."""
    await at.reconcile(user())
    create = "CREATE DEFINER = {}@'%' PROCEDURE {}.{}() SELECT 1"
    await mysql_server.execute_unprepared(create, "clerk", SHOP, "count_all")
    await mysql_server.execute("DROP USER {}@'%'", "clerk")
    try:
        other = replace(user(), mark=OwnershipMark("c1", "DatabaseUser", "elsewhere", "clerk"))
        for _ in range(2):
            with pytest.raises(InvalidName, match="stored programs of a previous user"):
                await at.reconcile(other)
        assert "clerk" not in await mysql_server.users()
        assert "UserCreated" in await at.reconcile(user()), "the same one may come back"
        await mysql_server.execute("DROP USER {}@'%'", "clerk")
        assert "UserCreated" in await at.reconcile(replace(other, adopt=True))
    finally:
        await mysql_server.execute_unprepared("DROP PROCEDURE {}.{}", SHOP, "count_all")
        await mysql_server.execute("DROP USER IF EXISTS {}@'%'", "clerk")
    assert "UserCreated" in await at.reconcile(user())


async def test_privilege_needing_superuser_is_reported(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    """In a cluster the operator has what it may give, and a person may have given more by hand."""
    await at.reconcile(user())
    await mysql_server.execute("GRANT FILE, RELOAD, INSERT ON *.* TO {}@'%' WITH GRANT OPTION", "clerk")
    if mysql_server.administrator == mysql_server.superuser:
        assert await at.reconcile(user()) == ["GrantRevoked"]
        return
    await mysql_server.execute("GRANT BACKUP_ADMIN ON *.* TO {}@'%'", "clerk")
    beyond = ["FILE", "RELOAD", *(["BACKUP_ADMIN"] if mysql_server.restricted else [])]
    with pytest.raises(ObjectsMissing) as caught:
        await at.reconcile(user(password="an0ther"))
    words = "clerk has {} on the whole server, and the operator lacks it: revoke it manually"
    assert list(caught.value.missing) == sorted(map(words.format, beyond))
    assert [one.reason for one in caught.value.changes] == ["PasswordReset", "GrantRevoked"]
    with pytest.raises(ObjectsMissing, match="clerk has RELOAD") as again:
        await at.reconcile(user(password="an0ther"))
    assert again.value.changes == ()
    assert await at.held_privileges("clerk") == set()
    await mysql_server.execute(f"REVOKE {', '.join(beyond)} ON *.* FROM {{}}@'%'", "clerk")
    assert await at.reconcile(user(password="an0ther")) == []


async def test_dynamic_grant_option_is_not_revoked_forever(mysql: RealMySQLServer) -> None:
    """The server takes it away with the privilege alone."""
    at, clerk = MySQLAccountsHarness(mysql), user(grants=(on_server("FLUSH_STATUS"),))
    try:
        await at.reconcile(clerk)
        await mysql.execute("GRANT FLUSH_STATUS, BACKUP_ADMIN ON *.* TO clerk@'%' WITH GRANT OPTION")
        assert await at.reconcile(clerk) == ["GrantRevoked"]
        assert await at.held_privileges("clerk") == {("the whole server", "FLUSH_STATUS")}
    finally:
        await at.drop("clerk")
        await at.close()


async def test_proxy_privilege_is_reported(at: MySQLAccountsHarness, mysql_server: RealMySQLServer) -> None:
    await at.reconcile(user())
    mine = "User = 'clerk' AND Proxied_user = 'teller'"
    await mysql_server.execute(
        "INSERT INTO mysql.proxies_priv (Host, User, Proxied_host, Proxied_user, With_grant, Grantor)"
        " VALUES ('%', 'clerk', '10.%', 'teller', 0, '')"
    )
    await mysql_server.execute("FLUSH PRIVILEGES")
    try:
        with pytest.raises(ObjectsMissing, match=r"clerk can act as `teller`@`10.%`: revoke that manually"):
            await at.reconcile(user(password="an0ther"))
    finally:
        await mysql_server.execute(f"DELETE FROM mysql.proxies_priv WHERE {mine}")
        await mysql_server.execute("FLUSH PRIVILEGES")
    # All else was done.
    assert await at.reconcile(user(password="an0ther")) == []


@pytest.fixture
def with_table(mysql_server: RealMySQLServer) -> Callable[[str, str, tuple[str, ...]], Awaitable[object]]:
    def make(database: str, table: str, columns: tuple[str, ...]) -> Awaitable[object]:
        told = ", ".join("{} int" for _ in columns)
        return mysql_server.execute(f"CREATE TABLE {{}}.{{}} ({told})", database, table, *columns)

    return make


@pytest.mark.parametrize("limit", ["MAX_USER_CONNECTIONS", "MAX_CONNECTIONS_PER_HOUR"])
async def test_limits_are_checked_after_password(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer, limit: str
) -> None:
    await at.reconcile(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
    await mysql_server.execute(f"ALTER USER {{}}@'%' WITH {limit} 1", "clerk")
    async with mysql_server.connected(CLERK, SHOP):
        with pytest.raises(asyncmy.errors.MySQLError, match="has exceeded"):
            await mysql_server.execute("SELECT 1", credentials=CLERK)
        assert await at.sql_engine.can_log_in(at.connections.server, CLERK, SHOP)
        assert not await at.sql_engine.can_log_in(at.connections.server, SqlCredentials("clerk", "wr0ng"), SHOP)
        await mysql_server.execute("ALTER USER {}@'%' ACCOUNT LOCK", "clerk")
        with pytest.raises(SqlFailed, match="locked"):
            await at.sql_engine.can_log_in(at.connections.server, CLERK, SHOP)


async def test_dropped_user_sessions_are_terminated(at: MySQLAccountsHarness, mysql_server: RealMySQLServer) -> None:
    await at.reconcile(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
    async with mysql_server.connected(CLERK, SHOP) as connection:
        await at.drop("clerk")
        with pytest.raises(asyncmy.errors.OperationalError):
            await connection.cursor().execute("SELECT 1")
    assert await at.state("clerk") is None


async def test_sessions_of_same_name_other_host_continue(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await at.reconcile(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
    await mysql_server.execute("CREATE USER {}@'127.0.0.1' IDENTIFIED BY 's3cret'", "clerk")
    try:
        async with mysql_server.connected(CLERK, None) as connection:
            await at.drop("clerk")
            await connection.cursor().execute("SELECT 1")
    finally:
        await mysql_server.execute("DROP USER {}@'127.0.0.1'", "clerk")


async def test_sessions_of_similar_name_continue(at: MySQLAccountsHarness, mysql_server: RealMySQLServer) -> None:
    others = SqlCredentials("Clerk", "s3cret")
    await at.reconcile(user(grants=(DesiredGrant(SHOP, frozenset({"SELECT"})),)))
    await mysql_server.execute("CREATE USER {}@'%' IDENTIFIED BY 's3cret'", others.username)
    try:
        async with mysql_server.connected(others, None) as connection:
            await at.drop("clerk")
            await connection.cursor().execute("SELECT 1")
    finally:
        await mysql_server.execute("DROP USER {}@'%'", others.username)


OPENS_NOT = {
    "expired in a day": ("PASSWORD EXPIRE INTERVAL 1 DAY", "PasswordReset"),
    "without a certificate": ("REQUIRE X509", "UserAltered"),
    "without a certificate of somebody's": ("REQUIRE SUBJECT '/CN=clerk'", "UserAltered"),
    "by a limit that lets nobody in": ("WITH MAX_USER_CONNECTIONS -1", "UserAltered"),
}
"""How the right password opens nothing, and what is told of it when it does again."""


@pytest.mark.parametrize("why", OPENS_NOT)
async def test_password_expiry_is_removed(at: MySQLAccountsHarness, mysql_server: RealMySQLServer, why: str) -> None:
    options, told = OPENS_NOT[why]
    [(version,)] = await mysql_server.execute("SELECT VERSION()")
    if "limit" in why and "MariaDB" not in version:
        pytest.skip("MariaDB alone has it")
    clerk = user(grants=(on_table("SELECT"),))
    await at.reconcile(clerk)
    declared = await mysql_server.execute("SHOW CREATE USER {}@'%'", "clerk")
    await mysql_server.execute(f"ALTER USER {{}}@'%' {options}", "clerk")
    assert await at.reconcile(clerk) == [told]
    assert await mysql_server.can_log_in(CLERK, SHOP)
    if told == "UserAltered":
        assert await mysql_server.execute("SHOW CREATE USER {}@'%'", "clerk") == declared


async def test_tls_requirement_is_kept(at: MySQLAccountsHarness, mysql_server: RealMySQLServer) -> None:
    await at.reconcile(user())
    await mysql_server.execute("ALTER USER {}@'%' REQUIRE SSL", "clerk")
    assert await at.reconcile(user()) == []


async def test_password_does_not_expire_by_server_default(
    at: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await at.reconcile(user())
    await mysql_server.execute("ALTER USER {}@'%' PASSWORD EXPIRE DEFAULT", "clerk")
    assert await at.reconcile(user()) == []
    await mysql_server.execute("SET GLOBAL default_password_lifetime = 1")
    try:
        assert await at.reconcile(user()) == ["PasswordReset"]
    finally:
        await mysql_server.execute("SET GLOBAL default_password_lifetime = DEFAULT")
