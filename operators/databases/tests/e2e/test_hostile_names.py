"""A hostile name is data, never SQL, shell or YAML."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.cluster_engines import EACH, POSTGRESQL, Engine
from database_support.cluster_under_test import Place
from database_support.database_under_test import DatabaseUnderTest
from database_support.referred_server import ReferredServer
from devcluster.errors import CommandFailed

NAMES = {
    "quotes": """or'd"er`s""",
    "injection": """x"; DROP DATABASE canary; --""",
    "backslash": r"""a\'b\\""",
    "wildcards": "100%_sure",
    "shell": "$(touch /tmp/x) `id`",
    "unicode": "bestellungen-äöü-表",
    "keyword": "select",
}


@pytest.mark.parametrize("case", NAMES)
def test_is_only_a_name(database: DatabaseUnderTest, case: str) -> None:
    name = NAMES[case]
    # MySQL's user names are 32 characters at most, and PostgreSQL counts bytes: these names fit both.
    database.apply(databaseName=name, username=f"{name[:26]}-user")
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (1)")
    assert database.client_sql("SELECT n FROM t") == "1"
    listing = {"postgresql": "SELECT datname FROM pg_database", "mysql": "SHOW DATABASES"}[database.engine]
    shown = database.admin_sql(listing).splitlines()
    escaped = name.replace("\\", "\\\\") if database.engine == "mysql" else name
    assert escaped in shown


@pytest.fixture(scope="module")
def server(shared: Place, of: Engine) -> ReferredServer:
    """With a database that hostile names drop if they can."""
    made = ReferredServer(shared, of)
    made.start()
    made.sql("CREATE DATABASE canary")
    return made


def quoted(engine: Engine, name: str) -> str:
    mark = '"' if engine is POSTGRESQL else "`"
    return mark + name.replace(mark, mark * 2) + mark


def grants(engine: Engine, name: str) -> list[dict[str, Any]]:
    """To read one column of one table, and to call one routine, all of the name."""
    place: dict[str, Any] = {"database": name} if engine is not POSTGRESQL else {"database": name, "schema": name}
    # Its name as it is, unquoted, before the types.
    routine = f"{name}(integer)" if engine is POSTGRESQL else name
    inside: list[dict[str, Any]] = [
        {**place, "tables": [name], "columns": [name], "privileges": ["SELECT"]},
        {**place, "functions": [routine], "privileges": ["EXECUTE"]},
    ]
    if engine is not POSTGRESQL:
        return inside
    return [{"database": name, "privileges": ["CONNECT"]}, {**place, "privileges": ["USAGE"]}, *inside]


# Whose namespace is one.
@pytest.mark.xdist_group("hostile-names")
@EACH
@pytest.mark.parametrize("case", NAMES)
def test_users_schemas_and_what_is_granted(server: ReferredServer, case: str) -> None:
    """The role, its member, the schema, and the table, column and routine that are granted, all bear the name."""
    place, engine, name = server.place, server.engine, NAMES[case]
    it, member = quoted(engine, name), f"{name[:26]}-user"
    # Objects of their own for each case: one that fails leaves the others what they need.
    database, role, clerk = (f"{case}-{kind}" for kind in ("named", "role", "member"))
    schemas = {"schemas": [{"name": name}]} if engine is POSTGRESQL else {}
    owner = {"databaseName": name, "username": f"{name[:25]}-owner", "deletionPolicy": "Delete"}
    place.declare("Database", database, {**server.on(), **owner, **schemas})
    place.wait_reason("database", database, "DatabaseReady")
    where, login = (f"{it}." if engine is POSTGRESQL else ""), place.secret(f"{database}-app")
    server.ask(login, f"CREATE TABLE {where}{it} ({it} INT, hidden INT)")
    server.ask(login, f"INSERT INTO {where}{it} VALUES (7, 8)")
    if engine is POSTGRESQL:
        server.ask(login, f"CREATE FUNCTION {where}{it}(n INT) RETURNS INT LANGUAGE sql AS 'SELECT $1 + 1'")
        server.ask(login, f"REVOKE EXECUTE ON FUNCTION {where}{it}(int) FROM PUBLIC")
    else:
        # With a binary log only an administrator may.
        server.sql(f"CREATE FUNCTION {it}(n INT) RETURNS INT DETERMINISTIC RETURN n + 1", name)

    granted = {**server.on(), "user": name, "login": False, "grants": grants(engine, name)}
    place.declare("DatabaseUser", role, granted)
    place.wait_reason("databaseuser", role, "ProvisionSucceeded")
    place.declare("DatabaseUser", clerk, {**server.on(), "user": member, "database": name, "roles": [{"name": name}]})
    place.wait_reason("databaseuser", clerk, "ProvisionSucceeded")
    login = place.secret(f"{clerk}-user")
    assert login["user"] == member
    assert server.ask(login, f"SELECT {it} FROM {where}{it}") == "7"
    assert server.ask(login, f"SELECT {where}{it}(1)") == "2"
    with pytest.raises(CommandFailed, match="denied"):
        server.ask(login, f"SELECT hidden FROM {where}{it}")

    place.kubectl("delete", f"databaseuser/{clerk}", f"databaseuser/{role}", "--timeout=60s", seconds=70)
    with pytest.raises(CommandFailed, match=r"authentication failed|Access denied"):
        server.ask(login, "SELECT 1")
    place.kubectl("delete", f"database/{database}", "--timeout=60s", seconds=70)
    databases = (
        "pg_database WHERE datname" if engine is POSTGRESQL else "information_schema.schemata WHERE schema_name"
    )
    assert server.sql(f"SELECT COUNT(*) FROM {databases} = 'canary'") == "1"
