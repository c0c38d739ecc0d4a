"""Transports for tests: scripted responses, delayed watches, old discovery."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from steersman.client import HttpRequest, HttpResponse, Transport
from steersman.client.transport.http import error_from_body

Step = bytes | Exception | float | Callable[[], None]
"""Response line, exception to raise, delay in seconds, or callback."""


class ScriptedTransport:
    """Replays ``responses`` for requests and ``streams`` for streams, in order.

    It waits forever when none is left. ``requests`` records all requests and streams with the time of the event loop.
    Without ``streams_lists`` it rejects streaming lists, which are not part of the script.
    """

    def __init__(
        self,
        responses: Sequence[HttpResponse | Exception] = (),
        streams: Sequence[Sequence[Step]] = (),
        *,
        streams_lists: bool = False,
    ) -> None:
        self.streams_lists = streams_lists
        self.responses = deque(responses)
        self.streams = deque(streams)
        self.requests: list[tuple[float, HttpRequest]] = []
        self.open_streams = 0

    async def request(self, request: HttpRequest) -> HttpResponse:
        self._record(request)
        if not self.responses:
            await asyncio.Event().wait()
        response = self.responses.popleft()
        if isinstance(response, Exception):
            raise response
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    async def close(self) -> None:
        return

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        if "sendInitialEvents" in request.query and not self.streams_lists:
            raise failure(422, "Invalid")
        self._record(request)
        steps = self.streams.popleft() if self.streams else (1e9,)
        if steps and isinstance(steps[0], Exception):
            raise steps[0]
        self.open_streams += 1
        try:
            yield _run_script(steps)
        finally:
            self.open_streams -= 1

    def _record(self, request: HttpRequest) -> None:
        self.requests.append((asyncio.get_running_loop().time(), request))


async def _run_script(steps: Sequence[Step]) -> AsyncGenerator[bytes, None]:
    for step in steps:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, bytes):
            yield step
        elif isinstance(step, float | int):
            await asyncio.sleep(step)
        else:
            step()


def json_response(document: Any, status: int = 200, retry_after: float | None = None) -> HttpResponse:
    """Response with ``document`` as JSON."""
    return HttpResponse(status, json.dumps(document).encode(), retry_after)


def list_response(*items: dict[str, Any], version: str = "1", more: str = "") -> HttpResponse:
    """List response. ``more`` is the continue token of the next page."""
    return json_response({"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)})


def failure(code: int, reason: str, *, retry_after: float | None = None) -> Exception:
    """Exception that a stream raises for a response with ``code``."""
    body = json.dumps({"reason": reason, "code": code, "message": f"scripted {reason}"}).encode()
    return error_from_body(code, body, retry_after)


def error_response(code: int, reason: str, *, retry_after: float | None = None) -> HttpResponse:
    """Response of a rejected request."""
    return json_response({"reason": reason, "code": code, "message": f"scripted {reason}"}, code, retry_after)


def watch_line(kind: str, obj: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode()


def bookmark_line(version: str) -> bytes:
    """A bookmark event."""
    return watch_line("BOOKMARK", {"metadata": {"resourceVersion": version}})


class HoldableTransport:
    """Forwards requests at once, and watch lines only while watches are open."""

    def __init__(self, server: Transport) -> None:
        self._server = server
        self._watches_open = asyncio.Event()
        self._watches_open.set()
        self.lists_released: asyncio.Event | None = None

    def hold_watches(self) -> None:
        """Hold all watch lines."""
        self._watches_open.clear()

    def release_watches(self) -> None:
        """Forward held and later watch lines."""
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


class UnaggregatedDiscoveryTransport(Transport):
    """Transport to a server without aggregated discovery."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        aggregated = "as=APIGroupDiscoveryList" in request.accept
        return await self._transport.request(replace(request, accept="application/json") if aggregated else request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()
