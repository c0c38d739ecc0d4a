"""The transport seam: bytes to the API server and back. Everything above it is the same on a socket and in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to the API server.

    Attributes:
        method: ``GET``, ``POST``, ``PUT``, ``PATCH`` or ``DELETE``.
        path: absolute URL path, percent-encoded, without the query.
        query: query parameters, not yet encoded.
        body: JSON, or None; stays out of ``repr``, since it may hold a Secret.
        content_type: of the body; a patch's kind is told by it.
        timeout: seconds for the whole exchange; for a stream, seconds without a single byte.
        accept: the media types that the answer may have; ``as=PartialObjectMetadata`` asks for metadata alone.
        guard: called at the last moment before the first byte is sent, at every try anew. What it raises ends the
            request unsent: so a leader that was frozen past its lease sends no write when it thaws.
    """

    method: str
    path: str
    query: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    body: bytes | None = None
    content_type: str = "application/json"
    timeout: float = 60.0
    accept: str = "application/json"
    before_send: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.path}, query={dict(self.query)})"


class HttpResponse(msgspec.Struct, frozen=True):
    """The API server's answer to a request.

    Attributes:
        status: the HTTP status code.
        body: as it came, of any content type.
        retry_after: the seconds of a ``Retry-After`` header; None without one.
        uncertain: an earlier try of the same request may have been carried out, so a refusal may be the effect of our
            own write: a Conflict, since we have changed the object; a NotFound, since we have deleted it.
        warnings: the texts of its ``Warning`` headers, such as those of admission webhooks.
    """

    status: int
    body: bytes
    retry_after: float | None = None
    uncertain: bool = False
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {len(self.body)} bytes)"


class Transport(Protocol):
    """Carries requests. Implementations: ``HttpTransport`` (sockets), ``testing.InMemoryApiServer``."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Sends ``request`` and returns the whole answer, whatever its status code.

        Raises:
            ConnectionFailed: no complete answer came.
        """
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Sends a watch (or a log follow) and gives its lines, without their newlines, as they come.

        Empty lines are given, too, and so is what follows the last newline.

        Raises:
            ApiError: the server refused.
            ConnectionFailed: no answer, or the stream broke or fell silent for ``timeout`` seconds.
        """
        ...

    async def close(self) -> None:
        """Ends all connections."""
        ...
