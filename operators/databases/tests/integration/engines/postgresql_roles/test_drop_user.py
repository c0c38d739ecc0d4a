"""Who is dropped from a PostgreSQL, whatever others gave it there."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import pytest

from database_support.servers.postgresql_admins import DATABASE, OWNER, SHOP, PostgreSQLHarness, user
from steersman_databases.engines.errors import ConcurrentChange, NoReassignTarget
from steersman_databases.engines.sql.desired import SecondCredential


@pytest.fixture
async def at(at: PostgreSQLHarness) -> PostgreSQLHarness:
    await at.reconcile(DATABASE)
    await at.reconcile(user())
    return at


MAPPING = """
CREATE FOREIGN DATA WRAPPER wrapper; CREATE SERVER elsewhere FOREIGN DATA WRAPPER wrapper;
CREATE USER MAPPING FOR clerk SERVER elsewhere OPTIONS (password 's3cret')
"""


async def test_user_dropped_on_foreign_server_loses_rights(at: PostgreSQLHarness) -> None:
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
def closed(at: PostgreSQLHarness) -> Generator[Callable[[], object]]:
    """Closes the database, to be opened again for what comes after the test."""
    yield lambda: at.postgresql.administer("ALTER DATABASE {} ALLOW_CONNECTIONS false", SHOP)
    at.postgresql.administer("ALTER DATABASE {} ALLOW_CONNECTIONS true", SHOP)


async def test_user_dropped_with_connect_on_closed_database(
    at: PostgreSQLHarness, closed: Callable[[], object]
) -> None:
    at.postgresql.administer("GRANT CONNECT ON DATABASE {} TO clerk", SHOP)
    closed()
    assert await at.drop("clerk") == ["UserDropped"]


async def test_rotation_login_dropped_with_connect_on_closed_database(
    at: PostgreSQLHarness, closed: Callable[[], object]
) -> None:
    rotating = user(second_credential=SecondCredential("s3cond"))
    await at.reconcile(rotating)
    at.postgresql.administer('GRANT CONNECT ON DATABASE {} TO "clerk~"', SHOP)
    closed()
    assert await at.reconcile(rotating) == ["OwnerRestored"]
    at.postgresql.administer('GRANT CONNECT ON DATABASE {} TO "clerk~"', SHOP)
    assert await at.reconcile(user()) == ["OwnerRestored", "UserDropped"]


async def test_owner_of_closed_database_is_not_dropped(at: PostgreSQLHarness, closed: Callable[[], object]) -> None:
    await at.reconcile(user("jane"))
    await at.reconcile(replace(DATABASE, owner="clerk"))
    closed()
    with pytest.raises(NoReassignTarget, match="it owns the database itself"):
        await at.drop("clerk")
    assert await at.drop("clerk", "jane") == ["UserDropped"]
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE NOT datallowconn AND datname <> 'template0'"
    assert at.postgresql.administer(owner) == [("jane",)]


async def test_objects_in_closed_database_are_reported(at: PostgreSQLHarness, closed: Callable[[], object]) -> None:
    await at.sql("CREATE SCHEMA mine AUTHORIZATION clerk")
    await at.close_connections()
    closed()
    with pytest.raises(ConcurrentChange, match="it does not allow connections"):
        await at.drop("clerk")
