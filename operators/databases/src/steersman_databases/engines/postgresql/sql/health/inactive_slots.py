"""Replication slots without a client."""

from __future__ import annotations

import asyncio
from typing import LiteralString

from steersman_databases.engines.postgresql.sql.session import logged_in
from steersman_databases.engines.server import DatabaseServer

_TIMEOUT_SECONDS = 5.0
_DROP_QUERY: LiteralString = """
    SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
    WHERE slot_name = %s AND NOT active AND pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery()
        THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn) >= %s
"""


async def drop_inactive_slot(server: DatabaseServer, name: str, least_bytes: int) -> bool:
    """Drop a slot without a client that retains as much WAL.

    Returns True if it was dropped.
    A client that was connected meanwhile has advanced the slot, so it retains less.

    Args:
        server: with a superuser's login. It may be a standby.

    Raises:
        EngineError: it does not finish in 5 s, or refuses.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        return bool(await session.rows(f"dropping replication slot {name}", _DROP_QUERY, name, least_bytes))
