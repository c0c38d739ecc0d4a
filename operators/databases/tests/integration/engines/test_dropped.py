"""Who is dropped from a PostgreSQL, whatever others gave it there."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import pytest

from database_support.postgresql_administrators import DATABASE, OWNER, SHOP, At, user
from steersman_databases.engines.desired import SecondCredential
from steersman_databases.engines.errors import HeirMissing, Raced


@pytest.fixture
async def at(at: At) -> At:
    await at.make(DATABASE)
    await at.make(user())
    return at


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
        assert await at.sql("SELECT umserver FROM pg_user_mapping", database=database) == []
    assert await at.sql("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'mine'") == OWNER.username


@pytest.fixture
def closed(at: At) -> Generator[Callable[[], object]]:
    """Closes the database, to be opened again for what comes after the test."""
    yield lambda: at.postgresql.administer("ALTER DATABASE {} ALLOW_CONNECTIONS false", SHOP)
    at.postgresql.administer("ALTER DATABASE {} ALLOW_CONNECTIONS true", SHOP)


async def test_who_may_connect_to_a_closed_database(at: At, closed: Callable[[], object]) -> None:
    at.postgresql.administer("GRANT CONNECT ON DATABASE {} TO clerk", SHOP)
    closed()
    assert await at.drop("clerk") == ["UserDropped"]


async def test_whose_second_login_may_connect_to_a_closed_database(at: At, closed: Callable[[], object]) -> None:
    rotating = user(second=SecondCredential("s3cond"))
    await at.make(rotating)
    at.postgresql.administer('GRANT CONNECT ON DATABASE {} TO "clerk~"', SHOP)
    closed()
    assert await at.make(rotating) == ["OwnerRestored"]
    at.postgresql.administer('GRANT CONNECT ON DATABASE {} TO "clerk~"', SHOP)
    assert await at.make(user()) == ["OwnerRestored", "UserDropped"]


async def test_who_owns_a_closed_database(at: At, closed: Callable[[], object]) -> None:
    await at.make(user("jane"))
    await at.make(replace(DATABASE, owner="clerk"))
    closed()
    with pytest.raises(HeirMissing, match="it owns the database itself"):
        await at.drop("clerk")
    assert await at.drop("clerk", "jane") == ["UserDropped"]
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE NOT datallowconn AND datname <> 'template0'"
    assert at.postgresql.administer(owner) == [("jane",)]


async def test_what_is_in_a_closed_database_is_told(at: At, closed: Callable[[], object]) -> None:
    await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
    await at.hang_up()
    closed()
    with pytest.raises(Raced, match="it is closed"):
        await at.drop("clerk")
