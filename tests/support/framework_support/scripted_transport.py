"""A transport that answers from a script: for what no well-behaved server does."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from steersman.client import HttpRequest, HttpResponse
from steersman.client.http import error_from_body

Step = bytes | Exception | float | Callable[[], None]
"""A line to send, an error to break with, seconds to be silent, or something to do."""


class ScriptedTransport:
    """Answers requests from ``answers`` and streams from ``streams``, in order; with none left it never answers.

    ``requests`` holds what was asked, streams included, with the time of the event loop. A server that does not
    offer streaming lists (``streams_lists``) refuses them, which is not part of the script.
    """

    def __init__(
        self,
        answers: Sequence[HttpResponse | Exception] = (),
        streams: Sequence[Sequence[Step]] = (),
        *,
        streams_lists: bool = False,
    ) -> None:
        self.streams_lists = streams_lists
        self.answers = deque(answers)
        self.streams = deque(streams)
        self.requests: list[tuple[float, HttpRequest]] = []
        self.open_streams = 0

    async def request(self, request: HttpRequest) -> HttpResponse:
        self._note(request)
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    async def close(self) -> None:
        return

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        if "sendInitialEvents" in request.query and not self.streams_lists:
            raise failure(422, "Invalid")
        self._note(request)
        steps = self.streams.popleft() if self.streams else (1e9,)
        if steps and isinstance(steps[0], Exception):
            raise steps[0]
        self.open_streams += 1
        try:
            yield _play(steps)
        finally:
            self.open_streams -= 1

    def _note(self, request: HttpRequest) -> None:
        self.requests.append((asyncio.get_running_loop().time(), request))


async def _play(steps: Sequence[Step]) -> AsyncGenerator[bytes, None]:
    for step in steps:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, bytes):
            yield step
        elif isinstance(step, float | int):
            await asyncio.sleep(step)
        else:
            step()


def answer(document: Any, status: int = 200, retry_after: float | None = None) -> HttpResponse:
    """``document`` as JSON."""
    return HttpResponse(status, json.dumps(document).encode(), retry_after)


def listed(*items: dict[str, Any], version: str = "1", more: str = "") -> HttpResponse:
    """A list, or a page of one when ``more`` is the token of the next."""
    return answer({"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)})


def failure(code: int, reason: str, *, retry_after: float | None = None) -> Exception:
    """The exception that a stream raises for an answer of ``code``."""
    body = json.dumps({"reason": reason, "code": code, "message": f"scripted {reason}"}).encode()
    return error_from_body(code, body, retry_after)


def refusal(code: int, reason: str, *, retry_after: float | None = None) -> HttpResponse:
    """The answer to a request that is refused."""
    return answer({"reason": reason, "code": code, "message": f"scripted {reason}"}, code, retry_after)


def event(kind: str, obj: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode()


def bookmark(version: str) -> bytes:
    """A line that says only how far the watch has come."""
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})
