"""What the operator takes of a server where others have databases and objects, too, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from database_support.servers.postgresql import RealPostgreSQLServer, administered
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import AlreadyExists, ImmutableProperty
from steersman_databases.engines.postgresql.sql.accounts.ownership import OWNED_OBJECTS_QUERY as CONTENTS_OF
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.postgresql.sql.pool import PostgreSQLSessions
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser, OwnershipMark
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.reconcile_sql import reconcile
from steersman_databases.engines.sql.sql_actions import CreateDatabase
from steersman_databases.engines.sql.sql_plan import SqlPlan, SqlStep

CONTENTS = PostgreSQLSqlEngine()
CLAIM = OwnershipMark("c1", "Database", "shop", "archive")
OWNER = SqlCredentials("archive's owner", "0wner")
DATABASE = DesiredDatabase("the archive", OWNER.username, mark=CLAIM)
SOUND = DesiredDatabase("the catalogue", OWNER.username, mark=CLAIM)
PUBLIC = frozenset({"public"})


@pytest.fixture
async def administrator(postgresql: RealPostgreSQLServer) -> AsyncGenerator[ServerSessions]:
    async with administered(postgresql, OWNER, DATABASE) as sessions:
        yield sessions


async def make(sessions: ServerSessions, desired: DesiredDatabase) -> list[str]:
    return [change.reason for change in await reconcile(CONTENTS, sessions, desired)]


async def test_database_closed_by_administrator_is_not_adopted(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    postgresql.administer("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'", DATABASE.name)
    await postgresql.execute("CREATE TABLE ledger (id int)", database=DATABASE.name)
    postgresql.administer("ALTER DATABASE {} ALLOW_CONNECTIONS false", DATABASE.name)
    with pytest.raises(AlreadyExists):
        await make(administrator, DATABASE)
    looked = "SELECT datallowconn, pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'the archive'"
    assert postgresql.administer(looked) == [(False, postgresql.administrator.username)]
    assert "DatabaseAdopted" in await make(administrator, replace(DATABASE, adopt=True))
    assert postgresql.administer(looked) == [(True, OWNER.username)]


async def test_database_creation_interrupted_is_finished(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    create = CreateDatabase(DATABASE.name, "UTF8", None, None, "template0")
    await CONTENTS.execute(administrator, SqlPlan((SqlStep(create),)))
    assert "DatabaseCreated" in await make(administrator, DATABASE)
    assert await make(administrator, DATABASE) == []
    limit = "SELECT datconnlimit FROM pg_database WHERE datname = 'the archive'"
    assert postgresql.administer(limit) == [(-1,)]


async def test_database_creation_interrupted_is_dropped(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    create = CreateDatabase(DATABASE.name, "UTF8", None, None, "template0")
    await CONTENTS.execute(administrator, SqlPlan((SqlStep(create),)))
    survey = await CONTENTS.inspect(administrator, InspectionScope(databases=frozenset({DATABASE.name})))
    await CONTENTS.execute(administrator, CONTENTS.plan_drop_database(survey, DATABASE.name, CLAIM))
    assert postgresql.administer("SELECT datname FROM pg_database WHERE datname = 'the archive'") == []


async def test_previous_owner_keeps_own_objects_inside(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    await make(administrator, DATABASE)
    await postgresql.execute("CREATE TABLE goods (id int)", credentials=OWNER, database=DATABASE.name)
    await postgresql.execute("CREATE TABLE audit (id int)", database=DATABASE.name)
    postgresql.administer("ALTER DATABASE {} OWNER TO {}", DATABASE.name, postgresql.administrator.username)
    assert await make(administrator, DATABASE) == ["OwnerRestored"]
    owners = "SELECT relname, pg_get_userbyid(relowner) FROM pg_class WHERE relname IN ('goods', 'audit') ORDER BY 1"
    found = await postgresql.execute(owners, database=DATABASE.name)
    assert found == [("audit", postgresql.administrator.username), ("goods", OWNER.username)]


async def test_owner_changed_transfers_objects(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    await make(administrator, DATABASE)
    await postgresql.execute("CREATE TABLE goods (id int)", credentials=OWNER, database=DATABASE.name)
    heir = SqlCredentials("archive's heir", "h3ir")
    await reconcile(CONTENTS, administrator, DesiredUser(heir.username, heir.password, mark=CLAIM))
    # What it was granted in advance makes nobody an owner.
    await postgresql.execute(
        "GRANT SELECT ON goods TO {}; ALTER DEFAULT PRIVILEGES FOR ROLE {} GRANT SELECT ON TABLES TO PUBLIC",
        *(heir.username, heir.username),
        database=DATABASE.name,
    )
    assert await make(administrator, replace(DATABASE, owner=heir.username)) == ["OwnerRestored"]
    await postgresql.execute("ALTER TABLE goods ADD more int", credentials=heir, database=DATABASE.name)


async def seen(sessions: ServerSessions, *users: str) -> Inspection:
    both = frozenset({DATABASE.name, SOUND.name})
    return await CONTENTS.inspect(sessions, InspectionScope(frozenset(users), both, dict.fromkeys(both, PUBLIC)))


async def test_closed_database_is_not_unreachable_server(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    modest = SqlCredentials("modest", "m0dest")
    postgresql.administer("CREATE ROLE {} LOGIN CREATEROLE CREATEDB PASSWORD 'm0dest'", modest.username)
    server = DatabaseServer(
        "postgresql", postgresql.endpoint, Login(modest.username, modest.password), Verification(TLSMode.REQUIRE)
    )
    sessions = CONTENTS.connect(server)
    try:
        await make(administrator, SOUND)
        await make(administrator, DATABASE)
        postgresql.administer("GRANT CONNECT ON DATABASE {} TO modest", DATABASE.name)
        postgresql.administer("GRANT CONNECT ON DATABASE {} TO modest", SOUND.name)
        postgresql.administer("ALTER DATABASE {} CONNECTION LIMIT 0", DATABASE.name)
        found = await seen(sessions)
        assert (found.databases.keys(), found.contents.keys()) == ({DATABASE.name, SOUND.name}, {SOUND.name})
    finally:
        await sessions.close()
        postgresql.administer("DROP DATABASE IF EXISTS {}", SOUND.name)
        postgresql.administer("REVOKE CONNECT ON DATABASE {} FROM modest", DATABASE.name)
        postgresql.administer("DROP ROLE modest")


async def test_failing_database_does_not_affect_others(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    """What stands in catalogs that all databases share has the encoding of the database in which it was said."""
    latin = replace(DATABASE, encoding="LATIN1", collation="C", character_type="C", template="template0")
    try:
        await make(administrator, SOUND)
        await make(administrator, latin)
        comment = "COMMENT ON DATABASE {} IS E'donn\u00e9es'; ALTER ROLE {} SET application_name = E'donn\u00e9es'"
        await postgresql.execute(comment, latin.name, OWNER.username, database=latin.name)
        found = await seen(administrator, OWNER.username)
        assert found.databases[latin.name].mark == "donn\ufffdes"
        assert found.users[OWNER.username].settings == {"application_name=donn\ufffdes"}
        found = await seen(administrator, OWNER.username, "łukasz")
        assert found.contents.keys() == {SOUND.name}
    finally:
        postgresql.administer("ALTER ROLE {} RESET ALL", OWNER.username)
        postgresql.administer("DROP DATABASE IF EXISTS {}", SOUND.name)


async def test_database_contents_order_is_stable(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    """Whatever is written to catalogs moves in them, and messages that name things would differ each time."""
    await make(administrator, DATABASE)
    for statement in ("CREATE TABLE goods (); CREATE TABLE audit (); CREATE TABLE zones ()", "CREATE SCHEMA attic"):
        await postgresql.execute(statement, credentials=OWNER, database=DATABASE.name)
    for table in ("audit", "goods"):
        await postgresql.execute("GRANT SELECT ON {} TO PUBLIC", table, credentials=OWNER, database=DATABASE.name)
    found = await seen(administrator)
    assert [on.name for on in found.contents[DATABASE.name].objects] == ["audit", "goods", "zones"]
    assert isinstance(administrator, PostgreSQLSessions)
    async with administrator.at(DATABASE.name, asyncio.get_running_loop().time() + 10) as session:
        rows = await session.rows("looking", CONTENTS_OF, OWNER.username)
    assert [row[2] for row in rows] == ["", "audit", "goods", "zones"]


@pytest.mark.parametrize(
    ("declared", "provider"),
    [
        ({"encoding": "LATIN1", "locale_provider": "icu", "locale": "de"}, "i"),
        ({"locale_provider": "icu", "locale": "de-DE"}, "i"),
        ({"encoding": "LATIN1", "locale_provider": "libc", "collation": "C"}, "c"),
    ],
    ids=["icu-latin1", "icu", "libc-latin1"],
)
async def test_locale_provider_of_database_takes_effect(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions, declared: dict[str, Any], provider: str
) -> None:
    desired = replace(DATABASE, **declared)
    assert "DatabaseCreated" in await make(administrator, desired)
    assert await make(administrator, desired) == []
    query = "SELECT datlocprovider::text FROM pg_database WHERE datname = 'the archive'"
    assert postgresql.administer(query) == [(provider,)]
    with pytest.raises(ImmutableProperty, match="localeProvider"):
        await make(administrator, replace(desired, locale_provider="builtin", locale="C"))
