"""What the operator does itself on the servers of a cluster of MySQL's: accounts and variables."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from database_support.mysql_server import MySQLServer
from database_support.real_server import ADMINISTRATOR
from steersman_databases.engines import Credentials, MySQL, ServerUnreachable
from steersman_databases.engines.cluster_names import OPERATOR
from steersman_databases.engines.desired import Claim
from steersman_databases.engines.holder import Holder
from steersman_databases.engines.mysql.catalog import catalog
from steersman_databases.engines.mysql.furnishing import furnish, statements
from steersman_databases.engines.mysql.parameters import judge, shown_instead
from steersman_databases.engines.mysql.session import Session, connect
from steersman_databases.engines.server import Login, Server, TLSMode, Verification
from steersman_databases.engines.survey import Scope

HOLDER = Holder("the first", "5f0c4a71", {})


def administrated(mysql: MySQLServer) -> Server:
    """The server, as somebody who may do everything logs in."""
    login = Login(ADMINISTRATOR.username, ADMINISTRATOR.password)
    return Server("mysql", mysql.endpoint, login, Verification(TLSMode.REQUIRE))


async def test_accounts_are_made_once_and_the_administrator_has_the_password_of_the_secret(
    mysql: MySQLServer,
) -> None:
    server, first, second = administrated(mysql), Credentials("root", 'it\'s "s3cret"'), Credentials("root", "other")
    assert {change.reason for change in await furnish(server, first, HOLDER)} == {"AccountsUpdated", "PasswordReset"}
    assert await furnish(server, first, HOLDER) == ()
    assert await mysql.can_log_in(first, "mysql")
    assert [change.reason for change in await furnish(server, second, HOLDER)] == ["PasswordReset"]
    assert await mysql.can_log_in(second, "mysql") and not await mysql.can_log_in(first, "mysql")
    for name in ("steersman_replication", "steersman_operator", "steersman_superuser"):
        assert not await mysql.can_log_in(Credentials(name, ""), "mysql"), "without its certificate nobody comes in"
        rows = await mysql.execute(f"SELECT x509_subject FROM mysql.user WHERE User = '{name}'")
        assert rows == [(f"/CN={name}".encode(),)] or rows == [(f"/CN={name}",)]


async def rights_of(mysql: MySQLServer, *names: str) -> list[str]:
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


async def test_the_operator_has_these_privileges_and_no_others(mysql: MySQLServer) -> None:
    await furnish(administrated(mysql), Credentials("root", "other"), HOLDER)
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for grant in await rights_of(mysql, OPERATOR):
        match = re.fullmatch(r"GRANT (.*) ON \*\.\* TO `steersman_operator`@`%`( WITH GRANT OPTION)?", grant)
        assert match is not None, grant
        found[match[2] is not None] |= set(re.split(", ?", match[1]))
    assert found == OPERATORS


async def test_accounts_are_narrowed_to_what_is_declared_wherever_it_is_cut(mysql: MySQLServer) -> None:
    """An earlier version of the operator may have given them more, or somebody."""
    server, root, names = administrated(mysql), Credentials("root", "other"), ("steersman_replication", OPERATOR)
    await furnish(server, root, HOLDER)
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
        await mysql.execute("REVOKE ROLE_ADMIN, SELECT ON *.* FROM {}@'%'", OPERATOR)
        await mysql.execute("GRANT CONNECTION_ADMIN ON *.* TO {}@'%' WITH GRANT OPTION", OPERATOR)
        await mysql.execute("REVOKE CONNECTION_ADMIN ON *.* FROM {}@'%'", "steersman_replication")

    await go_astray()
    assert [change.reason for change in await furnish(server, root, HOLDER)] == ["AccountsUpdated"]
    assert await rights_of(mysql, *names) == declared
    assert await furnish(server, root, HOLDER) == ()
    for cut in range(10, 400, 23):
        await go_astray()
        async with mysql.cut_after(cut) as endpoint:
            try:
                await furnish(replace(server, endpoint=endpoint), root, HOLDER)
                whole = True
            except ServerUnreachable:
                whole = False
        if not whole:
            await furnish(server, root, HOLDER)
        assert await rights_of(mysql, *names) == declared
        assert await furnish(server, root, HOLDER) == ()
        if whole:
            break
    else:
        pytest.fail("it never came to its end")


@pytest.mark.parametrize("name", ["steersman_replication", OPERATOR, "steersman_superuser"])
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
async def test_who_does_not_come_in_as_declared_does_again(mysql: MySQLServer, name: str, change: str) -> None:
    server, root = administrated(mysql), Credentials("root", "other")
    await furnish(server, root, HOLDER)
    declared = await mysql.execute("SHOW CREATE USER {}@'%'", name)
    await mysql.execute(f"ALTER USER {{}}@'%' {change.format(name=name, NAME=name.upper())}", name)
    assert await mysql.execute("SHOW CREATE USER {}@'%'", name) != declared
    assert [each.reason for each in await furnish(server, root, HOLDER)] == ["AccountsUpdated"]
    assert await mysql.execute("SHOW CREATE USER {}@'%'", name) == declared
    assert await furnish(server, root, HOLDER) == ()


async def test_another_password_of_the_administrators_is_seen_without_knowing_it(mysql: MySQLServer) -> None:
    server, root = administrated(mysql), Credentials("root", "of the Secret")
    await furnish(server, root, HOLDER)
    sessions = MySQL().connect(server)

    async def kept() -> str | None:
        found = await MySQL().survey(sessions, Scope(unfollowed=frozenset({"root"}), commits=True))
        return found.users["root"].verifier

    try:
        before = await kept()
        assert before and root.password not in before and await kept() == before
        await mysql.execute("ALTER USER root@'%' IDENTIFIED BY 'chosen by hand'")
        assert await kept() != before
    finally:
        await sessions.close()


async def test_who_adopts_data_lets_in_only_users_that_are_declared(mysql: MySQLServer) -> None:
    server, root = administrated(mysql), Credentials("root", "other")
    await furnish(server, root, HOLDER)
    clerk = Claim("5f0c4a71", "DatabaseUser", "shop", "clerk")
    gone = Credentials("it's `gone`", "s3cret")
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
    second = Holder("the second", clerk.cluster, {clerk.text: {"clerk"}})
    try:
        assert await furnish(server, root, HOLDER) == ()
        session = await connect(
            server, Login(gone.username, gone.password), None, asyncio.get_running_loop().time() + 10
        )
        [change] = await furnish(server, root, second)
        assert change.reason == "UsersLocked" and f"locked {gone.username}:" in change.message
        with pytest.raises(ServerUnreachable):
            await session.rows("asking", "SELECT 1")
        await session.close()
        for name in ("clerk", "elsewhere", gone.username):
            assert await mysql.can_log_in(Credentials(name, "s3cret"), "") is (name != gone.username), name
        assert await furnish(server, root, second) == ()
    finally:
        for name in users:
            await mysql.execute("DROP USER IF EXISTS {}@'%'", name)
        await mysql.execute("DELETE FROM steersman.claims")


async def test_a_server_that_is_about_to_stop_is_not_taken_for_furnished(
    mysql: MySQLServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_begun(_session: Session, _deadline: float) -> bool:
        return False

    monkeypatch.setattr(Session, "begin_use", not_begun)
    with pytest.raises(ServerUnreachable, match="about to stop"):
        await furnish(administrated(mysql), Credentials("root", "other"), HOLDER)


def literal(text: str) -> str:
    """A string of SQL's."""
    return "'" + text.replace("'", "''") + "'"


async def test_the_statements_may_be_run_again(mysql: MySQLServer) -> None:
    for statement in (*statements(), *statements()):
        await mysql.execute(statement)


async def test_variables_are_judged_by_what_the_server_says_of_them(mysql: MySQLServer) -> None:
    known = await catalog(administrated(mysql))
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
        assert judge(name, value, known).kind == kind, (name, value, known.get(name))
    assert shown_instead("max_connections", "200", known) == "151"
