"""What the operator does itself on the servers of a cluster of MySQL's: accounts and variables."""

from __future__ import annotations

from mysql_server import MySQLServer
from real_server import ADMINISTRATOR
from steersman_databases.engines import Credentials
from steersman_databases.engines.mysql.catalog import catalog
from steersman_databases.engines.mysql.furnishing import furnish, statements
from steersman_databases.engines.mysql.parameters import judge, shown_instead
from steersman_databases.engines.server import Login, Server, TLSMode, Verification


def administrated(mysql: MySQLServer) -> Server:
    """The server, as somebody who may do everything logs in."""
    login = Login(ADMINISTRATOR.username, ADMINISTRATOR.password)
    return Server("mysql", mysql.endpoint, login, Verification(TLSMode.REQUIRE))


async def test_accounts_are_made_once_and_the_administrator_has_the_password_of_the_secret(
    mysql: MySQLServer,
) -> None:
    server, first, second = administrated(mysql), Credentials("root", 'it\'s "s3cret"'), Credentials("root", "other")
    assert {change.reason for change in await furnish(server, first)} == {"AccountsUpdated", "PasswordReset"}
    assert await furnish(server, first) == ()
    assert await mysql.can_log_in(first, "mysql")
    assert [change.reason for change in await furnish(server, second)] == ["PasswordReset"]
    assert await mysql.can_log_in(second, "mysql") and not await mysql.can_log_in(first, "mysql")
    for name in ("steersman_replication", "steersman_operator", "steersman_superuser"):
        assert not await mysql.can_log_in(Credentials(name, ""), "mysql"), "without its certificate nobody comes in"
        rows = await mysql.execute(f"SELECT x509_subject FROM mysql.user WHERE User = '{name}'")
        assert rows == [(f"/CN={name}".encode(),)] or rows == [(f"/CN={name}",)]


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
