"""Administrators of PostgreSQL who are no superusers: what others can do to them, and what they have of a role."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest

from postgresql_administrators import OWNER, At, administrated
from postgresql_server import PostgreSQLServer
from steersman_databases.engines.survey import Scope


@pytest.fixture
async def at(postgresql: PostgreSQLServer) -> AsyncGenerator[At]:
    async with administrated(postgresql, "modest") as found:
        yield found


@pytest.fixture
def without_accounts(postgresql: PostgreSQLServer) -> Generator[None]:
    """The schema that a cluster's accounts have, perhaps of another test, is not there."""
    there = "SELECT FROM pg_namespace WHERE nspname = 'steersman'"
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
