"""What parameters a server knows and what it runs with, asked of its view ``pg_settings``."""

from __future__ import annotations

import asyncio

from psycopg import sql

from ..cluster import Setting, SettingCatalog
from ..server import Server
from .session import logged_in

_SECONDS = 5.0
_COLUMNS = (
    *("name", "value", "unit", "context", "kind", "minimum", "maximum", "choices", "pending_restart"),
    *("of_session", "altered"),
)
# The operator's role has the rights of this one only where it asks for them.
SEEING_ALL = sql.SQL("SET ROLE {}").format(sql.Identifier("pg_monitor"))
_SETTINGS = """
    SELECT name, setting, unit, context, vartype, min_val, max_val, coalesce(enumvals, '{}'), pending_restart,
           source IN ('client', 'session', 'user', 'database', 'database user'),
           coalesce(sourcefile LIKE '%%/postgresql.auto.conf', false)
    FROM pg_catalog.pg_settings
"""


async def catalog(server: Server) -> SettingCatalog:
    """All parameters of one server, which may be a standby, by name.

    Raises:
        EngineError: it does not answer in 5 s, or does not let the operator in.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        await session.run("asking to see all parameters", SEEING_ALL)
        rows = await session.rows("looking at the parameters", _SETTINGS)
    return {row[0]: Setting(**dict(zip(_COLUMNS, row, strict=True))) for row in rows}
