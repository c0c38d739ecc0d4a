"""What only PostgreSQL has: owners, attributes of roles, schemas, and what a tenant may plant in its database."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from database_support.contracts import owned_database
from database_support.contracts.owned_database import OwnedDatabase
from database_support.servers.postgresql import RealPostgreSQLServer
from steersman_databases.engines import InvalidName, ServerUnreachable, SqlFailed
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine

_numbers = itertools.count(1)


@pytest.fixture
async def desired(postgresql: RealPostgreSQLServer) -> OwnedDatabase:
    number = next(_numbers)
    desired = OwnedDatabase(f"own shop{number}", f"own clerk{number}", "s3cret")
    await ensure(postgresql, desired)
    return desired


async def ensure(postgresql: RealPostgreSQLServer, desired: OwnedDatabase) -> list[str]:
    changes = await owned_database.ensure(
        PostgreSQLSqlEngine(), postgresql.endpoint, postgresql.administrator, desired
    )
    return [change.reason for change in changes]


async def as_application(server: RealPostgreSQLServer, desired: OwnedDatabase, statement: str, *names: str) -> None:
    await server.execute(statement, *names, credentials=desired.credentials, database=desired.database)


SPOILED = [
    ("ALTER DATABASE {0} OWNER TO {2}", "OwnerRestored"),
    ("ALTER ROLE {1} NOLOGIN", "UserUnlocked"),
    ("ALTER ROLE {1} VALID UNTIL '2999-01-01'", "UserUnlocked"),
    ("ALTER ROLE {1} CONNECTION LIMIT 0", "UserUnlocked"),
    ("ALTER ROLE {1} PASSWORD NULL", "PasswordReset"),
    ("ALTER DATABASE {0} CONNECTION LIMIT 0", "DatabaseOpened"),
    ("ALTER DATABASE {0} ALLOW_CONNECTIONS false", "DatabaseOpened"),
    ("REVOKE CONNECT ON DATABASE {0} FROM {1}", "GrantsRestored"),
    ("REVOKE CREATE ON DATABASE {0} FROM {1}", "GrantsRestored"),
    ("REVOKE TEMPORARY ON DATABASE {0} FROM {1}", "GrantsRestored"),
    ("GRANT CONNECT ON DATABASE {0} TO PUBLIC", "PublicAccessRevoked"),
]


@pytest.mark.parametrize(("statement", "reason"), SPOILED)
async def test_sql_drift_is_reverted(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase, statement: str, reason: str
) -> None:
    names = (desired.database, desired.username, postgresql.administrator.username)
    postgresql.administer(statement, *names)
    assert await ensure(postgresql, desired) == [reason]
    assert await ensure(postgresql, desired) == []
    assert await postgresql.can_log_in(desired.credentials, desired.database)


@pytest.mark.parametrize(
    "statement",
    [
        "REVOKE ALL ON SCHEMA public FROM pg_database_owner",
        "REVOKE CREATE ON SCHEMA public FROM pg_database_owner",
        "ALTER SCHEMA public OWNER TO {}",
    ],
)
async def test_schema_drift_is_reverted(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase, statement: str
) -> None:
    await postgresql.execute(
        statement, *[postgresql.administrator.username] * statement.count("{}"), database=desired.database
    )
    assert await ensure(postgresql, desired) == ["GrantsRestored"]
    assert await ensure(postgresql, desired) == []
    await postgresql.create_table(desired.credentials, desired.database)


async def test_application_drops_public_schema(postgresql: RealPostgreSQLServer, desired: OwnedDatabase) -> None:
    await as_application(postgresql, desired, "DROP SCHEMA public")
    assert await ensure(postgresql, desired) == []


async def test_ownership_inside_database_is_restored(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase
) -> None:
    for statement in (
        'CREATE SCHEMA "till; 1"',
        'CREATE TABLE "till; 1"."co""ins" (id serial, big bigint GENERATED ALWAYS AS IDENTITY)',
        "CREATE SEQUENCE tickets",
        'CREATE VIEW seen AS SELECT id FROM "till; 1"."co""ins"',
        'CREATE MATERIALIZED VIEW kept AS SELECT id FROM "till; 1"."co""ins"',
        "CREATE TYPE colour AS ENUM ('red')",
        "CREATE TYPE pair AS (one int, two int)",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        "CREATE FUNCTION \"f'n\"(a colour, int DEFAULT 1) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE PROCEDURE proc() LANGUAGE sql AS 'SELECT 1'",
        "CREATE PROCEDURE told(a int, OUT b int) LANGUAGE sql AS 'SELECT 1'",
        "CREATE AGGREGATE total(int) (SFUNC = int4pl, STYPE = int)",
        "CREATE AGGREGATE every(*) (SFUNC = int8inc, STYPE = bigint, INITCOND = '0')",
        "CREATE AGGREGATE sorted(ORDER BY int) (SFUNC = array_append, STYPE = int[])",
    ):
        await as_application(postgresql, desired, statement)
    await postgresql.drop_user(desired)
    assert await ensure(postgresql, desired) == ["UserCreated", "OwnerRestored"]
    assert await ensure(postgresql, desired) == []
    for statement in (
        'SELECT * FROM seen, kept, "till; 1"."co""ins"',
        "SELECT nextval('tickets')",
        'ALTER TABLE "till; 1"."co""ins" ADD more int',
        "ALTER TYPE colour ADD VALUE 'blue'",
        "ALTER TYPE pair ADD ATTRIBUTE three int",
        "ALTER DOMAIN positive DROP NOT NULL",
        'DROP FUNCTION "f\'n"',
        # To drop them, it is enough to own the schema.
        "ALTER PROCEDURE proc RENAME TO proc1",
        "ALTER PROCEDURE told RENAME TO told1",
        "ALTER AGGREGATE total(int) RENAME TO total1",
        "ALTER AGGREGATE every(*) RENAME TO every1",
        "ALTER AGGREGATE sorted(ORDER BY int) RENAME TO sorted1",
        'CREATE TABLE "till; 1".another ()',
    ):
        await as_application(postgresql, desired, statement)


async def test_security_definer_objects_are_not_reassigned(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase
) -> None:
    await postgresql.execute(
        "CREATE FUNCTION guarded() RETURNS int SECURITY DEFINER LANGUAGE sql AS 'SELECT 1'",
        database=desired.database,
    )
    postgresql.administer("ALTER DATABASE {} OWNER TO {}", desired.database, postgresql.administrator.username)
    assert await ensure(postgresql, desired) == ["OwnerRestored"]
    owners = await postgresql.execute(
        "SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE proname = 'guarded'", database=desired.database
    )
    assert owners == [(postgresql.administrator.username,)]


async def test_planted_functions_never_run_as_administrator(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase
) -> None:
    """The hijack: own versions of what an administrator's session might call, and a search_path to find them."""
    await as_application(
        postgresql,
        desired,
        "CREATE FUNCTION public.seize() RETURNS boolean LANGUAGE plpgsql AS"
        f" $$ BEGIN EXECUTE 'ALTER ROLE \"{desired.username}\" SUPERUSER'; RETURN true;"
        " EXCEPTION WHEN insufficient_privilege THEN RETURN true; END $$",
    )
    for signature in (
        "has_schema_privilege(name, oid, text) RETURNS boolean",
        "pg_has_role(name, oid, text) RETURNS boolean",
        "pg_get_userbyid(oid) RETURNS name",
        "same(name, name) RETURNS boolean",
        "same(name, text) RETURNS boolean",
    ):
        body = "SELECT public.seize()" + ("" if "boolean" in signature else "::text::name")
        await as_application(postgresql, desired, f"CREATE FUNCTION public.{signature} LANGUAGE sql AS '{body}'")
    for right in ("name", "text"):
        await as_application(
            postgresql,
            desired,
            f"CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = {right}, FUNCTION = public.same)",
        )
    await as_application(
        postgresql, desired, "ALTER DATABASE {} SET search_path = public, pg_catalog", desired.database
    )
    await as_application(postgresql, desired, "ALTER ROLE {} SET search_path = public, pg_catalog", desired.username)

    postgresql.administer("ALTER DATABASE {} OWNER TO {}", desired.database, postgresql.administrator.username)
    await postgresql.execute(
        "ALTER SCHEMA public OWNER TO {}", postgresql.administrator.username, database=desired.database
    )
    assert "OwnerRestored" in await ensure(postgresql, desired)
    assert await ensure(postgresql, desired) == []
    mighty = postgresql.administer("SELECT rolname FROM pg_roles WHERE rolsuper")
    assert (desired.username,) not in mighty


async def test_application_settings_do_not_affect_operator(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase
) -> None:
    for setting in ("search_path = ''", "statement_timeout = '20ms'", "default_transaction_read_only = on"):
        await as_application(postgresql, desired, f"ALTER DATABASE {{}} SET {setting}", desired.database)
    postgresql.administer("ALTER ROLE {} PASSWORD 'stolen'", desired.username)
    assert await ensure(postgresql, desired) == ["PasswordReset"]


@pytest.mark.parametrize("attribute", ["SUPERUSER", "REPLICATION", "CREATEROLE", "BYPASSRLS"])
async def test_superuser_role_is_rejected(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase, attribute: str
) -> None:
    postgresql.administer(f"ALTER ROLE {{}} {attribute}", desired.username)
    with pytest.raises(InvalidName, match="privileges on the whole server"):
        await ensure(postgresql, desired)


async def test_template_database_is_rejected(postgresql: RealPostgreSQLServer, desired: OwnedDatabase) -> None:
    postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true", desired.database)
    with pytest.raises(InvalidName, match="template"):
        await ensure(postgresql, desired)


async def test_invalid_database_reports_advice(postgresql: RealPostgreSQLServer, desired: OwnedDatabase) -> None:
    number = desired.database
    postgresql.administer(f"UPDATE pg_database SET datconnlimit = -2 WHERE datname = '{number}'")
    with pytest.raises(SqlFailed, match="DROP DATABASE"):
        await ensure(postgresql, desired)
    postgresql.administer("DROP DATABASE {}", desired.database)
    assert "DatabaseCreated" in await ensure(postgresql, desired)


async def test_database_defaults_to_utf8(postgresql: RealPostgreSQLServer, desired: OwnedDatabase) -> None:
    rows = postgresql.administer(
        f"SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = '{desired.database}'"
    )
    assert rows == [("UTF8",)]


async def test_names_of_63_bytes_are_accepted(postgresql: RealPostgreSQLServer) -> None:
    for name in ("x" * 63, "é" * 31 + "y", "😀" * 15):
        desired = OwnedDatabase(name, name, "s3cret")
        assert (await ensure(postgresql, desired))[:2] == ["UserCreated", "DatabaseCreated"]
        assert await ensure(postgresql, desired) == []


async def test_password_never_reaches_server_log(postgresql: RealPostgreSQLServer, desired: OwnedDatabase) -> None:
    secret = OwnedDatabase(desired.database, desired.username, "not-for-any-log")
    await ensure(postgresql, secret)
    log = postgresql.log.read_text(errors="replace")
    assert "ALTER ROLE" in log
    assert secret.password not in log


@pytest.mark.parametrize("messages", [4, 8, 12])
async def test_server_stalling_midway_times_out(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase, messages: int
) -> None:
    async with postgresql.stalling_after(messages) as endpoint:
        started = time.monotonic()
        with pytest.raises(ServerUnreachable, match="in time"):
            await owned_database.ensure(
                PostgreSQLSqlEngine(), endpoint, postgresql.administrator, desired, timeout=0.5
            )
        assert time.monotonic() - started < 20


async def test_cancellation_does_not_wait_for_silent_server(
    postgresql: RealPostgreSQLServer, desired: OwnedDatabase
) -> None:
    async with postgresql.stalling_after(8) as endpoint:
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await owned_database.ensure(
                    PostgreSQLSqlEngine(), endpoint, postgresql.administrator, desired, timeout=30
                )
        assert time.monotonic() - started < 20


async def test_lock_wait_is_bounded(postgresql: RealPostgreSQLServer, desired: OwnedDatabase) -> None:
    rotated = OwnedDatabase(desired.database, desired.username, "rotated")
    postgresql.administer("BEGIN")
    try:
        postgresql.administer("LOCK TABLE pg_authid IN EXCLUSIVE MODE")
        started = time.monotonic()
        with pytest.raises(SqlFailed, match="lock timeout"):
            await owned_database.ensure(
                PostgreSQLSqlEngine(), postgresql.endpoint, postgresql.administrator, rotated, timeout=5
            )
        assert time.monotonic() - started < 20
    finally:
        postgresql.administer("ROLLBACK")
    assert await ensure(postgresql, rotated) == ["PasswordReset"]
