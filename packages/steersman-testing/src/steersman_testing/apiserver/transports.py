"""The server as one of its users meets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing

from steersman.client.transport import HttpRequest, HttpResponse
from steersman.errors import ConnectionFailed
from steersman_testing.apiserver.storage import WatchBroken
from steersman_testing.apiserver.watches import Watch


class AuthenticatedTransport:
    """The server, for one user."""

    def __init__(
        self,
        request: Callable[[HttpRequest], Awaitable[HttpResponse]],
        stream: Callable[[HttpRequest], AbstractAsyncContextManager[AsyncIterator[bytes]]],
    ) -> None:
        self._request = request
        self._stream = stream

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Answers ``request``, as the server itself does."""
        return await self._request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Opens a watch, as the server itself does."""
        return self._stream(request)

    async def close(self) -> None:
        """Does nothing, as the server's own."""


async def watch_lines(watch: Watch, request: HttpRequest) -> AsyncGenerator[bytes, None]:
    """The lines of ``watch``, until a test breaks it, or it is silent for too long: ConnectionFailed."""
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
    """``lines``, as they come over a connection."""
    for line in lines:
        yield line.encode()
