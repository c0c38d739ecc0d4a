"""Whether a primary still has the log from which a replica could go on.

Segments are called by their numbers, and a primary removes the oldest first. What it has not, nobody gives to the
replica any more: there is no archive.

Source: PostgreSQL 15 documentation, 30.6 "WAL Internals"; src/backend/replication/walreceiverfuncs.c: a standby asks
from the beginning of the segment that it needs.
"""

from __future__ import annotations

import asyncio

from ..errors import ServerUnreachable
from ..server import Server
from .catalog import SEEING_ALL
from .session import logged_in

_SECONDS = 5.0
# What stands behind the timeline, whose digits come first and differ after a failover. The server is
# not asked for a position's name: what it says of one at the beginning of a segment changed with version 17.
_OLDEST = """
    SELECT pg_catalog.min(pg_catalog.right(name, 16)),
           pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))
    FROM pg_catalog.pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'
"""


async def log_is_gone(server: Server, position: int) -> bool:
    """Whether the primary ``server`` has not the log any more that comes after ``position``, in bytes.

    Raises:
        EngineError: it does not answer in 5 s, does not let the operator in, or is no primary.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with logged_in(server, deadline) as session:
        if not await session.begin_use(deadline):
            raise ServerUnreachable(server.endpoint, "it is no primary")
        await session.run("asking to see the log", SEEING_ALL)
        [(oldest, size)] = await session.rows("looking at the log", _OLDEST)
    return oldest is not None and position < (int(oldest[:8], 16) << 32) + int(oldest[8:], 16) * int(size)
