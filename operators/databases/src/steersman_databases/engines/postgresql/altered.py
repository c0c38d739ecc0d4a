"""What somebody set by ALTER SYSTEM: it stands in a file of each server's own, which outranks what all members share.

Replicas have a file of their own too, and take ALTER SYSTEM as a primary does: it writes no log.

Source: PostgreSQL 15 documentation, 20.1.2 "Parameter Interaction via the Configuration File".
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from psycopg import sql

from ..server import Server
from .session import logged_in

_SECONDS = 5.0
_STANDING = """
    SELECT DISTINCT name FROM pg_catalog.pg_file_settings
    WHERE sourcefile LIKE '%%/postgresql.auto.conf' AND pg_catalog.lower(name) = ANY (%s) ORDER BY name
"""


async def take_back(server: Server, names: Collection[str]) -> Sequence[str]:
    """Resets those of the parameters ``names`` that stand in the server's own file, and gives them.

    It is told by nobody to read its files again.

    Args:
        server: one of a cluster's, with a superuser's login; it may be a standby.

    Raises:
        EngineError: it does not do it in 5 s, or refuses.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        rows = await session.rows(
            "looking at what was set by ALTER SYSTEM", _STANDING, [name.lower() for name in names]
        )
        standing = [str(row[0]) for row in rows]
        for name in standing:
            parts = sql.SQL(".").join(map(sql.Identifier, name.split(".")))
            await session.run(f"resetting {name}", sql.SQL("ALTER SYSTEM RESET {}").format(parts))
    return standing
