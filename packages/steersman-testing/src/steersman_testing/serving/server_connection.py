"""HTTP/1.1 as a server of watches needs it: connections that are kept, streams that wait for their reader and end
with it. The parser is llhttp, in httptools. Source: RFC 9112."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, cast

import httptools

from steersman.observability.logging import get_logger

# As the real server has it: MaxRequestBodyBytes of k8s.io/apiserver, and net/http's DefaultMaxHeaderBytes.
MAX_BODY_BYTES = 3 * 2**20
_MAX_HEADER_BYTES = 2**20
_MAX_PIPELINED_REQUESTS = 16
# Stands between the values of a header that comes several times; a comma may be part of one.
HEADER_VALUE_SEPARATOR = "\n"

RequestError = Literal["", "malformed", "too large"]
HeaderFields = Sequence[tuple[str, str]]
"""A header: names and values, which must not have control characters."""

log = get_logger("testing")


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as it came.

    Attributes:
        target: path and query, percent-encoded.
        headers: by their names in lower case; ``BETWEEN`` stands between several values of one.
        keep: whether the client wants the connection kept.
        chunked: whether the client understands an answer in chunks.
        fault: why it could not be read; empty where it is sound.
    """

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes = b""
    keep_alive: bool = True
    accepts_chunked: bool = True
    error: RequestError = ""


class ResponseWriter:
    """The answer to one message: ``send`` it whole, or ``begin`` it, add ``part`` after ``part``, and ``end`` it."""

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
        """Sends everything at once."""
        head = self._format_head(status, (*headers, ("Content-Length", str(len(body)))))
        self._transport.write(head if self._request.method == "HEAD" else head + body)

    def start_stream(self, status: int, headers: HeaderFields) -> None:
        """Sends the head of a stream."""
        self.is_stream = True
        framing = (("Transfer-Encoding", "chunked"),) if self._request.accepts_chunked else ()
        self._transport.write(self._format_head(status, (*headers, *framing)))
        if self._is_stopping():
            raise asyncio.CancelledError

    async def write_chunk(self, data: bytes) -> None:
        """Sends a part of a stream, and waits while its reader is behind."""
        if self._request.accepts_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._transport.write(data)
        await self._writable.wait()

    def end_stream(self) -> None:
        """Ends a stream as it should be; without it, the client is told that it broke."""
        if self._request.accepts_chunked:
            self._transport.write(b"0\r\n\r\n")
        self.is_stream = False

    def abort(self) -> None:
        """Breaks the connection, as a network does."""
        self._transport.abort()

    def _format_head(self, status: int, headers: HeaderFields) -> bytes:
        self.head_sent = True
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
        if not self._request.keep_alive:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode()


RequestHandler = Callable[[WireRequest, ResponseWriter], Awaitable[None]]


class ServerConnection(asyncio.Protocol):
    """A client's connection. Its requests are answered by ``answer``, one after another in their order.

    Args:
        answer: called with a message and the reply to it. It is cancelled when the client goes away.
        others: the open connections of the same server, which this one joins and leaves.
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

    # What asyncio calls

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
            # Its message is complete and is answered; nothing is read after it.
            self._transport.pause_reading()
        except httptools.HttpParserError:
            self._transport.pause_reading()
            self._enqueue(WireRequest("", b"", {}, keep_alive=False, error="malformed"))

    # What httptools calls

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
            raise ValueError("the head is too long")

    # The conversation

    def stop(self) -> None:
        """Ends the connection in order: what is being answered is finished, streams get their end."""
        self._stopping = True
        if self._is_idle or (self._response is not None and self._response.is_stream):
            self._task.cancel()

    async def wait_closed(self) -> None:
        """Returns once everything that was begun has ended."""
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
            log.error("a request could not be answered", target=request.target.decode("latin-1"), exc_info=error)
            if response.head_sent:
                response.abort()
            else:
                text = f"{type(error).__name__}: {error}\n"
                response.send(500, [("Content-Type", "text/plain; charset=utf-8")], text.encode())
