"""Transports for authenticated users, and streams of lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing

from steersman.client.transport import HttpRequest, HttpResponse
from steersman.errors import ConnectionFailed
from steersman_testing.apiserver.storage import WatchBroken
from steersman_testing.apiserver.watches import Watch


class AuthenticatedTransport:
    """Transport whose requests belong to one user."""

    def __init__(
        self,
        request: Callable[[HttpRequest], Awaitable[HttpResponse]],
        stream: Callable[[HttpRequest], AbstractAsyncContextManager[AsyncIterator[bytes]]],
    ) -> None:
        self._request = request
        self._stream = stream

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Handle ``request`` as the user."""
        return await self._request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch as the user."""
        return self._stream(request)

    async def close(self) -> None:
        """Do nothing, as ``InMemoryApiServer.close``."""


async def watch_lines(watch: Watch, request: HttpRequest) -> AsyncGenerator[bytes, None]:
    """Yield the lines of ``watch``.

    Raises:
        ConnectionFailed: a test broke the watch, or the timeout of ``request`` passed without an event.
    """
    async with aclosing(watch.events()) as events:
        try:
            while True:
                async with asyncio.timeout(request.timeout):
                    line = await anext(events, None)
                if line is None:
                    return
                yield line
        except WatchBroken:
            raise ConnectionFailed(f"{request.method} {request.path}: the watch was broken by the test") from None
        except TimeoutError:
            raise ConnectionFailed(f"{request.method} {request.path}: silent for {request.timeout} s") from None


async def encode_lines(lines: Iterable[str]) -> AsyncGenerator[bytes, None]:
    """Yield ``lines`` as bytes."""
    for line in lines:
        yield line.encode()
