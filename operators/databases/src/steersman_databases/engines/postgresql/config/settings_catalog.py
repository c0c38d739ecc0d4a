"""Parameters that a server knows, and their values, from the view `pg_settings`."""

from __future__ import annotations

import asyncio

from psycopg import sql

from steersman_databases.engines.cluster_engine import Setting, SettingCatalog
from steersman_databases.engines.server import DatabaseServer

from ..sql.session import logged_in

_TIMEOUT_SECONDS = 5.0
_COLUMNS = (
    *("name", "value", "unit", "context", "kind", "minimum", "maximum", "choices", "pending_restart"),
    *("session_settable", "overridden"),
)
# The operator's role has the rights of this one only after SET ROLE.
SET_ROLE_READ_ALL_SETTINGS = sql.SQL("SET ROLE {}").format(sql.Identifier("pg_monitor"))
_SETTINGS = """
    SELECT name, setting, unit, context, vartype, min_val, max_val, coalesce(enumvals, '{}'), pending_restart,
           source IN ('client', 'session', 'user', 'database', 'database user'),
           coalesce(sourcefile LIKE '%%/postgresql.auto.conf', false)
    FROM pg_catalog.pg_settings
"""


async def catalog(server: DatabaseServer) -> SettingCatalog:
    """Return all parameters of a server by name.

    The server may be a standby.

    Raises:
        EngineError: it does not respond in 5 s, or refuses the login.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        await session.run("requesting access to all parameters", SET_ROLE_READ_ALL_SETTINGS)
        rows = await session.rows("inspecting the parameters", _SETTINGS)
    return {row[0]: Setting(**dict(zip(_COLUMNS, row, strict=True))) for row in rows}
