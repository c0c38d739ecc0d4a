"""Administrators of PostgreSQL who are no superusers: what others can do to them, and what they have of a role."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.postgresql_admins import (
    DATABASE,
    OWNER,
    SHOP,
    PostgreSQLHarness,
    administrated,
    role,
    user,
)
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.errors import InvalidName, SqlFailed
from steersman_databases.engines.postgresql.sql.pool import PostgreSQLSessions
from steersman_databases.engines.sql.desired import DesiredGrant, SecondCredential
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.reconcile_sql import plan_for
from steersman_databases.engines.sql.sql_plan import SqlPlan


@pytest.fixture
async def at(postgresql: RealPostgreSQLServer) -> AsyncGenerator[PostgreSQLHarness]:
    async with administrated(postgresql, "modest") as found:
        yield found


@pytest.fixture
def without_accounts(postgresql: RealPostgreSQLServer) -> Generator[None]:
    """The schema that a cluster's accounts have, perhaps of another test, is not there."""
    there = "SELECT nspname FROM pg_namespace WHERE nspname = 'steersman'"
    if kept := postgresql.administer(there):
        postgresql.administer("ALTER SCHEMA steersman RENAME TO kept")
    yield
    postgresql.administer("DROP SCHEMA IF EXISTS steersman CASCADE")
    if kept:
        postgresql.administer("ALTER SCHEMA kept RENAME TO steersman")


TRAP = """
CREATE FUNCTION steersman.verifiers({}) RETURNS TABLE (name name, verifier text) LANGUAGE plpgsql
AS $$ BEGIN CREATE ROLE trojan CREATEROLE; RETURN; END $$
"""


@pytest.mark.parametrize("given", ["function", "schema", "another of its name"])
async def test_planted_verifier_function_is_not_called(
    at: PostgreSQLHarness, without_accounts: None, given: str
) -> None:
    at.postgresql.administer("CREATE ROLE mallory")
    at.postgresql.administer("CREATE SCHEMA steersman")
    at.postgresql.administer("GRANT USAGE ON SCHEMA steersman TO PUBLIC")
    at.postgresql.run(TRAP.format("names text[]" if given == "another of its name" else "names name[]"))
    if given == "function":
        at.postgresql.administer("ALTER FUNCTION steersman.verifiers OWNER TO mallory")
    elif given == "schema":
        at.postgresql.administer("ALTER SCHEMA steersman OWNER TO mallory")
    survey = await at.sql_engine.inspect(at.sessions, InspectionScope(frozenset({OWNER.username})))
    assert ("trojan",) not in at.postgresql.administer("SELECT rolname FROM pg_roles")
    assert not survey.verifiers_readable


async def cut_off(at: PostgreSQLHarness) -> None:
    """A new user, of whom only the first step is done: the operator has made it, and may not act as it yet."""
    survey = await at.sql_engine.inspect(at.sessions, InspectionScope.of([user()]))
    await at.sql_engine.execute(at.sessions, SqlPlan(plan_for(at.sql_engine, survey, user()).steps[:1]))


async def test_user_creation_interrupted_is_finished(at: PostgreSQLHarness) -> None:
    await cut_off(at)
    await at.reconcile(user(connection_limit=3))
    assert at.postgresql.administer("SELECT rolconnlimit FROM pg_roles WHERE rolname = 'clerk'") == [(3,)]


async def test_user_creation_interrupted_is_dropped(at: PostgreSQLHarness) -> None:
    await cut_off(at)
    assert await at.drop("clerk") == ["UserDropped"]


async def test_role_created_by_administrator_is_adopted_and_dropped(at: PostgreSQLHarness) -> None:
    await at.sql("CREATE ROLE clerk LOGIN", who=at.administrator, database="postgres")
    assert "UserAdopted" in await at.reconcile(user(adopt=True))
    assert await at.drop("clerk") == ["UserDropped"]


@pytest.mark.parametrize("options", ["SET FALSE, INHERIT FALSE", "SET TRUE, INHERIT FALSE"])
async def test_role_granted_with_admin_is_adopted_and_dropped(at: PostgreSQLHarness, options: str) -> None:
    """On version 15 it administers all roles anyway."""
    await at.reconcile(DATABASE)
    at.postgresql.administer("CREATE ROLE clerk LOGIN")
    if at.version >= 16:
        at.postgresql.administer(f"GRANT clerk TO {{}} WITH ADMIN TRUE, {options}", at.administrator.username)
    create = DesiredGrant(SHOP, frozenset({"CONNECT", "CREATE"}))
    assert "UserAdopted" in await at.reconcile(user(adopt=True, grants=(create,)))
    await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
    assert await at.drop("clerk") == ["UserDropped"]


@pytest.mark.parametrize("options", ["set", "inherit", "set, inherit"])
async def test_createrole_self_grant_is_ignored(at: PostgreSQLHarness, options: str) -> None:
    me = at.administrator.username
    if at.version >= 16:
        at.postgresql.administer(f"ALTER ROLE {{}} SET createrole_self_grant = '{options}'", me)
        await at.sessions.close()
    try:
        await cut_off(at)
        await at.reconcile(DATABASE)
        await at.reconcile(user())
        await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
        assert await at.drop("clerk") == ["UserDropped"]
    finally:
        if at.version >= 16:
            at.postgresql.administer("ALTER ROLE {} RESET createrole_self_grant", me)


async def boss_without_inheriting(at: PostgreSQLHarness) -> None:
    """An owner of others', as whom the administrator may act, and from whom it inherits nothing."""
    at.postgresql.administer("CREATE ROLE boss LOGIN PASSWORD 's3cret'")
    options = " WITH SET TRUE, INHERIT FALSE" if at.version >= 16 else ""
    at.postgresql.administer("GRANT boss TO {}" + options, at.administrator.username)


@pytest.fixture
def inheriting_nothing(at: PostgreSQLHarness) -> Generator[None]:
    """Version 15 has it for the administrator alone."""
    at.postgresql.administer("ALTER ROLE {} NOINHERIT", at.administrator.username)
    yield
    at.postgresql.administer("ALTER ROLE {} INHERIT", at.administrator.username)


async def is_there(at: PostgreSQLHarness) -> bool:
    return at.postgresql.administer("SELECT datname FROM pg_database WHERE datname LIKE 'the \"shop%'") != []


@pytest.mark.parametrize("template", [True, False])
async def test_database_of_noninherited_owner_is_dropped(
    at: PostgreSQLHarness, inheriting_nothing: None, template: bool
) -> None:
    await boss_without_inheriting(at)
    await at.reconcile(replace(DATABASE, owner="boss"))
    await at.reconcile(user(grants=(DesiredGrant(SHOP, frozenset({"CONNECT"})),)))
    boss = SqlCredentials("boss", "s3cret")
    # Its owner may not end another's session, nor the administrator the owner's.
    for who in (boss, SqlCredentials("clerk", "s3cret")) if at.version >= 16 else (boss,):
        await at.sql("SELECT 1", who=who)
    if template:
        at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true", SHOP)
    assert await at.drop_database() == ["DatabaseDropped"]
    assert not await is_there(at)


async def test_owner_membership_is_removed_afterwards(at: PostgreSQLHarness, inheriting_nothing: None) -> None:
    """Where the server refuses, too: the session is used again."""
    await boss_without_inheriting(at)
    await at.reconcile(replace(DATABASE, owner="boss"))
    await at.sql("SELECT 1")
    with pytest.raises(SqlFailed, match=r"to terminate superuser process|permission denied to terminate"):
        await at.drop_database()
    async with cast(PostgreSQLSessions, at.sessions).at(None, asyncio.get_running_loop().time() + 10) as session:
        assert await session.rows("looking", "SELECT current_user::text") == [(at.administrator.username,)]
    await at.close_connections()
    assert await at.drop_database() == ["DatabaseDropped"]


async def test_missing_owner_inheritance_is_reported(at: PostgreSQLHarness, inheriting_nothing: None) -> None:
    """Only who inherits from both may give away what somebody owns."""
    await boss_without_inheriting(at)
    await at.reconcile(replace(DATABASE, owner="boss"))
    await at.reconcile(user())
    await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
    with pytest.raises(SqlFailed, match=r"reassigning the objects of clerk in .* to boss: permission denied"):
        await at.drop("clerk")
    with pytest.raises(SqlFailed, match="must be owner of database"):
        await at.reconcile(DATABASE)


async def test_role_granting_operator_rights_is_not_adopted(at: PostgreSQLHarness) -> None:
    """It would lose what is not declared, and the administrator with it."""
    me = at.administrator.username
    at.postgresql.administer("CREATE ROLE dba")
    at.postgresql.administer("GRANT dba TO {} WITH ADMIN OPTION", me)
    for wanted in (role("dba", adopt=True), role("dba", adopt=True, revoke_undeclared=False)):
        with pytest.raises(InvalidName, match=f"{me} has privileges by this role"):
            await at.reconcile(wanted)
    if at.version >= 16:
        at.postgresql.administer("GRANT dba TO {} WITH INHERIT FALSE", me)
    else:
        at.postgresql.administer("REVOKE dba FROM {}", me)
    assert "UserAdopted" in await at.reconcile(role("dba", adopt=True))


_DOCUMENT = Path(__file__).parents[6] / "docs/how-to/users-and-grants.md"


@pytest.mark.parametrize("second", [None, SecondCredential("s3cond")])
async def test_roles_of_version_15_administered_as_documented(
    at: PostgreSQLHarness, second: SecondCredential | None
) -> None:
    """There the account administers all, and is a member of each without the right to pass it on."""
    if at.version < 16:
        return
    me, rotating = at.administrator.username, user(second_credential=second)
    await at.reconcile(rotating)
    await at.reconcile(DATABASE)
    for made in (OWNER.username, "clerk", *(["clerk~"] if second else [])):
        at.postgresql.administer("REVOKE {} FROM {} CASCADE", made, me)
        at.postgresql.administer("GRANT {} TO {}", made, me)
    with pytest.raises(SqlFailed, match=r"Only roles with the ADMIN option on role .* may grant this role"):
        await at.reconcile(rotating)
    with pytest.raises(SqlFailed, match=r"the ADMIN option on role .* may alter this role"):
        await at.drop("clerk")
    [statement] = re.findall(r"^DO .*?^END .*?;$", _DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    at.postgresql.run(statement.replace("master", f'"{me}"'))
    await at.reconcile(rotating)
    await at.reconcile(replace(rotating, connection_limit=3))
    assert set(await at.drop("clerk")) == {"UserDropped"}
    assert await at.drop_database() == ["DatabaseDropped"]
