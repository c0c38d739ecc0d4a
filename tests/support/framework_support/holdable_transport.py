"""A way to the API server in memory whose watches can be kept waiting, as those of a slow server are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from steersman.client import HttpRequest, HttpResponse, Transport


class HoldableTransport:
    """Lets requests pass at once, and the lines of watches only while it is open."""

    def __init__(self, server: Transport) -> None:
        self._server = server
        self._watches_open = asyncio.Event()
        self._watches_open.set()
        self.lists_released: asyncio.Event | None = None

    def hold_watches(self) -> None:
        """From now on nothing that the server's watches tell comes through."""
        self._watches_open.clear()

    def release_watches(self) -> None:
        """What has gathered comes through, and whatever follows."""
        self._watches_open.set()

    async def request(self, request: HttpRequest) -> HttpResponse:
        response = await self._server.request(request)
        if self.lists_released is not None and request.method == "GET":
            await self.lists_released.wait()
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    async def close(self) -> None:
        await self._server.close()

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        async with self._server.stream(request) as lines:
            yield self._forward_lines(lines)

    async def _forward_lines(self, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for line in lines:
            await self._watches_open.wait()
            yield line
