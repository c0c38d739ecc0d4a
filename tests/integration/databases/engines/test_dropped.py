"""Who is dropped from a PostgreSQL, whatever others gave it there."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from postgresql_administrators import DATABASE, OWNER, RANKS, SHOP, At, Rank, administrated, user
from postgresql_server import PostgreSQLServer


@pytest.fixture(params=RANKS)
async def at(request: pytest.FixtureRequest, postgresql: PostgreSQLServer) -> AsyncGenerator[At]:
    rank: Rank = request.param
    async with administrated(postgresql, rank) as found:
        await found.make(DATABASE)
        await found.make(user())
        yield found


MAPPING = """
CREATE FOREIGN DATA WRAPPER wrapper; CREATE SERVER elsewhere FOREIGN DATA WRAPPER wrapper;
CREATE USER MAPPING FOR clerk SERVER elsewhere OPTIONS (password 's3cret')
"""


async def test_who_is_somebody_on_a_foreign_server_is_so_no_more(at: At) -> None:
    """It is a password, and nothing to have an heir: not even where a superuser owns the database."""
    at.postgresql.administer("CREATE DATABASE vault")
    await at.sql(MAPPING, database="vault")
    await at.sql(MAPPING)
    await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
    assert await at.drop("clerk") == ["UserDropped"]
    for database in (SHOP, "vault"):
        assert await at.sql("SELECT FROM pg_user_mapping", database=database) == []
    assert await at.sql("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'mine'") == OWNER.username
