"""Has a server end. Its agent starts it again, with what is declared by then."""

from __future__ import annotations

import asyncio

from ..errors import LoginRejected, ServerUnreachable
from ..server import Server
from .session import connect

_SECONDS = 10.0


async def shut_down(server: Server) -> None:
    """``SHUTDOWN``, which is answered before it is done. Raises ServerUnreachable."""
    deadline = asyncio.get_running_loop().time() + _SECONDS
    try:
        session = await connect(server, server.login, None, deadline)
    except LoginRejected as refusal:
        raise ServerUnreachable(server.endpoint, str(refusal)) from None
    try:
        await session.command("shutting down", "SHUTDOWN")
    finally:
        await session.close()
