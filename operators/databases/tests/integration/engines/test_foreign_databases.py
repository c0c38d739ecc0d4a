"""What the operator takes of a server where others have databases and objects, too, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from database_support.postgresql_server import PostgreSQLServer, administered
from steersman_databases.engines import Credentials, PostgreSQL
from steersman_databases.engines.actions import CreateDatabase
from steersman_databases.engines.desired import Claim, DesiredDatabase, DesiredUser
from steersman_databases.engines.errors import AlreadyExists
from steersman_databases.engines.plan import Plan, Step
from steersman_databases.engines.postgresql.ownership import CONTENTS as CONTENTS_OF
from steersman_databases.engines.postgresql.pool import PostgreSQLSessions
from steersman_databases.engines.server import Login, Server, TLSMode, Verification
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.settle import settle
from steersman_databases.engines.survey import Scope, Survey

CONTENTS = PostgreSQL()
CLAIM = Claim("c1", "Database", "shop", "archive")
OWNER = Credentials("archive's owner", "0wner")
DATABASE = DesiredDatabase("the archive", OWNER.username, claim=CLAIM)
SOUND = DesiredDatabase("the catalogue", OWNER.username, claim=CLAIM)
PUBLIC = frozenset({"public"})


@pytest.fixture
async def administrator(postgresql: PostgreSQLServer) -> AsyncGenerator[Sessions]:
    async with administered(postgresql, OWNER, DATABASE) as sessions:
        yield sessions


async def make(sessions: Sessions, desired: DesiredDatabase) -> list[str]:
    return [change.reason for change in await settle(CONTENTS, sessions, desired)]


async def test_a_database_that_its_administrator_closed_is_nobodys_to_take(
    postgresql: PostgreSQLServer, administrator: Sessions
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


async def test_a_database_that_was_cut_off_half_made_is_finished(
    postgresql: PostgreSQLServer, administrator: Sessions
) -> None:
    create = CreateDatabase(DATABASE.name, "UTF8", None, None, "template0")
    await CONTENTS.carry_out(administrator, Plan((Step(create),)))
    assert "DatabaseCreated" in await make(administrator, DATABASE)
    assert await make(administrator, DATABASE) == []
    limit = "SELECT datconnlimit FROM pg_database WHERE datname = 'the archive'"
    assert postgresql.administer(limit) == [(-1,)]


async def test_a_database_that_was_cut_off_half_made_is_dropped(
    postgresql: PostgreSQLServer, administrator: Sessions
) -> None:
    create = CreateDatabase(DATABASE.name, "UTF8", None, None, "template0")
    await CONTENTS.carry_out(administrator, Plan((Step(create),)))
    survey = await CONTENTS.survey(administrator, Scope(databases=frozenset({DATABASE.name})))
    await CONTENTS.carry_out(administrator, CONTENTS.plan_drop_database(survey, DATABASE.name, CLAIM))
    assert postgresql.administer("SELECT datname FROM pg_database WHERE datname = 'the archive'") == []


async def test_who_gave_only_the_database_away_keeps_what_is_his_in_it(
    postgresql: PostgreSQLServer, administrator: Sessions
) -> None:
    await make(administrator, DATABASE)
    await postgresql.execute("CREATE TABLE goods (id int)", credentials=OWNER, database=DATABASE.name)
    await postgresql.execute("CREATE TABLE audit (id int)", database=DATABASE.name)
    postgresql.administer("ALTER DATABASE {} OWNER TO {}", DATABASE.name, postgresql.administrator.username)
    assert await make(administrator, DATABASE) == ["OwnerRestored"]
    owners = "SELECT relname, pg_get_userbyid(relowner) FROM pg_class WHERE relname IN ('goods', 'audit') ORDER BY 1"
    found = await postgresql.execute(owners, database=DATABASE.name)
    assert found == [("audit", postgresql.administrator.username), ("goods", OWNER.username)]


async def test_another_declared_owner_gets_what_the_former_had(
    postgresql: PostgreSQLServer, administrator: Sessions
) -> None:
    await make(administrator, DATABASE)
    await postgresql.execute("CREATE TABLE goods (id int)", credentials=OWNER, database=DATABASE.name)
    heir = Credentials("archive's heir", "h3ir")
    await settle(CONTENTS, administrator, DesiredUser(heir.username, heir.password, claim=CLAIM))
    # What it was granted in advance makes nobody an owner.
    await postgresql.execute(
        "GRANT SELECT ON goods TO {}; ALTER DEFAULT PRIVILEGES FOR ROLE {} GRANT SELECT ON TABLES TO PUBLIC",
        *(heir.username, heir.username),
        database=DATABASE.name,
    )
    assert await make(administrator, replace(DATABASE, owner=heir.username)) == ["OwnerRestored"]
    await postgresql.execute("ALTER TABLE goods ADD more int", credentials=heir, database=DATABASE.name)


async def seen(sessions: Sessions, *users: str) -> Survey:
    both = frozenset({DATABASE.name, SOUND.name})
    return await CONTENTS.survey(sessions, Scope(frozenset(users), both, dict.fromkeys(both, PUBLIC)))


async def test_a_database_that_takes_no_more_connections_is_no_server_that_is_away(
    postgresql: PostgreSQLServer, administrator: Sessions
) -> None:
    modest = Credentials("modest", "m0dest")
    postgresql.administer("CREATE ROLE {} LOGIN CREATEROLE CREATEDB PASSWORD 'm0dest'", modest.username)
    server = Server(
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
        assert (found.databases.keys(), found.inside.keys()) == ({DATABASE.name, SOUND.name}, {SOUND.name})
    finally:
        await sessions.close()
        postgresql.administer("DROP DATABASE IF EXISTS {}", SOUND.name)
        postgresql.administer("REVOKE CONNECT ON DATABASE {} FROM modest", DATABASE.name)
        postgresql.administer("DROP ROLE modest")


async def test_what_one_database_cannot_say_is_no_matter_of_the_others(
    postgresql: PostgreSQLServer, administrator: Sessions
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
        assert found.inside.keys() == {SOUND.name}
    finally:
        postgresql.administer("ALTER ROLE {} RESET ALL", OWNER.username)
        postgresql.administer("DROP DATABASE IF EXISTS {}", SOUND.name)


async def test_what_is_in_a_database_is_told_in_one_order(
    postgresql: PostgreSQLServer, administrator: Sessions
) -> None:
    """Whatever is written to catalogs moves in them, and messages that name things would differ each time."""
    await make(administrator, DATABASE)
    for statement in ("CREATE TABLE goods (); CREATE TABLE audit (); CREATE TABLE zones ()", "CREATE SCHEMA attic"):
        await postgresql.execute(statement, credentials=OWNER, database=DATABASE.name)
    for table in ("audit", "goods"):
        await postgresql.execute("GRANT SELECT ON {} TO PUBLIC", table, credentials=OWNER, database=DATABASE.name)
    found = await seen(administrator)
    assert [on.name for on in found.inside[DATABASE.name].objects] == ["audit", "goods", "zones"]
    assert isinstance(administrator, PostgreSQLSessions)
    async with administrator.at(DATABASE.name, asyncio.get_running_loop().time() + 10) as session:
        rows = await session.rows("looking", CONTENTS_OF, OWNER.username)
    assert [row[2] for row in rows] == ["", "audit", "goods", "zones"]
