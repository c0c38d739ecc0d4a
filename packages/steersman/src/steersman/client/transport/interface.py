"""Interface of transports, with the types of requests and responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the API server.

    Attributes:
        method: ``GET``, ``POST``, ``PUT``, ``PATCH`` or ``DELETE``.
        path: absolute URL path, percent-encoded, without the query.
        query: query parameters, not yet encoded.
        body: JSON, or None. ``repr`` omits it, since it may contain a Secret.
        content_type: media type of the body. It selects the kind of a patch.
        timeout: seconds for the whole request. For a stream, seconds without a single byte.
        accept: accepted media types. ``as=PartialObjectMetadata`` requests metadata only.
        before_send: called right before the first byte of each attempt. If it raises, nothing is sent. This fences
            writes of a leader that was suspended until its lease expired.
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
    """A response of the API server.

    Attributes:
        status: the HTTP status code.
        body: content of any media type.
        retry_after: seconds of the ``Retry-After`` header, or None.
        uncertain: an earlier attempt of the same request may have been applied. A Conflict or NotFound may then be
            the effect of our own write.
        warnings: texts of the ``Warning`` headers, such as those of admission webhooks.
    """

    status: int
    body: bytes
    retry_after: float | None = None
    uncertain: bool = False
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {len(self.body)} bytes)"


class Transport(Protocol):
    """Carries requests. ``HttpTransport`` and ``steersman_testing.InMemoryApiServer`` implement it."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Send ``request`` and return the complete response, whatever its status code.

        Raises:
            ConnectionFailed: no complete response arrived.
        """
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a watch or a log request and yield its lines.

        The lines are yielded without their newlines as they arrive. Empty lines are included, and so is a last line
        without newline.

        Raises:
            ApiError: the server refused the request.
            ConnectionFailed: no response arrived, or the stream broke or had no data for ``timeout`` seconds.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
