"""A program with metrics behind a bearer token, on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

_BODY = "orders_total 1\n"


class MetricsTarget:
    """Serves one metric to requests with the token."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to the requests of a connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                allowed = f"authorization: bearer {self.token}".lower() in head.decode().lower()
                status = "200 OK" if allowed else "401 Unauthorized"
                body = _BODY if allowed else ""
                header = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write((header + body).encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def metrics_target(ip: str, port: int, token: str) -> AsyncGenerator[MetricsTarget]:
    """Run a target."""
    target = MetricsTarget(token)
    server = await asyncio.start_server(target.serve, ip, port)
    try:
        yield target
    finally:
        server.close()
