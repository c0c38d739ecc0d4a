"""Administrators of PostgreSQL who are no superusers: what others can do to them, and what they have of a role."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from database_support.postgresql_administrators import DATABASE, OWNER, SHOP, At, administrated, role, user
from database_support.postgresql_server import PostgreSQLServer
from steersman_databases.engines import Credentials
from steersman_databases.engines.desired import DesiredGrant, SecondCredential
from steersman_databases.engines.errors import InvalidName, SqlFailed
from steersman_databases.engines.plan import Plan
from steersman_databases.engines.postgresql.pool import PostgreSQLSessions
from steersman_databases.engines.settle import planned
from steersman_databases.engines.survey import Scope


@pytest.fixture
async def at(postgresql: PostgreSQLServer) -> AsyncGenerator[At]:
    async with administrated(postgresql, "modest") as found:
        yield found


@pytest.fixture
def without_accounts(postgresql: PostgreSQLServer) -> Generator[None]:
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
async def test_what_others_left_as_the_way_to_verifiers_is_not_called(
    at: At, without_accounts: None, given: str
) -> None:
    at.postgresql.administer("CREATE ROLE mallory")
    at.postgresql.administer("CREATE SCHEMA steersman")
    at.postgresql.administer("GRANT USAGE ON SCHEMA steersman TO PUBLIC")
    at.postgresql.run(TRAP.format("names text[]" if given == "another of its name" else "names name[]"))
    if given == "function":
        at.postgresql.administer("ALTER FUNCTION steersman.verifiers OWNER TO mallory")
    elif given == "schema":
        at.postgresql.administer("ALTER SCHEMA steersman OWNER TO mallory")
    survey = await at.contents.survey(at.sessions, Scope(frozenset({OWNER.username})))
    assert ("trojan",) not in at.postgresql.administer("SELECT rolname FROM pg_roles")
    assert not survey.verifiers_readable


async def cut_off(at: At) -> None:
    """A new user, of whom only the first step is done: the operator has made it, and may not act as it yet."""
    survey = await at.contents.survey(at.sessions, Scope.of([user()]))
    await at.contents.carry_out(at.sessions, Plan(planned(at.contents, survey, user()).steps[:1]))


async def test_a_user_whose_making_was_cut_off_is_finished(at: At) -> None:
    await cut_off(at)
    await at.make(user(connection_limit=3))
    assert at.postgresql.administer("SELECT rolconnlimit FROM pg_roles WHERE rolname = 'clerk'") == [(3,)]


async def test_a_user_whose_making_was_cut_off_is_dropped(at: At) -> None:
    await cut_off(at)
    assert await at.drop("clerk") == ["UserDropped"]


async def test_a_role_that_the_administrator_made_by_hand_is_taken_and_dropped(at: At) -> None:
    await at.sql("CREATE ROLE clerk LOGIN", who=at.administrator, database="postgres")
    assert "UserAdopted" in await at.make(user(adopt=True))
    assert await at.drop("clerk") == ["UserDropped"]


@pytest.mark.parametrize("options", ["SET FALSE, INHERIT FALSE", "SET TRUE, INHERIT FALSE"])
async def test_a_role_that_the_administrator_was_given_to_administer_is_taken_and_dropped(
    at: At, options: str
) -> None:
    """On version 15 it administers all roles anyway."""
    await at.make(DATABASE)
    at.postgresql.administer("CREATE ROLE clerk LOGIN")
    if at.version >= 16:
        at.postgresql.administer(f"GRANT clerk TO {{}} WITH ADMIN TRUE, {options}", at.administrator.username)
    create = DesiredGrant(SHOP, frozenset({"CONNECT", "CREATE"}))
    assert "UserAdopted" in await at.make(user(adopt=True, grants=(create,)))
    await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
    assert await at.drop("clerk") == ["UserDropped"]


@pytest.mark.parametrize("options", ["set", "inherit", "set, inherit"])
async def test_what_a_server_gives_to_who_makes_roles_is_no_matter(at: At, options: str) -> None:
    me = at.administrator.username
    if at.version >= 16:
        at.postgresql.administer(f"ALTER ROLE {{}} SET createrole_self_grant = '{options}'", me)
        await at.sessions.close()
    try:
        await cut_off(at)
        await at.make(DATABASE)
        await at.make(user())
        await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
        assert await at.drop("clerk") == ["UserDropped"]
    finally:
        at.postgresql.administer("ALTER ROLE {} RESET ALL", me)


async def boss_without_inheriting(at: At) -> None:
    """An owner of others', as whom the administrator may act, and from whom it inherits nothing."""
    at.postgresql.administer("CREATE ROLE boss LOGIN PASSWORD 's3cret'")
    options = " WITH SET TRUE, INHERIT FALSE" if at.version >= 16 else ""
    at.postgresql.administer("GRANT boss TO {}" + options, at.administrator.username)


@pytest.fixture
def inheriting_nothing(at: At) -> Generator[None]:
    """Version 15 has it for the administrator alone."""
    at.postgresql.administer("ALTER ROLE {} NOINHERIT", at.administrator.username)
    yield
    at.postgresql.administer("ALTER ROLE {} INHERIT", at.administrator.username)


async def is_there(at: At) -> bool:
    return at.postgresql.administer("SELECT datname FROM pg_database WHERE datname LIKE 'the \"shop%'") != []


@pytest.mark.parametrize("template", [True, False])
async def test_a_database_whose_owner_is_not_inherited_from_is_dropped(
    at: At, inheriting_nothing: None, template: bool
) -> None:
    await boss_without_inheriting(at)
    await at.make(replace(DATABASE, owner="boss"))
    await at.make(user(grants=(DesiredGrant(SHOP, frozenset({"CONNECT"})),)))
    boss = Credentials("boss", "s3cret")
    # Its owner may not end another's session, nor the administrator the owner's.
    for who in (boss, Credentials("clerk", "s3cret")) if at.version >= 16 else (boss,):
        await at.sql("SELECT 1", who=who)
    if template:
        at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true", SHOP)
    assert await at.drop_database() == ["DatabaseDropped"]
    assert not await is_there(at)


async def test_who_acted_as_the_owner_does_so_no_more(at: At, inheriting_nothing: None) -> None:
    """Where the server refuses, too: the session is used again."""
    await boss_without_inheriting(at)
    await at.make(replace(DATABASE, owner="boss"))
    await at.sql("SELECT 1")
    with pytest.raises(SqlFailed, match=r"to terminate superuser process|permission denied to terminate"):
        await at.drop_database()
    async with cast(PostgreSQLSessions, at.sessions).at(None, asyncio.get_running_loop().time() + 10) as session:
        assert await session.rows("looking", "SELECT current_user::text") == [(at.administrator.username,)]
    await at.hang_up()
    assert await at.drop_database() == ["DatabaseDropped"]


async def test_what_a_database_is_without_inheriting_from_its_owner_is_told(at: At, inheriting_nothing: None) -> None:
    """Only who inherits from both may give away what somebody owns."""
    await boss_without_inheriting(at)
    await at.make(replace(DATABASE, owner="boss"))
    await at.make(user())
    await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
    with pytest.raises(SqlFailed, match=r"giving what clerk owns .* to boss: permission denied"):
        await at.drop("clerk")
    with pytest.raises(SqlFailed, match="must be owner of database"):
        await at.make(DATABASE)


async def test_a_role_by_which_the_administrator_has_its_rights_is_not_taken(at: At) -> None:
    """It would lose what is not declared, and the administrator with it."""
    me = at.administrator.username
    at.postgresql.administer("CREATE ROLE dba")
    at.postgresql.administer("GRANT dba TO {} WITH ADMIN OPTION", me)
    for wanted in (role("dba", adopt=True), role("dba", adopt=True, exact=False)):
        with pytest.raises(InvalidName, match=f"{me} has rights by this role"):
            await at.make(wanted)
    if at.version >= 16:
        at.postgresql.administer("GRANT dba TO {} WITH INHERIT FALSE", me)
    else:
        at.postgresql.administer("REVOKE dba FROM {}", me)
    assert "UserAdopted" in await at.make(role("dba", adopt=True))


_DOCUMENT = Path(__file__).parents[5] / "docs/how-to/users-and-grants.md"


@pytest.mark.parametrize("second", [None, SecondCredential("s3cond")])
async def test_roles_of_version_15_are_administered_again_by_what_is_documented(
    at: At, second: SecondCredential | None
) -> None:
    """There the account administers all, and is a member of each without the right to pass it on."""
    if at.version < 16:
        return
    me, rotating = at.administrator.username, user(second=second)
    await at.make(rotating)
    await at.make(DATABASE)
    for made in (OWNER.username, "clerk", *(["clerk~"] if second else [])):
        at.postgresql.administer("REVOKE {} FROM {} CASCADE", made, me)
        at.postgresql.administer("GRANT {} TO {}", made, me)
    with pytest.raises(SqlFailed, match=r"Only roles with the ADMIN option on role .* may grant this role"):
        await at.make(rotating)
    with pytest.raises(SqlFailed, match=r"the ADMIN option on role .* may alter this role"):
        await at.drop("clerk")
    [statement] = re.findall(r"^DO .*?^END .*?;$", _DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    at.postgresql.run(statement.replace("master", f'"{me}"'))
    await at.make(rotating)
    await at.make(replace(rotating, connection_limit=3))
    assert set(await at.drop("clerk")) == {"UserDropped"}
    assert await at.drop_database() == ["DatabaseDropped"]
