"""HTTP/1.1 over kept connections: just what a client of the Kubernetes API needs, in little CPU.

One request at a time on each connection, as HTTP/1.1 has it; the pool opens another when all are busy. A message is
written in one call by whoever sends it, so that nothing comes between a last look at the clock and the first byte.
The parser is llhttp, that of Node.js, in httptools.

Source: RFC 9112 (HTTP/1.1), RFC 9110 section 9.3.6 (CONNECT).
"""

from __future__ import annotations

import asyncio
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

# A stream whose reader is slow is held up by the window of TCP, rather than by our memory.
_HIGH_WATER_BYTES, _LOW_WATER_BYTES = 2**20, 2**18
# asyncio would allocate a quarter of a mebibyte for each read and give most of it back: what is kept of it, however
# small, leaves holes in the heap, and the process grows for days.
_READ_SIZE_BYTES = 2**17


class Disconnected(ConnectionError):
    """The connection ended, or spoke something else than HTTP, before the answer was complete."""


class Origin(Struct, frozen=True, eq=False):
    """How to reach a server; connections of one route are interchangeable.

    Attributes:
        tls: for https, which certificates to trust and to show; None for http.
        server_hostname: the name in the server's certificate.
        proxy: through which to go; with TLS by CONNECT, otherwise it gets the requests themselves.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: Proxy | None = None


class RawResponse:
    """What the server answered; ``body`` is empty for a stream, whose lines come by themselves."""

    __slots__ = ("body", "code", "fields")

    def __init__(self, code: int, fields: list[tuple[bytes, bytes]]) -> None:
        self.code = code
        self.fields = fields
        self.body = b""

    def header(self, name: bytes) -> str | None:
        """The first field called ``name`` (lower case), or None."""
        return next(iter(self.headers(name)), None)

    def headers(self, name: bytes) -> list[str]:
        """All fields called ``name`` (lower case)."""
        return [value.decode("latin-1") for field, value in self.fields if field == name]

    @property
    def has_self_defined_length(self) -> bool:
        """Whether it is known where the body ends; otherwise that is where the connection does."""
        return any(name in (b"content-length", b"transfer-encoding") for name, _ in self.fields)


class _ReceiveBuffer(threading.local):
    """Where bytes arrive. One a thread: an event loop asks for it and fills it in one go, whichever connection."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_READ_SIZE_BYTES))


_receive_buffer = _ReceiveBuffer()


class Connection(asyncio.BufferedProtocol):
    """One connection to a server. Made by a ``ConnectionPool``."""

    def __init__(self, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[RawResponse] | None = None
        self._error: Exception | None = None
        self._reset(stream=False)
        self._complete = True

    def _reset(self, *, stream: bool, tunnel: bool = False) -> None:
        self._stream = stream
        self._tunnel = tunnel
        self._fields: list[tuple[bytes, bytes]] = []
        self._response: RawResponse | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        self._complete = False
        self._decompressor: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]

    @property
    def is_usable(self) -> bool:
        """Whether a request may be written: open, being read, and the former answer was read to its end."""
        return self._complete and not self._paused and self._error is None and self._transport is not None

    def send(self, message: bytes, *, stream: bool = False, tunnel: bool = False) -> asyncio.Future[RawResponse]:
        """Writes ``message`` at once. The answer comes whole, or for a ``stream`` that is not refused when it begins.

        The future raises Disconnected. After a ``tunnel`` (CONNECT) the connection stays, whatever is said of it.
        """
        assert self._transport is not None
        self._reset(stream=stream or tunnel, tunnel=tunnel)
        self._waiter = self._loop.create_future()
        self._transport.write(message)
        return self._waiter

    async def lines(self, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        """The lines of a stream, without their newlines; what follows the last newline is a line if it is not empty.

        Raises:
            Disconnected: the connection broke.
            TimeoutError: not a byte came for ``silence`` seconds.
        """
        # Parts are joined once their line is complete: joining at each part would copy a large object over and over.
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
        """Ends the connection at once, in the middle of what it does."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(Disconnected("the connection was closed"))

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        # Not asserted: those of uvloop are none of asyncio's own classes.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what comes; it is read before anything else is put there."""
        return _receive_buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        if self._complete:
            # Nobody asked for anything.
            self.abort()
            return
        try:
            self._parser.feed_data(_receive_buffer.view[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Disconnected(f"the answer is not HTTP: {error.__context__ or error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._transport = None
        if (
            exc is None
            and self._response is not None
            and not self._complete
            and not self._response.has_self_defined_length
        ):
            self.on_message_complete()
        self._fail(Disconnected(describe_error(exc) if exc else "the server closed the connection"))

    # What the parser calls

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._complete:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header field."""
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head of the answer is read."""
        code = self._parser.get_status_code()
        if 100 <= code < 200:
            return
        response = self._response = RawResponse(code, self._fields)
        # What follows the body are no headers of its answer.
        self._fields = []
        if (b"content-encoding", b"gzip") in response.fields:
            self._decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
        if self._stream and code < 300:
            self._resolve(response)
        else:
            self._stream = False

    def on_body(self, body: bytes) -> None:
        """A part of the answer's body."""
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
        """The answer is read to its end."""
        response = self._response
        if response is None:
            # 1xx announces the answer proper.
            self._fields = []
            return
        if self._decompressor is not None and not self._decompressor.eof and self._chunks:
            self._fail(Disconnected("the answer is cut short within gzip"))
            self.abort()
            return
        self._complete = True
        if (
            self._transport is not None
            and not self._tunnel
            and (not self._parser.should_keep_alive() or self._transport.get_write_buffer_size())
        ):
            # Answered before it has read all of our request: the rest would be taken for the next one.
            self._transport.abort()
            self._error = self._error or Disconnected("the server closed the connection")
        if self._stream:
            self._wake_reader()
        else:
            chunks = self._chunks
            response.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._resolve(response)

    # Inside

    async def _next_chunk(self, idle_timeout: float) -> bytes | None:
        """The next part of a stream; None at its end."""
        while not self._chunks:
            if self._complete:
                return None
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(idle_timeout, self._on_idle_timeout, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk)
        if self._paused and self._buffered < _LOW_WATER_BYTES and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return chunk

    @staticmethod
    def _on_idle_timeout(waiter: asyncio.Future[RawResponse]) -> None:
        if not waiter.done():
            waiter.set_exception(TimeoutError("silent for too long"))

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
    """What went wrong, in words for people: asyncio's own name addresses, and the ssl module's its source files."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message} (see certificate-authority and tls-server-name)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
