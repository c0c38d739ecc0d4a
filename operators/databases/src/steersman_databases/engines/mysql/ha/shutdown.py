"""Shutdown of a server, which its agent starts again.

The server starts with the configuration that is declared then.
"""

from __future__ import annotations

import asyncio

from steersman_databases.engines.server import DatabaseServer

from ..sql.session import logged_in

_TIMEOUT_SECONDS = 10.0


async def shut_down(server: DatabaseServer) -> None:
    """Run `SHUTDOWN`, whose response comes before the end. Raises EngineError."""
    async with logged_in(server, asyncio.get_running_loop().time() + _TIMEOUT_SECONDS) as session:
        await session.command("shutting down", "SHUTDOWN")
