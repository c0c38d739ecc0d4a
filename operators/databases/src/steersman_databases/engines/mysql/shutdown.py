"""Has a server end. Its agent starts it again, with what is declared by then."""

from __future__ import annotations

import asyncio

from ..server import Server
from .session import logged_in

_SECONDS = 10.0


async def shut_down(server: Server) -> None:
    """``SHUTDOWN``, which is answered before it is done. Raises EngineError."""
    async with logged_in(server, asyncio.get_running_loop().time() + _SECONDS) as session:
        await session.command("shutting down", "SHUTDOWN")
