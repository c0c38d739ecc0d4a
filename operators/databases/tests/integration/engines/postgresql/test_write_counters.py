"""Write counters of databases on a real PostgreSQL."""

from __future__ import annotations

import asyncio

from database_support.servers.postgresql_admins import PostgreSQLHarness
from steersman_databases.engines.sql.inspection import InspectionScope

DATABASE = "counted"
IN_DATABASE = (
    "CREATE TABLE orders (a int)",
    "GRANT SELECT ON orders TO pg_monitor",
    "REVOKE SELECT ON orders FROM pg_monitor",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO pg_monitor",
    "CREATE SCHEMA counted",
)
WRITTEN = f"SELECT tup_inserted, tup_updated, tup_deleted FROM pg_stat_database WHERE datname = '{DATABASE}'"
ON_SERVER = ("CREATE ROLE counted", "GRANT CONNECT ON DATABASE counted TO counted", "ALTER ROLE counted CREATEDB")


async def counter(at: PostgreSQLHarness) -> int:
    return (await at.sql_engine.write_counters(at.sessions))[DATABASE]


async def test_write_counters_show_ddl_and_grants(at: PostgreSQLHarness) -> None:
    at.postgresql.administer(f"CREATE DATABASE {DATABASE}")
    for database, statements in ((DATABASE, IN_DATABASE), ("postgres", ON_SERVER)):
        for statement in statements:
            before = await counter(at)
            await at.postgresql.execute(statement, database=database)
            # A session reports its writes within ten seconds, or as it ends.
            async with asyncio.timeout(30):
                while await counter(at) == before:
                    await asyncio.sleep(0.05)


async def test_inspection_leaves_write_counters(at: PostgreSQLHarness) -> None:
    at.postgresql.administer(f"CREATE DATABASE {DATABASE}")
    scope = InspectionScope(contents={DATABASE: frozenset({"public"})})
    await at.sql_engine.inspect(at.sessions, scope)
    before = at.postgresql.administer(WRITTEN)
    await at.sql_engine.inspect(at.sessions, scope)
    # Both inspections have ended their sessions, so their statistics are complete.
    assert at.postgresql.administer(WRITTEN) == before
