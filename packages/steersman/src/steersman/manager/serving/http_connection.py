"""Server side of an HTTP/1.1 connection: keep-alive, pipelining, streams and graceful close.

The parser is llhttp, by way of httptools. Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Literal, cast

import httptools

from steersman.client.transport.tls_transport import TlsTransport
from steersman.manager.serving.open_connections import OpenConnections
from steersman.observability.logging import get_logger

# net/http's DefaultMaxHeaderBytes.
_DEFAULT_MAX_HEADER_BYTES = 2**20
_MAX_PIPELINED_REQUESTS = 16
_LINGER_TIMEOUT_SECONDS = 2.0
# A header that occurs several times has its values joined by this; a comma may be part of a value.
HEADER_VALUE_SEPARATOR = "\n"

RequestError = Literal["", "malformed", "header too large", "body too large"]
HeaderFields = Sequence[tuple[str, str]]
"""Header names and values. They must not contain control characters."""

log = get_logger("http server")


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as received.

    Attributes:
        target: path and query, percent-encoded.
        headers: values by lower-case name; ``HEADER_VALUE_SEPARATOR`` joins the values of a repeated header.
        keep_alive: True if the connection stays open after the response.
        accepts_chunked: True for HTTP/1.1 clients, which understand chunked responses.
        error: why the request could not be read; empty if it is valid.
    """

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes = b""
    keep_alive: bool = True
    accepts_chunked: bool = True
    error: RequestError = ""

    @property
    def has_body(self) -> bool:
        """True if the header announces a body."""
        return self.headers.get("content-length", "0") != "0" or "transfer-encoding" in self.headers


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Limits of a connection. By default nothing times out.

    Attributes:
        max_header_bytes: larger headers have the error ``header too large``. Defaults to 1 MiB.
        max_body_bytes: larger bodies have the error ``body too large``.
        tls: serves HTTPS.
        first_request_timeout: seconds from accept to the first complete request, TLS handshake included.
        idle_timeout: seconds to wait for the next request.
        body_timeout: seconds to wait for the body after the header.
        write_timeout: seconds to wait for the client to read a response.
        reads_body: decides by the header if the body is read. An unread body ends the connection after the response.
    """

    max_header_bytes: int = _DEFAULT_MAX_HEADER_BYTES
    max_body_bytes: float = math.inf
    tls: ssl.SSLContext | None = None
    first_request_timeout: float | None = None
    idle_timeout: float | None = None
    body_timeout: float | None = None
    write_timeout: float | None = None
    reads_body: Callable[[WireRequest], bool] = lambda _: True


class ResponseWriter:
    """Writes one response.

    Use ``send`` for a complete response, or ``start_stream``, ``write_chunk`` and ``end_stream``.
    """

    def __init__(self, connection: ServerConnection, transport: asyncio.Transport, request: WireRequest) -> None:
        self._connection = connection
        self._transport = transport
        self._request = request
        self.is_stream = False
        self.head_sent = False
        self.keep_alive = request.keep_alive

    def send(self, status: int, headers: HeaderFields, body: bytes) -> None:
        """Send a complete response."""
        head = self._format_head(status, (*headers, ("Content-Length", str(len(body)))))
        self._transport.write(head if self._request.method == "HEAD" else head + body)

    def start_stream(self, status: int, headers: HeaderFields) -> None:
        """Send the header of a streamed response."""
        self.is_stream = True
        framing = (("Transfer-Encoding", "chunked"),) if self._request.accepts_chunked else ()
        self.keep_alive = self.keep_alive and self._request.accepts_chunked
        self._transport.write(self._format_head(status, (*headers, *framing)))
        if self._connection.is_stopping:
            raise asyncio.CancelledError

    async def write_chunk(self, data: bytes) -> None:
        """Send a part of a streamed response, and wait for slow clients."""
        if self._request.accepts_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._transport.write(data)
        await self._connection.wait_writable()

    def end_stream(self) -> None:
        """End a streamed response. Without it the client sees an incomplete response."""
        if self._request.accepts_chunked:
            self._transport.write(b"0\r\n\r\n")
        self.is_stream = False

    def abort(self) -> None:
        """Reset the connection."""
        self._transport.abort()

    def _format_head(self, status: int, headers: HeaderFields) -> bytes:
        self.head_sent = True
        self.keep_alive = self.keep_alive and not self._connection.is_draining
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
        if not self.keep_alive:
            lines.append("Connection: close")
        elif not self._request.accepts_chunked:
            # An HTTP/1.0 client expects the end of the connection otherwise.
            lines.append("Connection: keep-alive")
        return "\r\n".join([*lines, "", ""]).encode()


RequestHandler = Callable[[WireRequest, ResponseWriter], Awaitable[None]]


class _ReceiveBuffer(threading.local):
    """Buffer for received bytes, one for each thread. They are parsed at once, so connections share it."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(2**16))


_receive_buffer = _ReceiveBuffer()


class ServerConnection(asyncio.BufferedProtocol):
    """A client's connection. Its requests are handled one after another, in their order.

    Args:
        handler: writes the response to a request. It is cancelled when the client disconnects.
        open_connections: the open connections of the server; this one adds and removes itself.
    """

    def __init__(
        self,
        handler: RequestHandler,
        open_connections: OpenConnections[ServerConnection],
        options: ConnectionOptions | None = None,
    ) -> None:
        self._handler = handler
        self._open_connections = open_connections
        self._options = options or ConnectionOptions()
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[WireRequest] = deque()
        self._request_arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._response: ResponseWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._discards_input = False
        self.is_draining = False
        self.is_stopping = False
        self.on_message_begin()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if isinstance(transport, TlsTransport):
            self._task = asyncio.get_running_loop().create_task(self._serve())
            return
        if not self._open_connections.admit(self):
            self._discards_input = True
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._start_timer(self._options.first_request_timeout)
        if self._options.tls is None:
            self._task = loop.create_task(self._serve())
            return
        tls_transport = TlsTransport(self, self._options.tls, None, loop)
        self._transport.set_protocol(tls_transport)
        tls_transport.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.discard(self)
        self._cancel_timer()
        if self._task is not None:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _receive_buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(_receive_buffer.view[:nbytes])

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes | memoryview) -> None:
        if self._discards_input:
            return
        self._message_began = False
        try:
            self._parser.feed_data(data)
            # The parser buffers an incomplete header, so its size counts before it is complete.
            if self._reads_header and not self._message_began:
                self._incomplete_header_bytes += len(data)
                self._check_header_size(self._incomplete_header_bytes)
        except httptools.HttpParserUpgrade:
            # The request is complete and gets a response; whatever follows is not HTTP.
            self._discards_input = True
        except (httptools.HttpParserError, ValueError):
            if not self._discards_input:
                self._discards_input = True
                self._enqueue(WireRequest("", b"", {}, keep_alive=False, error=self._parse_error))

    # httptools

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body_chunks: list[bytes] = []
        self._header_bytes = self._incomplete_header_bytes = self._body_bytes = 0
        self._reads_header = self._message_began = True
        self._parse_error: RequestError = "malformed"

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._header_bytes += len(url)
        self._check_header_size(self._header_bytes)

    def on_header(self, name: bytes, value: bytes) -> None:
        field, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[field] = (
            f"{self._headers[field]}{HEADER_VALUE_SEPARATOR}{text}" if field in self._headers else text
        )
        self._header_bytes += len(name) + len(value)
        self._check_header_size(self._header_bytes)

    def on_headers_complete(self) -> None:
        self._reads_header = False
        request = self._new_request()
        if request.has_body and not self._options.reads_body(request):
            self._discards_input = True
            self._enqueue(replace(request, keep_alive=False))
            return
        if self._headers.get("expect", "").lower() == "100-continue" and self.is_idle:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.has_body:
            self._start_timer(self._options.body_timeout)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if not self._discards_input and self._body_bytes <= self._options.max_body_bytes:
            self._body_chunks.append(body)
            self._open_connections.received(self, len(body))

    def on_message_complete(self) -> None:
        if not self._discards_input:
            self._enqueue(self._new_request())

    def _new_request(self) -> WireRequest:
        too_large = self._body_bytes > self._options.max_body_bytes
        return WireRequest(
            method=self._parser.get_method().decode("ascii"),
            target=self._target,
            headers=self._headers,
            body=b"" if too_large else b"".join(self._body_chunks),
            keep_alive=self._parser.should_keep_alive() and not self._parser.should_upgrade(),
            accepts_chunked=self._parser.get_http_version() == "1.1",
            error="body too large" if too_large else "",
        )

    def _check_header_size(self, size: int) -> None:
        if size > self._options.max_header_bytes:
            self._parse_error = "header too large"
            raise ValueError(self._parse_error)

    def _start_timer(self, timeout: float | None) -> None:
        self._cancel_timer()
        if timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout, self.reset)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Requests and responses

    def drain(self) -> None:
        """End the connection with the next response."""
        self.is_draining = True

    def stop(self) -> None:
        """Close the connection gracefully: complete the running response and end streams."""
        self.is_draining = self.is_stopping = True
        if self._task is not None and (self.is_idle or (self._response is not None and self._response.is_stream)):
            self._task.cancel()

    def abort(self) -> None:
        """Cancel the running handler and close the connection."""
        if self._task is None:
            self._transport.abort()
        else:
            self._task.cancel()

    def reset(self) -> None:
        """Close the connection at once, without sending what is buffered."""
        self._discards_input = True
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed and no handler runs."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def wait_writable(self) -> None:
        """Wait until the client has read most of what was written."""
        await self._writable.wait()

    @property
    def is_idle(self) -> bool:
        """True if no request is complete and unanswered."""
        return self._response is None and not self._requests

    def _enqueue(self, request: WireRequest) -> None:
        self._cancel_timer()
        self._requests.append(request)
        self._request_arrived.set()
        if len(self._requests) == _MAX_PIPELINED_REQUESTS:
            self._transport.pause_reading()

    async def _next_request(self) -> WireRequest:
        async with asyncio.timeout(self._options.idle_timeout):
            while not self._requests:
                self._request_arrived.clear()
                await self._request_arrived.wait()
        if len(self._requests) == _MAX_PIPELINED_REQUESTS:
            self._transport.resume_reading()
        return self._requests.popleft()

    async def _serve(self) -> None:
        keep_alive = True
        try:
            while keep_alive and not self.is_stopping:
                request = await self._next_request()
                self._response = ResponseWriter(self, self._transport, request)
                await self._handle(request, self._response)
                async with asyncio.timeout(self._options.write_timeout):
                    await self._writable.wait()
                keep_alive, self._response = self._response.keep_alive, None
                self._open_connections.responded(self, len(request.body))
            await self._linger()
        except TimeoutError:
            # The client is idle, or does not read the response: then closing would wait for it.
            self._transport.abort()
        except asyncio.CancelledError:
            if self._response is not None and self._response.is_stream:
                self._response.end_stream()
            raise
        finally:
            if not self._transport.is_closing():
                self._transport.close()
                # A client that does not read its response would keep the connection.
                self._start_timer(self._options.write_timeout)

    async def _linger(self) -> None:
        """Discard further input for a while before closing.

        Closing with unread input resets the connection. A reset may drop a response that the client has not read yet.
        Source: RFC 9112, section 9.6.
        """
        self._discards_input = True
        self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        await asyncio.sleep(_LINGER_TIMEOUT_SECONDS)

    async def _handle(self, request: WireRequest, response: ResponseWriter) -> None:
        try:
            await self._handler(request, response)
        except Exception as error:
            log.error("request handler failed", target=request.target.decode("latin-1"), exc_info=error)
            if response.head_sent:
                response.abort()
            else:
                text = f"{type(error).__name__}: {error}\n"
                response.send(500, [("Content-Type", "text/plain; charset=utf-8")], text.encode())
