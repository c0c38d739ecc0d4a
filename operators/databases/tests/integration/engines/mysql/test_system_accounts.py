"""What the operator does itself on the servers of a cluster of MySQL's: accounts and variables."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from database_support.servers.mysql import RealMySQLServer
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.engines import ServerUnreachable, SqlCredentials
from steersman_databases.engines.mysql.config.parameters import classify, effective_value
from steersman_databases.engines.mysql.config.variables_catalog import variables
from steersman_databases.engines.mysql.sql.engine import MySQLSqlEngine
from steersman_databases.engines.mysql.sql.session import MySQLSession, connect
from steersman_databases.engines.mysql.sql.system_accounts import ensure_accounts, statements
from steersman_databases.engines.naming import OPERATOR_ROLE
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.data_takeover import DataOwner
from steersman_databases.engines.sql.desired import OwnershipMark
from steersman_databases.engines.sql.inspection import InspectionScope

HOLDER = DataOwner("the first", "5f0c4a71", {})


def administrated(mysql: RealMySQLServer) -> DatabaseServer:
    """The server, as somebody who may do everything logs in."""
    login = Login(ADMINISTRATOR.username, ADMINISTRATOR.password)
    return DatabaseServer("mysql", mysql.endpoint, login, Verification(TLSMode.REQUIRE))


async def test_accounts_created_once_with_secret_password(
    mysql: RealMySQLServer,
) -> None:
    server, first, second = (
        administrated(mysql),
        SqlCredentials("root", 'it\'s "s3cret"'),
        SqlCredentials("root", "other"),
    )
    assert {change.reason for change in await ensure_accounts(server, first, HOLDER)} == {
        "AccountsUpdated",
        "PasswordReset",
    }
    assert await ensure_accounts(server, first, HOLDER) == ()
    assert await mysql.can_log_in(first, "mysql")
    assert [change.reason for change in await ensure_accounts(server, second, HOLDER)] == ["PasswordReset"]
    assert await mysql.can_log_in(second, "mysql") and not await mysql.can_log_in(first, "mysql")
    for name in ("steersman_replication", "steersman_operator", "steersman_superuser"):
        assert not await mysql.can_log_in(SqlCredentials(name, ""), "mysql"), (
            "without its certificate nobody comes in"
        )
        rows = await mysql.execute(f"SELECT x509_subject FROM mysql.user WHERE User = '{name}'")
        assert rows == [(f"/CN={name}".encode(),)] or rows == [(f"/CN={name}",)]


async def rights_of(mysql: RealMySQLServer, *names: str) -> list[str]:
    """All that SHOW GRANTS tells of the cluster's own accounts."""
    told = [await mysql.execute("SHOW GRANTS FOR {}@'%'", name) for name in names]
    return sorted(grant for rows in told for (grant,) in rows)


OPERATORS = {
    # Of those that are not dynamic there is one option for all.
    True: {
        *("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER", "EXECUTE"),
        *("CREATE TEMPORARY TABLES", "LOCK TABLES", "CREATE VIEW", "SHOW VIEW", "CREATE ROUTINE", "ALTER ROUTINE"),
        *("EVENT", "TRIGGER", "PROCESS", "SHOW DATABASES", "REPLICATION SLAVE", "REPLICATION CLIENT"),
        *("CREATE USER", "SHUTDOWN"),
        *("FLUSH_OPTIMIZER_COSTS", "FLUSH_STATUS", "RESOURCE_GROUP_USER", "SHOW_ROUTINE"),
    },
    False: {"ALLOW_NONEXISTENT_DEFINER", "CONNECTION_ADMIN", "ROLE_ADMIN"},
}
"""All privileges of the operator's account, by whether it may hand them on. Think before you add one: with
SYSTEM_USER a mistake could touch the administrator's account.
"""


async def test_operator_privileges_are_minimal(mysql: RealMySQLServer) -> None:
    await ensure_accounts(administrated(mysql), SqlCredentials("root", "other"), HOLDER)
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for grant in await rights_of(mysql, OPERATOR_ROLE):
        match = re.fullmatch(r"GRANT (.*) ON \*\.\* TO `steersman_operator`@`%`( WITH GRANT OPTION)?", grant)
        assert match is not None, grant
        found[match[2] is not None] |= set(re.split(", ?", match[1]))
    assert found == OPERATORS


async def test_accounts_narrowed_after_any_interruption(mysql: RealMySQLServer) -> None:
    """An earlier version of the operator may have given them more, or somebody."""
    server, root, names = (
        administrated(mysql),
        SqlCredentials("root", "other"),
        ("steersman_replication", OPERATOR_ROLE),
    )
    await ensure_accounts(server, root, HOLDER)
    declared = await rights_of(mysql, *names)
    await mysql.execute("CREATE USER IF NOT EXISTS mighty")

    async def go_astray() -> None:
        for name in names:
            await mysql.execute(
                "GRANT FILE, RELOAD, BACKUP_ADMIN, SYSTEM_USER ON *.* TO {}@'%' WITH GRANT OPTION", name
            )
            await mysql.execute("GRANT SELECT ON mysql.user TO {}@'%'", name)
            await mysql.execute("GRANT ALL ON {}.* TO {}@'%'", "sh\\_%op", name)
            await mysql.execute("GRANT mighty TO {}@'%' WITH ADMIN OPTION", name)
        await mysql.execute("REVOKE ROLE_ADMIN, SELECT ON *.* FROM {}@'%'", OPERATOR_ROLE)
        await mysql.execute("GRANT CONNECTION_ADMIN ON *.* TO {}@'%' WITH GRANT OPTION", OPERATOR_ROLE)
        await mysql.execute("REVOKE CONNECTION_ADMIN ON *.* FROM {}@'%'", "steersman_replication")

    await go_astray()
    assert [change.reason for change in await ensure_accounts(server, root, HOLDER)] == ["AccountsUpdated"]
    assert await rights_of(mysql, *names) == declared
    assert await ensure_accounts(server, root, HOLDER) == ()
    for cut in range(10, 400, 23):
        await go_astray()
        async with mysql.cut_after(cut) as endpoint:
            try:
                await ensure_accounts(replace(server, endpoint=endpoint), root, HOLDER)
                whole = True
            except ServerUnreachable:
                whole = False
        if not whole:
            await ensure_accounts(server, root, HOLDER)
        assert await rights_of(mysql, *names) == declared
        assert await ensure_accounts(server, root, HOLDER) == ()
        if whole:
            break
    else:
        pytest.fail("it never came to its end")


@pytest.mark.parametrize("name", ["steersman_replication", OPERATOR_ROLE, "steersman_superuser"])
@pytest.mark.parametrize(
    "change",
    [
        "ACCOUNT LOCK",
        "REQUIRE NONE",
        "REQUIRE SUBJECT '/CN=somebody'",
        "REQUIRE SUBJECT '/CN={NAME}'",
        "REQUIRE SUBJECT '/CN={name}' AND ISSUER '/CN=somebody'",
        "IDENTIFIED WITH caching_sha2_password BY 'chosen by hand'",
        "PASSWORD EXPIRE",
        "PASSWORD EXPIRE INTERVAL 1 DAY",
        "WITH MAX_USER_CONNECTIONS 1",
        "WITH MAX_QUERIES_PER_HOUR 1",
        "FAILED_LOGIN_ATTEMPTS 1 PASSWORD_LOCK_TIME UNBOUNDED",
        "PASSWORD REQUIRE CURRENT",
        "PASSWORD HISTORY 3 PASSWORD REUSE INTERVAL 3 DAY",
    ],
)
async def test_authentication_drift_is_restored(mysql: RealMySQLServer, name: str, change: str) -> None:
    server, root = administrated(mysql), SqlCredentials("root", "other")
    await ensure_accounts(server, root, HOLDER)
    declared = await mysql.execute("SHOW CREATE USER {}@'%'", name)
    await mysql.execute(f"ALTER USER {{}}@'%' {change.format(name=name, NAME=name.upper())}", name)
    assert await mysql.execute("SHOW CREATE USER {}@'%'", name) != declared
    assert [each.reason for each in await ensure_accounts(server, root, HOLDER)] == ["AccountsUpdated"]
    assert await mysql.execute("SHOW CREATE USER {}@'%'", name) == declared
    assert await ensure_accounts(server, root, HOLDER) == ()


async def test_administrator_password_change_is_detected(mysql: RealMySQLServer) -> None:
    server, root = administrated(mysql), SqlCredentials("root", "of the Secret")
    await ensure_accounts(server, root, HOLDER)
    sessions = MySQLSqlEngine().connect(server)

    async def kept() -> str | None:
        found = await MySQLSqlEngine().inspect(
            sessions, InspectionScope(without_contents=frozenset({"root"}), commit_settings=True)
        )
        return found.users["root"].verifier

    try:
        before = await kept()
        assert before and root.password not in before and await kept() == before
        await mysql.execute("ALTER USER root@'%' IDENTIFIED BY 'chosen by hand'")
        assert await kept() != before
    finally:
        await sessions.close()


async def test_data_takeover_locks_undeclared_users(mysql: RealMySQLServer) -> None:
    server, root = administrated(mysql), SqlCredentials("root", "other")
    await ensure_accounts(server, root, HOLDER)
    clerk = OwnershipMark("5f0c4a71", "DatabaseUser", "shop", "clerk")
    gone = SqlCredentials("it's `gone`", "s3cret")
    users = {
        "clerk": clerk.text,
        gone.username: replace(clerk, name="gone").text,
        "elsewhere": replace(clerk, cluster="another").text,
        "never-made": replace(clerk, name="never-made").text,
    }
    for name, mark in users.items():
        await mysql.execute(
            f"REPLACE INTO steersman.claims VALUES ('user', {{}}, '{mark}')".replace("{}", literal(name))
        )
        if name != "never-made":
            await mysql.execute("CREATE USER {}@'%' IDENTIFIED BY 's3cret'", name)
    second = DataOwner("the second", clerk.cluster, {clerk.text: {"clerk"}})
    try:
        assert await ensure_accounts(server, root, HOLDER) == ()
        session = await connect(
            server, Login(gone.username, gone.password), None, asyncio.get_running_loop().time() + 10
        )
        [change] = await ensure_accounts(server, root, second)
        assert change.reason == "UsersLocked" and f"locked {gone.username}:" in change.message
        with pytest.raises(ServerUnreachable):
            await session.rows("asking", "SELECT 1")
        await session.close()
        for name in ("clerk", "elsewhere", gone.username):
            assert await mysql.can_log_in(SqlCredentials(name, "s3cret"), "") is (name != gone.username), name
        assert await ensure_accounts(server, root, second) == ()
    finally:
        for name in users:
            await mysql.execute("DROP USER IF EXISTS {}@'%'", name)
        await mysql.execute("DELETE FROM steersman.claims")


async def test_recreated_namespace_keeps_retained_marks(mysql: RealMySQLServer) -> None:
    server, root = administrated(mysql), SqlCredentials("root", "other")
    clerk = OwnershipMark("5f0c4a71", "DatabaseUser", "shop", "clerk")
    cluster, mark = replace(clerk, kind="MySQLCluster", name="main"), replace(clerk, namespace_uid="uid-1")
    first, second = (DataOwner(f"{cluster.text} {uid}", cluster.cluster, {}) for uid in "12")
    kinds = ("user", "database")
    try:
        await ensure_accounts(server, root, first)
        for kind in kinds:
            await mysql.execute(f"REPLACE INTO steersman.claims VALUES ('{kind}', 'clerk', '{mark.text}')")
        await ensure_accounts(server, root, second)
        rows = await mysql.execute("SELECT kind, mark FROM steersman.claims WHERE name = 'clerk'")
        assert {(str(kind), str(text)) for kind, text in rows} == {(kind, clerk.text) for kind in kinds}
    finally:
        await mysql.execute("DELETE FROM steersman.claims")


async def test_server_shutting_down_is_not_marked_provisioned(
    mysql: RealMySQLServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_begun(_session: MySQLSession, _deadline: float) -> bool:
        return False

    monkeypatch.setattr(MySQLSession, "begin_use", not_begun)
    with pytest.raises(ServerUnreachable, match="it is stopping"):
        await ensure_accounts(administrated(mysql), SqlCredentials("root", "other"), HOLDER)


def literal(text: str) -> str:
    """A string of SQL's."""
    return "'" + text.replace("'", "''") + "'"


async def test_account_statements_are_idempotent(mysql: RealMySQLServer) -> None:
    for statement in (*statements(), *statements()):
        await mysql.execute(statement)


async def test_variables_classified_from_server_catalog(mysql: RealMySQLServer) -> None:
    known = await variables(administrated(mysql))
    assert known["max_connections"].kind == "integer" and known["slow_query_log"].kind == "bool"
    for name, value, kind in (
        ("max_connections", "151", "Same"),
        ("max_connections", "200", "Reload"),
        ("max_connections", "many", "Refused"),
        ("max_connections", "1000000000", "Refused"),
        ("slow_query_log", "ON", "Reload"),
        ("slow_query_log", "perhaps", "Refused"),
        ("innodb_buffer_pool_size", "256M", "Reload"),
        ("sql_mode", "ANSI", "Same"),
        ("group_replication_group_name", "x", "Refused"),
        ("no_such_thing", "1", "Refused"),
    ):
        assert classify(name, value, known).kind == kind, (name, value, known.get(name))
    assert effective_value("max_connections", "200", known) == "151"
