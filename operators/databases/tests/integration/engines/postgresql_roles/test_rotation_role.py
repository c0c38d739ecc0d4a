"""The second login of a PostgreSQL's user whose password rotates is that user, and nobody else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from database_support.servers.postgresql_admins import PostgreSQLHarness, role, user
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.errors import ObjectsMissing, SqlFailed
from steersman_databases.engines.sql.desired import SecondCredential

ROTATING = user(second_credential=SecondCredential("s3cond"))
SECOND = SqlCredentials("clerk~", "s3cond")


@pytest.fixture
async def at(at: PostgreSQLHarness) -> PostgreSQLHarness:
    await at.reconcile(ROTATING)
    return at


def memberships(at: PostgreSQLHarness) -> set[tuple[str, bool]]:
    found = at.postgresql.administer(
        "SELECT roleid::regrole::text, admin_option FROM pg_auth_members WHERE member = '\"clerk~\"'::regrole"
    )
    return set(found)


@pytest.mark.parametrize("given", ["team", "pg_read_all_data"])
async def test_own_memberships_are_removed(at: PostgreSQLHarness, given: str) -> None:
    await at.reconcile(role("team"))
    at.postgresql.administer(f'GRANT {given} TO "clerk~"')
    await at.reconcile(replace(ROTATING, revoke_undeclared=False))
    assert memberships(at) == {("clerk", False), (given, False)}
    if at.rank == "modest" and at.version >= 16:
        with pytest.raises(SqlFailed, match=f"revoking membership in {given} from clerk~"):
            await at.reconcile(ROTATING)
        return
    assert await at.reconcile(ROTATING) == ["MembershipRevoked"]
    assert memberships(at) == {("clerk", False)}


async def test_no_other_role_may_become_the_user(at: PostgreSQLHarness) -> None:
    """The right to pass on, which it has where it acts as itself."""
    await at.reconcile(user("jane"))
    at.postgresql.administer('GRANT clerk TO "clerk~" WITH ADMIN OPTION')
    if at.rank == "modest" and at.version >= 16:
        with pytest.raises(SqlFailed, match="revoking membership in clerk from clerk~"):
            await at.reconcile(ROTATING)
        return
    if at.version >= 16:
        await at.sql("SET ROLE NONE; GRANT clerk TO jane", who=SECOND, database="postgres")
        await at.close_connections()
        with pytest.raises(
            ObjectsMissing,
            match=r"clerk~ keeps the membership in .*, because it granted it to jane: revoke that first",
        ):
            await at.reconcile(ROTATING)
        await at.reconcile(user("jane"))
    await at.reconcile(ROTATING)
    assert memberships(at) == {("clerk", False)}
    assert await at.sql("SELECT current_user::text", who=SECOND, database="postgres") == "clerk"


GIVEN = 'CREATE SCHEMA place; GRANT USAGE ON SCHEMA place TO "clerk~"; GRANT CREATE ON DATABASE vault TO "clerk~"'


async def test_foreign_grant_to_rotation_login_is_kept(at: PostgreSQLHarness) -> None:
    at.postgresql.administer("CREATE DATABASE vault")
    await at.sql(GIVEN, database="vault")
    if at.rank == "modest":
        for _ in range(2):
            with pytest.raises(ObjectsMissing, match=r"USAGE on schema vault\.place is kept by clerk~"):
                await at.reconcile(ROTATING)
        return
    assert await at.reconcile(ROTATING) == ["OwnerRestored"]


OTHERWISE = """
CREATE SCHEMA place; CREATE TYPE place."Mood" AS ENUM ('glad'); CREATE FOREIGN DATA WRAPPER wrapper;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER wrapper; SELECT lo_create(4711);
GRANT USAGE ON TYPE place."Mood" TO "clerk~"; GRANT USAGE ON LANGUAGE plpgsql TO "clerk~";
GRANT USAGE ON FOREIGN DATA WRAPPER wrapper TO "clerk~"; GRANT USAGE ON FOREIGN SERVER elsewhere TO "clerk~";
GRANT SELECT ON LARGE OBJECT 4711 TO "clerk~";
GRANT CREATE ON TABLESPACE pg_default TO "clerk~" WITH GRANT OPTION; GRANT SET ON PARAMETER work_mem TO "clerk~"
"""
WITHDRAWN = """
REVOKE USAGE ON TYPE place."Mood" FROM "clerk~"; REVOKE USAGE ON LANGUAGE plpgsql FROM "clerk~";
REVOKE USAGE ON FOREIGN DATA WRAPPER wrapper FROM "clerk~"; REVOKE USAGE ON FOREIGN SERVER elsewhere FROM "clerk~";
REVOKE SELECT ON LARGE OBJECT 4711 FROM "clerk~";
REVOKE CREATE ON TABLESPACE pg_default FROM "clerk~"; REVOKE SET ON PARAMETER work_mem FROM "clerk~"
"""
IN_WORDS = (
    "CREATE on tablespace pg_default",
    "SELECT on large object 4711 in database vault",
    "SET on parameter work_mem",
    "USAGE on foreign-data wrapper wrapper in database vault",
    "USAGE on language plpgsql in database vault",
    "USAGE on server elsewhere in database vault",
    'USAGE on type place."Mood" in database vault',
)


@pytest.fixture
async def granted(at: PostgreSQLHarness) -> AsyncGenerator[PostgreSQLHarness]:
    """With what no grant of a `DatabaseUser` names, in a database of a stranger's and in none."""
    at.postgresql.administer("CREATE DATABASE vault")
    await at.sql(OTHERWISE, database="vault")
    yield at


def told(raised: pytest.ExceptionInfo[Exception]) -> str:
    """What is told, which is all of it."""
    message = str(raised.value)
    for words in IN_WORDS:
        assert f"{words} is kept by clerk~, because {ADMINISTRATOR.username} granted it" in message
    return message


async def test_ungrantable_privilege_is_reported_until_revoked(granted: PostgreSQLHarness) -> None:
    if granted.rank != "modest":
        assert set(await granted.reconcile(ROTATING)) == {"OwnerRestored"}
        return
    for _ in range(2):
        with pytest.raises(ObjectsMissing) as raised:
            await granted.reconcile(ROTATING)
        told(raised)
        assert raised.value.changes == ()
    assert await granted.reconcile(replace(ROTATING, revoke_undeclared=False)) == []
    await granted.sql(WITHDRAWN, database="vault")
    assert await granted.reconcile(ROTATING) == []


async def test_operator_grant_to_rotation_login_is_removed(granted: PostgreSQLHarness) -> None:
    if granted.rank == "modest":
        await granted.sql("ALTER DATABASE vault OWNER TO {}", granted.administrator.username, database="postgres")
        await granted.sql('GRANT TEMPORARY ON DATABASE vault TO "clerk~"', database="postgres")
        with pytest.raises(ObjectsMissing) as raised:
            await granted.reconcile(ROTATING)
        assert [change.reason for change in raised.value.changes] == ["OwnerRestored"]
        with pytest.raises(ObjectsMissing) as raised:
            await granted.reconcile(ROTATING)
        assert "TEMPORARY" not in told(raised)


async def test_rotation_ends_after_foreign_grants_are_revoked(granted: PostgreSQLHarness) -> None:
    await granted.sql(GIVEN.replace("place", "other"), database="vault")
    if granted.rank != "modest":
        assert (await granted.reconcile(user()))[-1] == "UserDropped"
        return
    for _ in range(2):
        with pytest.raises(ObjectsMissing, match=r"USAGE on schema vault\.other is kept by") as raised:
            await granted.reconcile(user())
        told(raised)
        assert raised.value.changes == ()
    assert granted.postgresql.administer("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'clerk~'") == [(False,)]
    await granted.sql(WITHDRAWN, database="vault")
    withdrawn = 'REVOKE ALL ON SCHEMA other FROM "clerk~"; REVOKE ALL ON DATABASE vault FROM "clerk~"'
    await granted.sql(withdrawn, database="vault")
    assert await granted.reconcile(user()) == ["UserDropped"]


async def test_drop_waits_for_foreign_grants(granted: PostgreSQLHarness) -> None:
    if granted.rank == "modest":
        for _ in range(2):
            with pytest.raises(SqlFailed, match=r"^dropping user clerk~") as raised:
                await granted.drop("clerk")
            told(raised)
            assert raised.value.changes == ()
        await granted.sql(WITHDRAWN, database="vault")
    assert await granted.drop("clerk") == ["UserDropped", "UserDropped"]


async def test_foreign_default_privileges_are_removed(at: PostgreSQLHarness) -> None:
    at.postgresql.administer("CREATE DATABASE vault")
    ahead = 'ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO "clerk~"'
    await at.sql(ahead, database="vault")
    assert await at.reconcile(ROTATING) == ["OwnerRestored"]
    await at.sql(ahead, database="vault")
    assert await at.reconcile(user()) == ["OwnerRestored", "UserDropped"]
