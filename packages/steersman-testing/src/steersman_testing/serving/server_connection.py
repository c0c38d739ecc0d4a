"""HTTP/1.1 server connection with keep-alive, backpressure and streams.

The parser is llhttp of httptools. Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, cast

import httptools

from steersman.observability.logging import get_logger

# MaxRequestBodyBytes of k8s.io/apiserver and DefaultMaxHeaderBytes of net/http.
MAX_BODY_BYTES = 3 * 2**20
_MAX_HEADER_BYTES = 2**20
_MAX_PIPELINED_REQUESTS = 16
# Separates the values of a repeated header. A comma may be part of a value.
HEADER_VALUE_SEPARATOR = "\n"

RequestError = Literal["", "malformed", "too large"]
HeaderFields = Sequence[tuple[str, str]]
"""Header names and values without control characters."""

log = get_logger("testing")


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A received request.

    Attributes:
        method: HTTP method.
        target: path and query, percent-encoded.
        headers: values by lower-case name. ``HEADER_VALUE_SEPARATOR`` separates repeated values.
        body: the body.
        keep_alive: whether the client keeps the connection open.
        accepts_chunked: whether the client understands chunked responses.
        error: reason why the request is malformed. Empty if it is well-formed.
    """

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes = b""
    keep_alive: bool = True
    accepts_chunked: bool = True
    error: RequestError = ""


class ResponseWriter:
    """Response to a request, sent at once or in chunks."""

    def __init__(
        self,
        transport: asyncio.Transport,
        writable: asyncio.Event,
        request: WireRequest,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._is_stopping = is_stopping
        self._writable = writable
        self._request = request
        self.is_stream = False
        self.head_sent = False

    def send(self, status: int, headers: HeaderFields, body: bytes) -> None:
        """Send a complete response."""
        head = self._format_head(status, (*headers, ("Content-Length", str(len(body)))))
        self._transport.write(head if self._request.method == "HEAD" else head + body)

    def start_stream(self, status: int, headers: HeaderFields) -> None:
        """Send the head of a stream."""
        self.is_stream = True
        framing = (("Transfer-Encoding", "chunked"),) if self._request.accepts_chunked else ()
        self._transport.write(self._format_head(status, (*headers, *framing)))
        if self._is_stopping():
            raise asyncio.CancelledError

    async def write_chunk(self, data: bytes) -> None:
        """Send a chunk and wait while the client is slow."""
        if self._request.accepts_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._transport.write(data)
        await self._writable.wait()

    def end_stream(self) -> None:
        """Terminate the stream, which otherwise counts as incomplete."""
        if self._request.accepts_chunked:
            self._transport.write(b"0\r\n\r\n")
        self.is_stream = False

    def abort(self) -> None:
        """Abort the connection, as a network failure would."""
        self._transport.abort()

    def _format_head(self, status: int, headers: HeaderFields) -> bytes:
        self.head_sent = True
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
        if not self._request.keep_alive:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode()


RequestHandler = Callable[[WireRequest, ResponseWriter], Awaitable[None]]


class ServerConnection(asyncio.Protocol):
    """A client connection. Requests are handled in order.

    Args:
        handler: called with a request and its response. It is cancelled when the client disconnects.
        open_connections: set of open connections of the server.
    """

    def __init__(self, handler: RequestHandler, open_connections: set[ServerConnection]) -> None:
        self._handler = handler
        self._open_connections = open_connections
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[WireRequest] = deque()
        self._request_arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._response: ResponseWriter | None = None
        self._stopping = False
        self.on_message_begin()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open_connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.discard(self)
        self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is complete and is handled. Further data is ignored.
            self._transport.pause_reading()
        except httptools.HttpParserError:
            self._transport.pause_reading()
            self._enqueue(WireRequest("", b"", {}, keep_alive=False, error="malformed"))

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body_chunks: list[bytes] = []
        self._header_bytes = self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_header_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        field, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[field] = (
            f"{self._headers[field]}{HEADER_VALUE_SEPARATOR}{text}" if field in self._headers else text
        )
        self._count_header_bytes(len(name) + len(value))

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue" and self._is_idle:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= MAX_BODY_BYTES:
            self._body_chunks.append(body)

    def on_message_complete(self) -> None:
        too_large = self._body_bytes > MAX_BODY_BYTES
        request = WireRequest(
            method=self._parser.get_method().decode("ascii"),
            target=self._target,
            headers=self._headers,
            body=b"" if too_large else b"".join(self._body_chunks),
            keep_alive=self._parser.should_keep_alive() and not self._parser.should_upgrade(),
            accepts_chunked=self._parser.get_http_version() == "1.1",
            error="too large" if too_large else "",
        )
        self._enqueue(request)

    def _count_header_bytes(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MAX_HEADER_BYTES:
            raise ValueError("the header section is too long")

    # Requests

    def stop(self) -> None:
        """Close gracefully: finish the current response and terminate streams."""
        self._stopping = True
        if self._is_idle or (self._response is not None and self._response.is_stream):
            self._task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _is_idle(self) -> bool:
        return self._response is None and not self._requests

    def _enqueue(self, request: WireRequest) -> None:
        self._requests.append(request)
        self._request_arrived.set()
        if len(self._requests) == _MAX_PIPELINED_REQUESTS:
            self._transport.pause_reading()

    async def _next_request(self) -> WireRequest:
        while not self._requests:
            self._request_arrived.clear()
            await self._request_arrived.wait()
        if len(self._requests) == _MAX_PIPELINED_REQUESTS:
            self._transport.resume_reading()
        return self._requests.popleft()

    async def _serve(self) -> None:
        keep_alive = True
        try:
            while keep_alive and not self._stopping:
                request = await self._next_request()
                self._response = ResponseWriter(self._transport, self._writable, request, lambda: self._stopping)
                await self._handle(request, self._response)
                keep_alive, self._response = request.keep_alive, None
        except asyncio.CancelledError:
            if self._response is not None and self._response.is_stream:
                self._response.end_stream()
            raise
        finally:
            self._transport.close()

    async def _handle(self, request: WireRequest, response: ResponseWriter) -> None:
        try:
            await self._handler(request, response)
        except Exception as error:
            log.error("request failed", target=request.target.decode("latin-1"), exc_info=error)
            if response.head_sent:
                response.abort()
            else:
                text = f"{type(error).__name__}: {error}\n"
                response.send(500, [("Content-Type", "text/plain; charset=utf-8")], text.encode())
