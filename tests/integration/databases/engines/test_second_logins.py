"""The second login of a PostgreSQL's user whose password rotates is that user, and nobody else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from postgresql_administrators import RANKS, At, Rank, administrated, role, user
from postgresql_server import PostgreSQLServer
from steersman_databases.engines import Credentials
from steersman_databases.engines.desired import SecondCredential
from steersman_databases.engines.errors import ObjectsMissing, SqlFailed

ROTATING = user(second=SecondCredential("s3cond"))
SECOND = Credentials("clerk~", "s3cond")


@pytest.fixture(params=RANKS)
async def at(request: pytest.FixtureRequest, postgresql: PostgreSQLServer) -> AsyncGenerator[At]:
    rank: Rank = request.param
    async with administrated(postgresql, rank) as found:
        await found.make(ROTATING)
        yield found


def memberships(at: At) -> set[tuple[str, bool]]:
    found = at.postgresql.administer(
        "SELECT roleid::regrole::text, admin_option FROM pg_auth_members WHERE member = '\"clerk~\"'::regrole"
    )
    return set(found)


@pytest.mark.parametrize("given", ["team", "pg_read_all_data"])
async def test_what_it_is_a_member_of_by_itself_is_taken_from_it(at: At, given: str) -> None:
    await at.make(role("team"))
    at.postgresql.administer(f'GRANT {given} TO "clerk~"')
    await at.make(replace(ROTATING, exact=False))
    assert memberships(at) == {("clerk", False), (given, False)}
    if at.rank == "modest" and at.version >= 16:
        with pytest.raises(SqlFailed, match=f"revoking membership in {given} from clerk~"):
            await at.make(ROTATING)
        return
    assert await at.make(ROTATING) == ["MembershipRevoked"]
    assert memberships(at) == {("clerk", False)}


async def test_it_lets_nobody_else_be_the_user(at: At) -> None:
    """The right to pass on, which it has where it acts as itself."""
    await at.make(user("jane"))
    at.postgresql.administer('GRANT clerk TO "clerk~" WITH ADMIN OPTION')
    if at.rank == "modest" and at.version >= 16:
        with pytest.raises(SqlFailed, match="revoking membership in clerk from clerk~"):
            await at.make(ROTATING)
        return
    if at.version >= 16:
        await at.sql("SET ROLE NONE; GRANT clerk TO jane", who=SECOND, database="postgres")
        await at.hang_up()
        with pytest.raises(ObjectsMissing, match="stays with clerk~, who let jane in: put them out first"):
            await at.make(ROTATING)
        await at.make(user("jane"))
    await at.make(ROTATING)
    assert memberships(at) == {("clerk", False)}
    assert await at.sql("SELECT current_user::text", who=SECOND, database="postgres") == "clerk"


GIVEN = 'CREATE SCHEMA place; GRANT USAGE ON SCHEMA place TO "clerk~"; GRANT CREATE ON DATABASE vault TO "clerk~"'


async def test_what_a_stranger_granted_to_it_is_the_strangers_to_take(at: At) -> None:
    at.postgresql.administer("CREATE DATABASE vault")
    await at.sql(GIVEN, database="vault")
    if at.rank == "modest":
        for _ in range(2):
            with pytest.raises(ObjectsMissing, match=r"USAGE on schema vault\.place .*stays with clerk~"):
                await at.make(ROTATING)
        return
    assert await at.make(ROTATING) == ["OwnerRestored"]
