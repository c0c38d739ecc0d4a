"""A hostile name is data, never SQL, shell or YAML."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.e2e.cluster import NamespaceClient
from database_support.e2e.database import DatabaseUnderTest
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL, EngineCommands
from database_support.e2e.external_server import ExternalServer
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
def test_hostile_database_name_is_quoted(database: DatabaseUnderTest, case: str) -> None:
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
def server(shared: NamespaceClient, of: EngineCommands) -> ExternalServer:
    """With a database that hostile names drop if they can."""
    made = ExternalServer(shared, of)
    made.start()
    made.sql("CREATE DATABASE canary")
    return made


def quoted(engine: EngineCommands, name: str) -> str:
    mark = '"' if engine is POSTGRESQL else "`"
    return mark + name.replace(mark, mark * 2) + mark


def grants(engine: EngineCommands, name: str) -> list[dict[str, Any]]:
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
@EACH_ENGINE
@pytest.mark.parametrize("case", NAMES)
def test_hostile_user_schema_and_grant_names_are_quoted(server: ExternalServer, case: str) -> None:
    """The role, its member, the schema, and the table, column and routine that are granted, all bear the name."""
    place, engine, name = server.namespace_client, server.engine, NAMES[case]
    it, member = quoted(engine, name), f"{name[:26]}-user"
    # Objects of their own for each case: one that fails leaves the others what they need.
    database, role, clerk = (f"{case}-{kind}" for kind in ("named", "role", "member"))
    schemas = {"schemas": [{"name": name}]} if engine is POSTGRESQL else {}
    owner = {"databaseName": name, "username": f"{name[:25]}-owner", "deletionPolicy": "Delete"}
    place.apply("Database", database, {**server.server_ref(), **owner, **schemas})
    place.wait_reason("database", database, "DatabaseReady")
    where, login = (f"{it}." if engine is POSTGRESQL else ""), place.secret(f"{database}-app")
    server.query_as(login, f"CREATE TABLE {where}{it} ({it} INT, hidden INT)")
    server.query_as(login, f"INSERT INTO {where}{it} VALUES (7, 8)")
    if engine is POSTGRESQL:
        server.query_as(login, f"CREATE FUNCTION {where}{it}(n INT) RETURNS INT LANGUAGE sql AS 'SELECT $1 + 1'")
        server.query_as(login, f"REVOKE EXECUTE ON FUNCTION {where}{it}(int) FROM PUBLIC")
    else:
        # With a binary log only an administrator may.
        server.sql(f"CREATE FUNCTION {it}(n INT) RETURNS INT DETERMINISTIC RETURN n + 1", name)

    granted = {**server.server_ref(), "user": name, "login": False, "grants": grants(engine, name)}
    place.apply("DatabaseUser", role, granted)
    place.wait_reason("databaseuser", role, "ProvisionSucceeded")
    place.apply(
        "DatabaseUser", clerk, {**server.server_ref(), "user": member, "database": name, "roles": [{"name": name}]}
    )
    place.wait_reason("databaseuser", clerk, "ProvisionSucceeded")
    login = place.secret(f"{clerk}-user")
    assert login["user"] == member
    assert server.query_as(login, f"SELECT {it} FROM {where}{it}") == "7"
    assert server.query_as(login, f"SELECT {where}{it}(1)") == "2"
    with pytest.raises(CommandFailed, match="denied"):
        server.query_as(login, f"SELECT hidden FROM {where}{it}")

    place.kubectl("delete", f"databaseuser/{clerk}", f"databaseuser/{role}", "--timeout=60s", seconds=70)
    with pytest.raises(CommandFailed, match=r"authentication failed|Access denied"):
        server.query_as(login, "SELECT 1")
    place.kubectl("delete", f"database/{database}", "--timeout=60s", seconds=70)
    databases = (
        "pg_database WHERE datname" if engine is POSTGRESQL else "information_schema.schemata WHERE schema_name"
    )
    assert server.sql(f"SELECT COUNT(*) FROM {databases} = 'canary'") == "1"
