"""A server of somebody else whose administrator is no superuser, as those that managed servers give away."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from database_support.e2e.engines import EACH_ENGINE, MYSQL, POSTGRESQL, EngineCommands
from database_support.e2e.external_server import CARETAKER, ExternalServer, secret

pytestmark = [pytest.mark.xdist_group("modest-administrators"), EACH_ENGINE]

Record = Callable[[str, object], None]
HEALED_WITHIN = 30.0
"""Seconds, of a password too. Who is no superuser of PostgreSQL sees no verifiers, so it is tried by a login."""
PASSWORD: Mapping[EngineCommands, str] = {
    POSTGRESQL: "ALTER ROLE tenant PASSWORD 'by hand'",
    MYSQL: "ALTER USER tenant@'%' IDENTIFIED BY 'by hand'",
}
"""What gives it another one."""
USERS: Mapping[EngineCommands, str] = {
    POSTGRESQL: "SELECT COUNT(*) FROM pg_roles WHERE rolname IN ('tenant', 'estate')",
    MYSQL: "SELECT COUNT(*) FROM mysql.user WHERE User IN ('tenant', 'estate')",
}
DATABASES: Mapping[EngineCommands, str] = {
    POSTGRESQL: "SELECT COUNT(*) FROM pg_database WHERE datname = 'estate'",
    MYSQL: "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'estate'",
}


def test_non_superuser_admin_is_sufficient(server: ExternalServer, record_property: Record) -> None:
    """For a user and a database from the first to the last, and a password that somebody changes meanwhile."""
    place, engine, password = server.namespace_client, server.engine, secrets.token_urlsafe(12)
    server.create_non_superuser_admin(password)
    place.create(secret(CARETAKER, {"username": CARETAKER, "password": password}))
    on = server.server_ref()
    on["serverRef"]["administrator"] = {"name": CARETAKER}
    grants: list[Mapping[str, Any]] = [{"database": "estate", "privileges": ["ALL"]}]
    if engine is POSTGRESQL:
        grants.append({"database": "estate", "schema": "public", "privileges": ["ALL"]})
    place.apply("Database", "estate", {**on, "deletionPolicy": "Delete"})
    place.apply("DatabaseUser", "tenant", {**on, "user": "tenant", "grants": grants})
    place.wait_current("database", "estate", "DatabaseReady")
    place.wait_current("databaseuser", "tenant", "ProvisionSucceeded")
    login, owner = place.secret("tenant-user"), place.secret("estate-app")
    server.query_as(login, "CREATE TABLE kept (n INT); INSERT INTO kept VALUES (7)")

    server.sql(PASSWORD[engine])
    began = time.monotonic()
    with place.expecting_events("tenant", ("PasswordReset", "tenant")):
        opens = "its Secret opens it again"
        place.until(opens, lambda: server.query_as(login, "SELECT n FROM kept") == "7", HEALED_WITHIN)
    record_property("seconds until the password is as its Secret says", round(time.monotonic() - began))
    assert place.secret("tenant-user") == login

    place.kubectl("delete", "databaseuser/tenant", "--timeout=60s", seconds=70)
    assert server.sql(USERS[engine]) == "1", "the database's owner is left"
    assert server.query_as(owner, "SELECT n FROM kept") == "7", "and has what the user made"
    place.kubectl("delete", "database/estate", "--timeout=60s", seconds=70)
    assert (server.sql(USERS[engine]), server.sql(DATABASES[engine])) == ("0", "0")
