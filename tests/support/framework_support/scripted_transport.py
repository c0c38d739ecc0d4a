"""A transport that answers from a script: for what no well-behaved server does."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from steersman.client import HttpRequest, HttpResponse
from steersman.client.transport.http import error_from_body

Step = bytes | Exception | float | Callable[[], None]
"""A line to send, an error to break with, seconds to be silent, or something to do."""


class ScriptedTransport:
    """Answers requests from ``answers`` and streams from ``streams``, in order; with none left it never answers.

    ``requests`` holds what was asked, streams included, with the time of the event loop. A server that does not
    offer streaming lists (``streams_lists``) refuses them, which is not part of the script.
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
    """``document`` as JSON."""
    return HttpResponse(status, json.dumps(document).encode(), retry_after)


def list_response(*items: dict[str, Any], version: str = "1", more: str = "") -> HttpResponse:
    """A list, or a page of one when ``more`` is the token of the next."""
    return json_response({"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)})


def failure(code: int, reason: str, *, retry_after: float | None = None) -> Exception:
    """The exception that a stream raises for an answer of ``code``."""
    body = json.dumps({"reason": reason, "code": code, "message": f"scripted {reason}"}).encode()
    return error_from_body(code, body, retry_after)


def error_response(code: int, reason: str, *, retry_after: float | None = None) -> HttpResponse:
    """The answer to a request that is refused."""
    return json_response({"reason": reason, "code": code, "message": f"scripted {reason}"}, code, retry_after)


def watch_line(kind: str, obj: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode()


def bookmark_line(version: str) -> bytes:
    """A line that says only how far the watch has come."""
    return watch_line("BOOKMARK", {"metadata": {"resourceVersion": version}})
