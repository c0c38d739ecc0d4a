"""Extensions of a database, whose scripts run as a superuser, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from database_support.servers.postgresql import RealPostgreSQLServer, administered
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import InvalidName, SqlFailed
from steersman_databases.engines.postgresql.sql import engine as sql_engine
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.sql.desired import (
    DesiredDatabase,
    DesiredExtension,
    DesiredSchema,
    DesiredUser,
    OwnershipMark,
)
from steersman_databases.engines.sql.reconcile_sql import reconcile

CONTENTS = PostgreSQLSqlEngine()
CLAIM = OwnershipMark("c1", "Database", "shop", "tools")
OWNER = SqlCredentials("tools' owner", "0wner")
TOOLS = DesiredDatabase("the tools", OWNER.username, mark=CLAIM, schemas=(DesiredSchema("a"), DesiredSchema("b")))
# No trusted one: only a superuser may create and update it.
CHECK = DesiredExtension("amcheck", "1.2", "a")
PLANT = """
CREATE FUNCTION {schema}.planted(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR {schema}.= (LEFTARG = text, RIGHTARG = text, FUNCTION = {schema}.planted);
"""
FOUND = """
SELECT extversion, nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'amcheck'
"""


@pytest.fixture
async def administrator(postgresql: RealPostgreSQLServer) -> AsyncGenerator[ServerSessions]:
    async with administered(postgresql, OWNER, TOOLS) as sessions:
        yield sessions


async def make(sessions: ServerSessions, *extensions: DesiredExtension) -> list[str]:
    changes = await reconcile(CONTENTS, sessions, replace(TOOLS, extensions=extensions))
    return [change.reason for change in changes]


async def plant(postgresql: RealPostgreSQLServer, schema: str) -> None:
    for statement in PLANT.format(schema=schema).strip().split(";\n"):
        await postgresql.execute(statement.rstrip(";"), credentials=OWNER, database=TOOLS.name)


async def test_extension_created_moved_updated_and_dropped(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    assert "ExtensionCreated" in await make(administrator, CHECK)
    assert await postgresql.execute(FOUND, database=TOOLS.name) == [("1.2", "a")]
    assert await make(administrator, CHECK) == []
    assert await make(administrator, replace(CHECK, version="1.3", schema="b")) == [
        "ExtensionMoved",
        "ExtensionUpdated",
    ]
    assert await postgresql.execute(FOUND, database=TOOLS.name) == [("1.3", "b")]
    assert await make(administrator, replace(CHECK, present=False)) == ["ExtensionDropped"]
    assert await postgresql.execute(FOUND, database=TOOLS.name) == []


SLOW = """
CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_catalog.pg_sleep(6); END';
CREATE EVENT TRIGGER slow ON ddl_command_start WHEN TAG IN ('CREATE EXTENSION') EXECUTE FUNCTION slow()
"""


@pytest.mark.parametrize("limit", [60.0, 2.0])
async def test_extension_script_gets_lengthy_timeout(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions, monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    """And where these are not enough, nobody says that the server is away."""
    monkeypatch.setattr(sql_engine, "LENGTHY_TIMEOUT_SECONDS", limit)
    await make(administrator)
    for statement in SLOW.strip().split(";\n"):
        await postgresql.execute(statement, database=TOOLS.name)
    making = reconcile(CONTENTS, administrator, replace(TOOLS, extensions=(CHECK,)), timeout=4)
    if limit > 6:
        assert "ExtensionCreated" in [change.reason for change in await making]
    else:
        with pytest.raises(SqlFailed, match=r"creating extension amcheck .*timeout. Its limit is 2 s: check"):
            await making


async def test_object_planted_after_first_attempt_is_found(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    await make(administrator)
    for statement in SLOW.strip().split(";\n"):
        await postgresql.execute(statement, database=TOOLS.name)
    desired = replace(TOOLS, extensions=(CHECK,))
    making = asyncio.create_task(reconcile(CONTENTS, administrator, desired, timeout=4))
    running = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'CREATE EXTENSION%' AND state = 'active'"
    async with asyncio.timeout(10):
        while not await postgresql.execute(running):
            await asyncio.sleep(0.05)
    await plant(postgresql, "a")
    with pytest.raises(SqlFailed, match=r"creating extension amcheck .*schema a has functions, operators or types"):
        await making


async def test_superuser_script_rejects_planted_objects(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    """Neither when the extension is created nor when it is updated."""
    await make(administrator)
    await plant(postgresql, "a")
    with pytest.raises(SqlFailed, match=r"creating extension amcheck .*schema a has functions, operators or types"):
        await make(administrator, CHECK)
    elsewhere = replace(CHECK, schema="b")
    await make(administrator, elsewhere)
    await plant(postgresql, "b")
    newer = replace(elsewhere, version="1.3")
    with pytest.raises(SqlFailed, match=r"updating extension amcheck .*schema b has functions, operators or types"):
        await make(administrator, newer)
    assert await postgresql.execute(FOUND, database=TOOLS.name) == [("1.2", "b")]
    await postgresql.execute("DROP FUNCTION b.planted CASCADE", credentials=OWNER, database=TOOLS.name)
    assert await make(administrator, newer) == ["ExtensionUpdated"]


# A trusted one: it is its owner's, who may add to it what he has.
TRIGRAMS = DesiredExtension("pg_trgm", schema="a")


async def test_foreign_objects_move_with_extension(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    await make(administrator, TRIGRAMS)
    for statement in (
        "CREATE FUNCTION a.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "ALTER EXTENSION pg_trgm ADD FUNCTION a.mine()",
    ):
        await postgresql.execute(statement, credentials=OWNER, database=TOOLS.name)
    with pytest.raises(SqlFailed, match=r"moving extension pg_trgm .*a user has added objects"):
        await make(administrator, replace(TRIGRAMS, schema="public"))
    where = "SELECT pronamespace::regnamespace::text FROM pg_proc WHERE proname = 'similarity'"
    assert await postgresql.execute(where, database=TOOLS.name) == [("a",)]
    with pytest.raises(InvalidName, match="a system schema"):
        await make(administrator, replace(TRIGRAMS, schema="pg_catalog"))
    await postgresql.execute("ALTER EXTENSION pg_trgm DROP FUNCTION a.mine()", credentials=OWNER, database=TOOLS.name)
    assert await make(administrator, replace(TRIGRAMS, schema="public")) == ["ExtensionMoved"]


async def test_extension_of_previous_owner_updated_and_dropped(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    older = replace(TRIGRAMS, version="1.5")
    await make(administrator, older)
    await reconcile(CONTENTS, administrator, DesiredUser("the next owner", "0wner", mark=CLAIM))

    async def handed_over(extension: DesiredExtension) -> list[str]:
        desired = replace(TOOLS, owner="the next owner", extensions=(extension,))
        return [change.reason for change in await reconcile(CONTENTS, administrator, desired)]

    assert "ExtensionUpdated" in await handed_over(replace(older, version="1.6"))
    assert await handed_over(replace(older, version="1.6")) == []
    assert await handed_over(replace(older, version=None, present=False)) == ["ExtensionDropped"]


async def test_object_added_to_extension_counts_as_planted(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    await make(administrator, TRIGRAMS)
    await plant(postgresql, "b")
    for what in ("FUNCTION b.planted(text, text)", "OPERATOR b.= (text, text)"):
        await postgresql.execute(f"ALTER EXTENSION pg_trgm ADD {what}", credentials=OWNER, database=TOOLS.name)
    with pytest.raises(SqlFailed, match=r"creating extension amcheck .*schema b has functions, operators or types"):
        await make(administrator, TRIGRAMS, replace(CHECK, schema="b"))


async def test_event_trigger_does_not_run_as_superuser(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    await make(administrator)
    body = "CREATE FUNCTION public.spring() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'"
    await postgresql.execute(body, credentials=OWNER, database=TOOLS.name)
    trigger = "CREATE EVENT TRIGGER springs ON ddl_command_start EXECUTE FUNCTION public.spring()"
    await postgresql.execute(trigger, database=TOOLS.name)
    with pytest.raises(SqlFailed, match="event trigger springs would run a function of another role as superuser"):
        await make(administrator, CHECK)
    await postgresql.execute("ALTER EVENT TRIGGER springs DISABLE", database=TOOLS.name)
    assert await make(administrator, CHECK) == ["ExtensionCreated"]


async def test_owner_session_settings_do_not_affect_operator(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    await make(administrator)
    for setting in (f"role = '{OWNER.username.replace(chr(39), chr(39) * 2)}'", "idle_session_timeout = 1"):
        await postgresql.execute(f'ALTER DATABASE "{TOOLS.name}" SET {setting}', credentials=OWNER)
    assert await make(administrator, CHECK) == ["ExtensionCreated"]
