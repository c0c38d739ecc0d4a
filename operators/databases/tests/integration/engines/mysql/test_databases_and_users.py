"""What only MySQL and MariaDB have: privileges by pattern, hosts of accounts, and passwords in the general log."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from asyncmy.errors import MySQLError

from database_support.contracts import owned_database
from database_support.contracts.owned_database import OwnedDatabase
from database_support.servers.mysql import RealMySQLServer
from database_support.unit.planned_cluster import DECLARED
from steersman_databases.engines import (
    AdministratorRejected,
    InvalidName,
    ServerUnreachable,
    SqlCredentials,
    SqlFailed,
)
from steersman_databases.engines.errors import ImmutableProperty
from steersman_databases.engines.mysql.config.parameters import server_parameters
from steersman_databases.engines.mysql.sql.engine import MySQLSqlEngine
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredDatabase, OwnershipMark
from steersman_databases.engines.sql.reconcile_sql import reconcile
from steersman_databases.features.certificates.x509 import create_ca, sign_server

CLUSTER = replace(DECLARED, kind="MySQLCluster", engine="mysql")
_numbers = itertools.count(1)


@pytest.fixture
async def desired(mysql_server: RealMySQLServer) -> OwnedDatabase:
    number = next(_numbers)
    desired = OwnedDatabase(f"own_shop{number}", f"own_clerk{number}", "s3cret")
    await ensure(mysql_server, desired)
    return desired


async def ensure(server: RealMySQLServer, desired: OwnedDatabase) -> list[str]:
    changes = await owned_database.ensure(MySQLSqlEngine(), server.endpoint, server.administrator, desired)
    return [change.reason for change in changes]


@pytest.mark.parametrize("privilege", ["SELECT", "DROP", "CREATE TEMPORARY TABLES", "EVENT", "TRIGGER"])
async def test_revoked_privilege_is_restored(
    mysql_server: RealMySQLServer, desired: OwnedDatabase, privilege: str
) -> None:
    database = mysql_server.in_grants(desired.database)
    await mysql_server.execute(f"REVOKE {privilege} ON {{}}.* FROM {{}}@'%'", database, desired.username)
    assert await ensure(mysql_server, desired) == ["GrantsRestored"]
    assert await ensure(mysql_server, desired) == []


async def test_undeclared_grants_are_kept_if_requested(mysql_server: RealMySQLServer, desired: OwnedDatabase) -> None:
    await mysql_server.execute("GRANT SELECT ON another.* TO {}@'%'", desired.username)
    assert await ensure(mysql_server, desired) == []


@pytest.mark.parametrize("right", ["SUPER", "CREATE USER", "FILE", "INSERT", "SHUTDOWN"])
async def test_superuser_account_is_rejected(
    mysql_server: RealMySQLServer, desired: OwnedDatabase, right: str
) -> None:
    await mysql_server.execute(f"GRANT {right} ON *.* TO {{}}@'%'", desired.username)
    with pytest.raises(InvalidName, match="privileges on the whole server"):
        await ensure(mysql_server, desired)


async def test_host_specific_account_is_reported(mysql_server: RealMySQLServer, desired: OwnedDatabase) -> None:
    await mysql_server.execute("CREATE USER {}@'127.0.0.1' IDENTIFIED BY 'another'", desired.username)
    await mysql_server.execute("CREATE USER {}@'localhost' IDENTIFIED BY 'another'", desired.username)
    with pytest.raises(SqlFailed, match="narrower host"):
        await ensure(mysql_server, desired)


async def test_database_defaults_to_utf8mb4(mysql_server: RealMySQLServer, desired: OwnedDatabase) -> None:
    rows = await mysql_server.execute(
        f"SELECT DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{desired.database}'"
    )
    assert rows == [("utf8mb4",)]


@pytest.mark.parametrize(
    ("encoding", "collation"),
    [("latin1", None), ("latin2", "latin2_bin"), (None, "utf8mb4_bin"), ("UTF8", None), ("utf8", "utf8_bin")],
)
async def test_owner_cannot_change_charset(
    mysql_server: RealMySQLServer, desired: OwnedDatabase, encoding: str | None, collation: str | None
) -> None:
    """The server has `utf8` as `utf8mb3`."""
    claim = OwnershipMark("c1", "Database", "shop", "letters")
    number = next(_numbers)
    database = DesiredDatabase(f"let`ters%_{number}", desired.username, encoding, collation, mark=claim)
    login = Login(mysql_server.administrator.username, mysql_server.administrator.password)
    sessions = MySQLSqlEngine().connect(
        DatabaseServer("mysql", mysql_server.endpoint, login, Verification(TLSMode.REQUIRE))
    )
    await reconcile(MySQLSqlEngine(), sessions, database)
    look = f"SHOW CREATE DATABASE `{database.name.replace('`', '``')}`"
    made = await mysql_server.execute(look)
    assert await reconcile(MySQLSqlEngine(), sessions, database) == ()
    for change in ("CHARACTER SET latin7", "COLLATE greek_bin"):
        statement = f"ALTER DATABASE {{}} {change}"
        await mysql_server.execute_unprepared(statement, database.name, credentials=desired.credentials)
        with pytest.raises(ImmutableProperty):
            await reconcile(MySQLSqlEngine(), sessions, replace(database, mark=None, encoding="utf8mb4"))
        assert [one.reason for one in await reconcile(MySQLSqlEngine(), sessions, database)] == ["DatabaseAltered"]
        assert await reconcile(MySQLSqlEngine(), sessions, database) == ()
        assert await mysql_server.execute(look) == made
    await sessions.close()


async def test_maximum_length_names_are_accepted(mysql_server: RealMySQLServer) -> None:
    for database, username in (("x" * 64, "y" * 32), ("é" * 51, "é" * 32)):
        desired = OwnedDatabase(database, username, "s3cret")
        assert (await ensure(mysql_server, desired))[:2] == ["UserCreated", "DatabaseCreated"]
        assert await ensure(mysql_server, desired) == []


async def test_password_never_reaches_server_log(mysql_server: RealMySQLServer, desired: OwnedDatabase) -> None:
    secret = OwnedDatabase(desired.database, desired.username, "not-for-any-log")
    await ensure(mysql_server, secret)
    log = mysql_server.log.read_text(errors="replace")
    assert "ALTER USER" in log
    assert secret.password not in log


async def test_server_sql_mode_has_no_effect(mysql_server: RealMySQLServer, desired: OwnedDatabase) -> None:
    """With ANSI_QUOTES a double quote means something else, with NO_BACKSLASH_ESCAPES a backslash does."""
    [(before,)] = await mysql_server.execute("SELECT @@GLOBAL.sql_mode")
    await mysql_server.execute("SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
    try:
        for password in ("back\\", "quote'\"", "\\'"):
            hostile = OwnedDatabase(desired.database, desired.username, password)
            assert await ensure(mysql_server, hostile) == ["PasswordReset"]
            assert await ensure(mysql_server, hostile) == []
    finally:
        await mysql_server.execute(f"SET GLOBAL sql_mode = '{before}'")


async def test_cluster_owner_creates_functions_and_triggers(mysql: RealMySQLServer) -> None:
    """These have binary logs, for which a server that is not told otherwise wants SUPER of who makes them."""
    desired = OwnedDatabase("routines_shop", "routines_clerk", "s3cret")
    await ensure(mysql, desired)
    tell = partial(mysql.execute_unprepared, credentials=desired.credentials, database=desired.database)
    ask = partial(mysql.execute, credentials=desired.credentials, database=desired.database)
    await ask("CREATE TABLE till (coin INT)")
    name, function = "log_bin_trust_function_creators", "CREATE FUNCTION seven() RETURNS INT DETERMINISTIC RETURN 7"
    with pytest.raises(MySQLError, match="SUPER"):
        await tell(function)
    await mysql.execute(f"SET GLOBAL {name} = {server_parameters(CLUSTER)[name]}")
    try:
        await tell(function)
        await tell("CREATE TRIGGER filled BEFORE INSERT ON till FOR EACH ROW SET NEW.coin = seven()")
    finally:
        await mysql.execute(f"SET GLOBAL {name} = DEFAULT")
    await ask("INSERT INTO till VALUES (1)")
    assert await ask("SELECT coin FROM till") == [(7,)]


@pytest.mark.parametrize("messages", [2, 4, 8, 16])
async def test_server_stalling_midway_times_out(
    mysql_server: RealMySQLServer, desired: OwnedDatabase, messages: int
) -> None:
    async with mysql_server.stalling_after(messages) as endpoint:
        started = time.monotonic()
        with pytest.raises(ServerUnreachable, match="in time"):
            await owned_database.ensure(MySQLSqlEngine(), endpoint, mysql_server.administrator, desired, timeout=0.5)
        assert time.monotonic() - started < 20


async def test_administrator_password_changes_while_both_valid(mysql: RealMySQLServer) -> None:
    former, later = SqlCredentials("rotated_admin", "f0rmer"), SqlCredentials("rotated_admin", "l8ter")
    desired = OwnedDatabase("rotated_shop", "rotated_clerk", "s3cret")

    async def made_by(administrator: SqlCredentials) -> None:
        await owned_database.ensure(MySQLSqlEngine(), mysql.endpoint, administrator, desired)

    await mysql.execute("CREATE USER {} IDENTIFIED BY 'f0rmer'", former.username)
    await mysql.execute("GRANT ALL ON *.* TO {} WITH GRANT OPTION", former.username)
    await made_by(former)
    await mysql.execute("ALTER USER {} IDENTIFIED BY 'l8ter' RETAIN CURRENT PASSWORD", former.username)
    await made_by(former)
    await made_by(later)
    await mysql.execute("ALTER USER {} DISCARD OLD PASSWORD", former.username)
    await made_by(later)
    with pytest.raises(AdministratorRejected):
        await made_by(former)


async def test_administrator_verifies_server_by_own_ca_only(mysql: RealMySQLServer) -> None:
    now, directory = datetime.now(UTC), mysql.log.parent
    ours, others = (create_ca(name, now, timedelta(days=1)) for name in ("ours", "another"))
    pair = sign_server(ours, ("127.0.0.1",), now, timedelta(days=1))
    shown = {"ca": ours.certificate, "cert": pair.certificate, "key": pair.key}
    for name, text in shown.items():
        (directory / f"shown-{name}.pem").write_text(text)
        (directory / f"shown-{name}.pem").chmod(0o644)
    [(certificate, key)] = await mysql.execute("SELECT @@ssl_cert, @@ssl_key")
    desired = OwnedDatabase("verified_shop", "verified_clerk", "s3cret")

    async def made_by(authority: str) -> None:
        verification = Verification(TLSMode.VERIFY_FULL, authority.encode())
        await owned_database.ensure(MySQLSqlEngine(), mysql.endpoint, mysql.administrator, desired, verification)

    async def show(*files: str) -> None:
        for name, file in zip(shown, files, strict=True):
            await mysql.execute(f"SET GLOBAL ssl_{name} = '{file}'")
        await mysql.execute("ALTER INSTANCE RELOAD TLS")

    await show(*(f"{directory}/shown-{name}.pem" for name in shown))
    try:
        await made_by(ours.certificate)
        with pytest.raises(ServerUnreachable, match="certificate"):
            await made_by(others.certificate)
    finally:
        # It signed itself; and the server takes none without an authority while it runs.
        await show(certificate, certificate, key)
