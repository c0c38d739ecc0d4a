"""Parameters that users set with ALTER SYSTEM.

They are in a file of each server, which overrides the shared configuration. Replicas have such a file, too, and
accept ALTER SYSTEM as a primary does, because it writes no WAL.

Source: PostgreSQL 15 documentation, 20.1.2 "Parameter Interaction via the Configuration File".
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from psycopg import sql

from steersman_databases.engines.server import DatabaseServer

from ..sql.session import logged_in

_TIMEOUT_SECONDS = 5.0
_ALTER_SYSTEM_QUERY = """
    SELECT DISTINCT name FROM pg_catalog.pg_file_settings
    WHERE sourcefile LIKE '%%/postgresql.auto.conf' AND pg_catalog.lower(name) = ANY (%s) ORDER BY name
"""


async def reset(server: DatabaseServer, names: Collection[str]) -> Sequence[str]:
    """Reset the parameters of `names` that ALTER SYSTEM set.

    Returns their names. The server does not reload its files by this.

    Args:
        server: a server of a cluster with a superuser's login. It may be a standby.

    Raises:
        EngineError: it does not finish in 5 s, or refuses.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        rows = await session.rows(
            "inspecting ALTER SYSTEM settings", _ALTER_SYSTEM_QUERY, [name.lower() for name in names]
        )
        in_auto_conf = [str(row[0]) for row in rows]
        for name in in_auto_conf:
            parts = sql.SQL(".").join(map(sql.Identifier, name.split(".")))
            await session.run(f"resetting {name}", sql.SQL("ALTER SYSTEM RESET {}").format(parts))
    return in_auto_conf
