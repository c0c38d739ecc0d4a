"""Check of the WAL that a primary retains for a replica.

The names of segments contain their numbers, and a primary removes the oldest first. The primary is the only
source that this check considers.

Source: PostgreSQL 15 documentation, 30.6 "WAL Internals"; src/backend/replication/walreceiverfuncs.c: a standby
starts to stream at the beginning of the segment that it needs.
"""

from __future__ import annotations

import asyncio

from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import DatabaseServer

from ..config.settings_catalog import SET_ROLE_READ_ALL_SETTINGS
from ..sql.session import logged_in

_TIMEOUT_SECONDS = 5.0
# The part of the name after the timeline, whose digits come first and change with a failover. The server is not asked
# for the segment of a position: the result at the beginning of a segment changed with version 17.
_OLDEST_SEGMENT_QUERY = """
    SELECT pg_catalog.min(pg_catalog.right(name, 16)),
           pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))
    FROM pg_catalog.pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'
"""


async def is_wal_missing(server: DatabaseServer, position: int) -> bool:
    """Return True if the primary `server` lacks the WAL after `position` (bytes).

    Raises:
        EngineError: it does not respond in 5 s, refuses the login, or is not a primary.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        if not await session.begin_use(deadline):
            raise ServerUnreachable(server.endpoint, "it is not the primary")
        await session.run("requesting access to the WAL", SET_ROLE_READ_ALL_SETTINGS)
        [(oldest, size)] = await session.rows("inspecting the WAL", _OLDEST_SEGMENT_QUERY)
    return oldest is not None and position < (int(oldest[:8], 16) << 32) + int(oldest[8:], 16) * int(size)
