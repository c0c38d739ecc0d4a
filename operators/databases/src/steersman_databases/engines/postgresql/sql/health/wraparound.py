"""Inspection and emergency vacuum of old transaction IDs.

The vacuum is not awaited. A backend does not notice that its client is gone while it works, so a vacuum continues
after the connection has ended, also while the operator restarts. `pg_stat_activity` shows whether one runs, by the
name of the application.

Source: PostgreSQL 17 documentation, 24.1.5 "Preventing Transaction ID Wraparound Failures", and
`client_connection_check_interval`, whose default is 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import LiteralString

from psycopg import sql

from steersman_databases.engines.errors import EngineError, ServerUnreachable
from steersman_databases.engines.postgresql.sql.session import PostgreSQLSession, logged_in
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.transaction_ids import TransactionIds, XminHolder

_TIMEOUT_SECONDS = 10.0
_VACUUM_SECONDS = 2.0
"""Time for which a vacuum is awaited. It continues in the server."""
_MAX_TABLES = 20
_APPLICATION = "steersman_emergency_vacuum"
_DATABASE_QUERY: LiteralString = """
    SELECT datname, greatest(age(datfrozenxid), mxid_age(datminmxid)),
        greatest(current_setting('autovacuum_freeze_max_age')::int,
            current_setting('autovacuum_multixact_freeze_max_age')::int)
    FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY 2 DESC, 1 LIMIT 1
"""
_HOLDERS_QUERY: LiteralString = """
    SELECT kind, name, age, seconds, left(detail, 200), started FROM (
        SELECT 'session' AS kind, pid::text AS name, greatest(age(backend_xmin), age(backend_xid)) AS age,
            extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
            concat_ws(', ', 'user ' || usename, 'database ' || datname,
                'application ' || nullif(left(application_name, 64), '')) AS detail,
            backend_start::text AS started
        FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
        UNION ALL SELECT 'prepared transaction', gid, age(transaction),
            extract(epoch FROM clock_timestamp() - prepared)::float8,
            concat('user ', owner, ', database ', database), ''
        FROM pg_prepared_xacts
        UNION ALL SELECT 'replication slot', slot_name, greatest(age(xmin), age(catalog_xmin)), NULL, '', ''
        FROM pg_replication_slots
        UNION ALL SELECT 'standby', application_name, age(backend_xmin), NULL, '', '' FROM pg_stat_replication
    ) holders WHERE age > 0 ORDER BY age DESC, name LIMIT 5
"""
_VACUUMING_QUERY: LiteralString = """
    SELECT query FROM pg_stat_activity WHERE application_name = %s AND state = 'active' LIMIT 1
"""
_TABLES_QUERY: LiteralString = """
    SELECT n.nspname, c.relname, greatest(age(c.relfrozenxid), mxid_age(c.relminmxid), age(t.relfrozenxid),
        mxid_age(t.relminmxid))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
    WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't' AND NOT EXISTS (
        SELECT FROM pg_locks l WHERE l.relation = c.oid AND l.granted
            AND l.database IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
            AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))
    ORDER BY 3 DESC, 1, 2 LIMIT %s
"""
"""The oldest tables without a lock that excludes a vacuum. Autovacuum has one on the table that it works on."""
_SETTINGS_QUERY: LiteralString = """
    SELECT set_config('application_name', %s, false), set_config('statement_timeout', '0', false),
        set_config('client_connection_check_interval', '0', false), set_config('vacuum_cost_delay', '2ms', false),
        set_config('vacuum_cost_limit', '2000', false)
"""
"""Settings of the session that vacuums.

It reads and writes ten times as much a second as autovacuum does by default. From an age of 1.6 billion on, the
server itself lifts this limit.
"""
_END_QUERY: LiteralString = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = %s AND backend_start::text = %s AND backend_type = 'client backend'
        AND xact_start <= clock_timestamp() - make_interval(secs => %s)
"""


async def inspect_transaction_ids(server: DatabaseServer) -> TransactionIds:
    """Return the oldest database of a primary.

    Raises:
        EngineError: it does not respond in 10 s, refuses the login, or is not a primary.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await _require_primary(session, server, deadline)
        [(database, age, autovacuum_age)] = await session.rows("inspecting transaction IDs", _DATABASE_QUERY)
        holders = await session.rows("inspecting old transactions", _HOLDERS_QUERY)
        running = await session.rows("inspecting the vacuum", _VACUUMING_QUERY, _APPLICATION)
    return TransactionIds(
        database=database,
        age=age,
        autovacuum_age=autovacuum_age,
        holders=[
            XminHolder(kind=kind, name=name, age=age, seconds=seconds, detail=detail, started=started)
            for kind, name, age, seconds, detail, started in holders
        ],
        vacuuming=running[0][0].rpartition(") ")[2] if running else "",
    )


async def vacuum_oldest_tables(server: DatabaseServer, database: str, least_age: int) -> Sequence[str]:
    """Vacuum the oldest tables of a database, one after another. Return their names.

    The last one may continue in the server. A locked table is skipped.

    Args:
        server: with a superuser's login.
        least_age: in transactions.

    Raises:
        EngineError: as `inspect_transaction_ids`, or the server refuses.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _TIMEOUT_SECONDS
    begun: list[str] = []
    async with logged_in(server, deadline, database) as session:
        await _require_primary(session, server, deadline)
        tables = await session.rows("searching for old tables", _TABLES_QUERY, _MAX_TABLES)
        await session.rows("preparing the vacuum", _SETTINGS_QUERY, _APPLICATION)
        for schema, name, age in tables:
            if age < least_age or loop.time() + _VACUUM_SECONDS >= deadline:
                break
            begun.append(f"{schema}.{name}")
            if not await _vacuum(session, schema, name):
                break
    return begun


async def _vacuum(session: PostgreSQLSession, schema: str, name: str) -> bool:
    """Vacuum a table. Return True if it is complete; otherwise it continues without this session."""
    statement = sql.SQL("VACUUM (FREEZE, INDEX_CLEANUP OFF, TRUNCATE OFF, SKIP_LOCKED) {}")
    running = asyncio.ensure_future(
        session.run(f"vacuuming {schema}.{name}", statement.format(sql.Identifier(schema, name)))
    )
    done, _ = await asyncio.wait([running], timeout=_VACUUM_SECONDS)
    if not done:
        # Not cancelled: that would request the end of the vacuum.
        session.abort()
        with suppress(EngineError):
            await running
        return False
    await running
    return True


async def end_transaction(server: DatabaseServer, holder: XminHolder, seconds: float) -> bool:
    """End a session whose transaction lasts at least this long. Return True if it was there.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: as `inspect_transaction_ids`.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await _require_primary(session, server, deadline)
        return bool(await session.rows("ending a session", _END_QUERY, int(holder.name), holder.started, seconds))


async def _require_primary(session: PostgreSQLSession, server: DatabaseServer, deadline: float) -> None:
    if not await session.begin_use(deadline):
        raise ServerUnreachable(server.endpoint, "it is not the primary")
