"""HTTP/1.1 connections with low CPU cost.

A connection carries one request at a time and has no pipelining. ``ConnectionPool`` opens another one when all are in
use. Each request is written by a single call, so no code runs between the check of a lease and the first byte.
The parser is llhttp, from httptools.

Source: RFC 9112 (HTTP/1.1).
"""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import threading
import zlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import cast

import httptools
from msgspec import Struct

from steersman.client.transport.proxy import Proxy

# Above this size TCP flow control slows the server down, so that a slow reader does not fill our memory.
_HIGH_WATER_BYTES, _LOW_WATER_BYTES = 2**20, 2**18
# asyncio allocates 256 KiB for each read and frees most of it. The remainders fragment the heap over days.
_READ_SIZE_BYTES = 2**17
_END_OF_HEAD = b"\r\n\r\n"


class Disconnected(ConnectionError):
    """The connection ended, or sent invalid HTTP, before the response was complete."""


class Origin(Struct, frozen=True, eq=False):
    """Address of a server, with TLS and proxy settings.

    Connections of one origin are interchangeable.

    Attributes:
        host: DNS name or IP address.
        port: TCP port.
        tls: TLS settings for https, None for http.
        server_hostname: name in the server's certificate. Defaults to ``host``.
        proxy: proxy to connect through: a CONNECT tunnel with TLS, otherwise a forward proxy.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: Proxy | None = None


class RawResponse:
    """A response. ``body`` is empty for a stream, whose lines are read from the connection.

    The header fields stay unparsed until they are read, since most responses are used without any.
    """

    __slots__ = ("_head", "body", "code")

    def __init__(self, code: int, head: bytes) -> None:
        self.code = code
        self.body = b""
        self._head = head

    def header(self, name: bytes) -> str | None:
        """Return the first value of ``name`` (lower case), or None."""
        return next(iter(self.headers(name)), None)

    def headers(self, name: bytes) -> list[str]:
        """Return all values of ``name`` (lower case)."""
        if name not in self._head.lower():
            return []
        return [value.decode("latin-1") for field, value in self.fields if field == name]

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """Names in lower case and values, in the order of the response."""
        found: list[tuple[bytes, bytes]] = []
        for line in self._head.splitlines()[1:]:
            if not line:
                break
            name, _, value = line.partition(b":")
            found.append((name.strip().lower(), value.strip()))
        return found

    @property
    def has_self_defined_length(self) -> bool:
        """Return True if the headers define the end of the body.

        Otherwise the end of the connection defines it.
        """
        return any(name in (b"content-length", b"transfer-encoding") for name, _ in self.fields)


class _ReceiveBuffer(threading.local):
    """Buffer for received bytes, one for each thread. The event loop fills it and passes it on in one step."""

    def __init__(self) -> None:
        self.data = bytearray(_READ_SIZE_BYTES)
        self.view = memoryview(self.data)


_receive_buffer = _ReceiveBuffer()


class Connection(asyncio.BufferedProtocol):
    """A connection to a server. A ``ConnectionPool`` creates it."""

    def __init__(self, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[RawResponse] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._reset(stream=False, tunnel=False)
        self._complete = True

    def _reset(self, *, stream: bool, tunnel: bool) -> None:
        self._stream = stream
        self._tunnel = tunnel
        self._partial_head = b""
        self._response: RawResponse | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        self._complete = False
        self._decompressor: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]

    @property
    def is_usable(self) -> bool:
        """Return True if a request can be sent.

        The connection is open, and the previous response was read completely.
        """
        return self._complete and not self._paused and self._error is None and self._transport is not None

    def send(
        self, message: bytes, *, stream: bool = False, tunnel: bool = False, deadline: float = math.inf
    ) -> asyncio.Future[RawResponse]:
        """Write ``message`` at once and return a future of the response.

        Args:
            message: the whole request.
            stream: the future completes after the head. An error response is complete all the same.
            tunnel: the request is a CONNECT. The connection stays open after the response.
            deadline: time of the event loop at which the future raises TimeoutError. Defaults to none.

        Raises:
            Disconnected: by the future, if the connection ends before.
        """
        assert self._transport is not None
        self._reset(stream=stream or tunnel, tunnel=tunnel)
        waiter = self._wait(deadline)
        self._transport.write(message)
        return waiter

    async def lines(self, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a stream without their newlines.

        A non-empty last line without newline is included.

        Args:
            idle_timeout: seconds without a byte until TimeoutError is raised.

        Raises:
            Disconnected: the connection broke.
            TimeoutError: no byte arrived for ``idle_timeout`` seconds.
        """
        # Chunks are joined once a line is complete. Joining each time would copy a large object again and again.
        parts: list[bytes] = []
        while (chunk := await self._next_chunk(idle_timeout)) is not None:
            first, *rest = chunk.split(b"\n")
            parts.append(first)
            if rest:
                yield b"".join(parts)
                parts = [rest.pop()]
                for line in rest:
                    yield line
        if last := b"".join(parts):
            yield last

    def abort(self) -> None:
        """End the connection at once, even during a request."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(Disconnected("the connection was closed"))

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # No assertion: the transports of uvloop do not inherit from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for received bytes. They are processed before the next call."""
        return _receive_buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the received bytes."""
        if self._complete:
            # Without this, the parser would take bytes without a request for the next response.
            self.abort()
            return
        self._head_start, self._received = 0, nbytes
        try:
            self._parser.feed_data(_receive_buffer.view[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Disconnected(f"the response is not HTTP: {error.__context__ or error}"))
            self.abort()
        if self._response is None:
            self._partial_head += _receive_buffer.view[self._head_start : nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete or fail the pending response."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (
            exc is None
            and self._response is not None
            and not self._complete
            and not self._response.has_self_defined_length
        ):
            self.on_message_complete()
        self._fail(Disconnected(describe_error(exc) if exc else "the server closed the connection"))

    # Callbacks of the parser. Without on_header it calls none for each header field.

    def on_message_begin(self) -> None:
        """Abort on a second response to one request."""
        if self._complete:
            self.abort()

    def on_headers_complete(self) -> None:
        """Create the response from its head, unless it is informational (1xx)."""
        head = self._take_head()
        code = self._parser.get_status_code()
        if 100 <= code < 200:
            return
        response = self._response = RawResponse(code, head)
        if b"gzip" in head and response.header(b"content-encoding") == "gzip":
            self._decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
        if self._stream and code < 300:
            self._resolve(response)
        else:
            self._stream = False

    def on_body(self, body: bytes) -> None:
        """Store a part of the body, and pause reading for slow readers."""
        if self._decompressor is not None:
            body = self._decompressor.decompress(body)
        self._chunks.append(body)
        if self._stream:
            self._buffered += len(body)
            if self._buffered > _HIGH_WATER_BYTES and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
            self._wake_reader()

    def on_message_complete(self) -> None:
        """Complete the response, and keep the connection if the server does."""
        response = self._response
        if response is None:
            # The final response follows an informational one.
            return
        if self._decompressor is not None and not self._decompressor.eof and self._chunks:
            self._fail(Disconnected("the response ends within gzip"))
            self.abort()
            return
        self._complete = True
        if (
            self._transport is not None
            and not self._tunnel
            and (not self._parser.should_keep_alive() or self._transport.get_write_buffer_size())
        ):
            # The server responded before it read the whole request. It would parse the rest as the next request.
            self._transport.abort()
            self._error = self._error or Disconnected("the server closed the connection")
        if self._stream:
            self._wake_reader()
        else:
            chunks = self._chunks
            response.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._resolve(response)

    # Private

    def _take_head(self) -> bytes:
        """Return the completed head, which may have arrived in several reads."""
        start = self._head_start
        if not self._partial_head:
            end = _receive_buffer.data.find(_END_OF_HEAD, start, self._received)
            end = self._received if end < 0 else end + len(_END_OF_HEAD)
            self._head_start = end
            return _receive_buffer.view[start:end].tobytes()
        head = self._partial_head + _receive_buffer.view[start : self._received]
        end = head.find(_END_OF_HEAD)
        end = len(head) if end < 0 else end + len(_END_OF_HEAD)
        self._head_start = start + end - len(self._partial_head)
        self._partial_head = b""
        return head[:end]

    def _wait(self, deadline: float) -> asyncio.Future[RawResponse]:
        """Create the future that the next response or chunk resolves.

        The timer of the connection stays scheduled after the response and serves later requests, whose deadlines are
        later. Creating and cancelling a timer is a large part of the cost of a request.
        """
        waiter = self._waiter = self._loop.create_future()
        self._deadline = deadline
        if deadline < (math.inf if self._timer is None else self._timer.when()):
            self._set_timer()
        return waiter

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is None or self._waiter is None or self._waiter.done() or self._deadline == math.inf:
            return
        if timer.when() < self._deadline:
            self._set_timer()
        else:
            self._waiter.set_exception(TimeoutError("no data received in time" if self._stream else "timed out"))

    async def _next_chunk(self, idle_timeout: float) -> bytes | None:
        """Return the next part of a stream, or None at its end."""
        while not self._chunks:
            if self._complete:
                return None
            if self._error is not None:
                raise self._error
            await self._wait(self._loop.time() + idle_timeout)
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk)
        if self._paused and self._buffered < _LOW_WATER_BYTES and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return chunk

    def _wake_reader(self) -> None:
        if self._response is not None:
            self._resolve(self._response)

    def _resolve(self, response: RawResponse) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(response)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._error)


def describe_error(error: Exception) -> str:
    """Return a short error message for users.

    It omits the addresses and source files that asyncio and ssl include.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message} (see certificate-authority and tls-server-name)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
