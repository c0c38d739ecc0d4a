"""The WAL receiver of a replica."""

from __future__ import annotations

import asyncio
from typing import LiteralString

from steersman_databases.engines.postgresql.sql.session import logged_in
from steersman_databases.engines.server import DatabaseServer

_TIMEOUT_SECONDS = 5.0
_RECEIVED_QUERY: LiteralString = """
    SELECT (greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn)::bigint
"""
_END_QUERY: LiteralString = "SELECT pg_terminate_backend(pid) FROM pg_stat_wal_receiver WHERE pid IS NOT NULL"


async def received_wal(server: DatabaseServer) -> int | None:
    """Return the end of a replica's WAL in bytes. None for a primary.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: it does not respond in 5 s, or refuses the login.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        [(position,)] = await session.rows("reading the end of the WAL", _RECEIVED_QUERY)
    return position


async def end_wal_receiver(server: DatabaseServer) -> bool:
    """End the WAL receiver of a replica, which then connects again. Return True if there was one.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: it does not respond in 5 s, or refuses the login.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        return bool(await session.rows("ending the WAL receiver", _END_QUERY))
