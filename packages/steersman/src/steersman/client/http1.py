"""HTTP/1.1 over kept connections: just what a client of the Kubernetes API needs, in little CPU.

One request at a time on each connection, as HTTP/1.1 has it; the pool opens another when all are busy. A message is
written in one call by whoever sends it, so that nothing comes between a last look at the clock and the first byte.
The parser is llhttp, that of Node.js, in httptools.

Source: RFC 9112 (HTTP/1.1), RFC 9110 section 9.3.6 (CONNECT).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import sys
import threading
import zlib
from collections import deque
from collections.abc import AsyncGenerator
from ipaddress import ip_address
from typing import cast

import httptools
from msgspec import Struct

from steersman.client.proxy import Proxy
from steersman.client.tls_transport import TlsTransport

CONNECT_TIMEOUT_SECONDS = 30.0
# For each address of several but the last: a lease must be renewed in 10 s.
_ADDRESS_TIMEOUT_SECONDS = 5.0
# The API server ends idle connections after 90 s: ours end first, so that none is used at that moment.
_KEEP_ALIVE_SECONDS = 60.0
# A stream whose reader is slow is held up by the window of TCP, rather than by our memory.
_HIGH_WATER_BYTES, _LOW_WATER_BYTES = 2**20, 2**18
# asyncio would allocate a quarter of a mebibyte for each read and give most of it back: what is kept of it, however
# small, leaves holes in the heap, and the process grows for days.
_READ_SIZE_BYTES = 2**17
# Seconds until the first probe of an idle connection and between probes; how many; milliseconds without an answer.
_TCP_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


class Disconnected(ConnectionError):
    """The connection ended, or spoke something else than HTTP, before the answer was complete."""


class ProxyUnreachable(ConnectionError):
    """The proxy cannot be reached; the message names it."""


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


class ConnectionPool:
    """Opens connections and keeps idle ones for the next request.

    Args:
        limit: connections in use at most; who finds them all busy waits his turn. None: as many as are asked for.
        keep_alive: seconds after which an idle connection is ended.
    """

    def __init__(self, limit: int | None = None, *, keep_alive: float = _KEEP_ALIVE_SECONDS) -> None:
        self._loop = asyncio.get_running_loop()
        self._semaphore = asyncio.Semaphore(limit or sys.maxsize)
        self._keep_alive = keep_alive
        self._idle: dict[Origin, list[Connection]] = {}
        self._in_use: set[Connection] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._aborted = False

    async def acquire(self, origin: Origin) -> Connection:
        """A connection that is ready for a request; ``release`` must follow, once.

        Raises:
            OSError: the server cannot be reached; ``ssl.SSLError`` where TLS fails, ``TimeoutError`` after 30 s,
                ``Disconnected`` after ``abort``.
        """
        await self._semaphore.acquire()
        try:
            connection = self._reuse(origin) or await self._open(origin)
        except BaseException:
            self._semaphore.release()
            raise
        self._in_use.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Gives ``connection`` back: kept if its answer was read to the end, ended otherwise."""
        self._in_use.remove(connection)
        if connection.is_usable:
            connection.idle_since = self._loop.time()
            self._idle.setdefault(connection.origin, []).append(connection)
            if self._sweep_timer is None:
                self._sweep_timer = self._loop.call_later(self._keep_alive / 2, self._close_expired)
        else:
            connection.abort()
        self._semaphore.release()

    def abort(self) -> None:
        """Ends all connections at once, and opens no more."""
        self._aborted = True
        for connection in [*self._in_use, *(c for idle in self._idle.values() for c in idle)]:
            connection.abort()
        self._idle.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _reuse(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            # The one used last: those beyond what is needed grow old and end.
            connection = idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def _open(self, origin: Origin) -> Connection:
        if not self._aborted:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                connection = await _connect(origin, self._loop)
            if not self._aborted:
                return connection
            connection.abort()
        raise Disconnected("the connection was closed")

    def _close_expired(self) -> None:
        self._sweep_timer = None
        idle_deadline = self._loop.time() - self._keep_alive
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since < idle_deadline:
                    connection.abort()
            if usable := [c for c in idle if c.is_usable]:
                self._idle[origin] = usable
            else:
                del self._idle[origin]
        if self._idle:
            self._sweep_timer = self._loop.call_later(self._keep_alive / 2, self._close_expired)


async def _connect(origin: Origin, loop: asyncio.AbstractEventLoop) -> Connection:
    if origin.proxy is not None:
        return await _connect_via_proxy(origin, origin.proxy, loop)
    return (await _dial(origin, origin.host, origin.port, origin.tls, origin.server_hostname or origin.host))[1]


async def _dial(
    origin: Origin, host: str, port: int, tls: ssl.SSLContext | None, server_hostname: str
) -> tuple[asyncio.Transport, Connection]:
    """Connects to one of ``host``'s addresses; each has its share of the time, since one may be of a dead machine."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CONNECT_TIMEOUT_SECONDS
    addresses = await _resolve_host(host, port)
    last_error: OSError = OSError(f"{host} has no address")
    for addresses_left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
        time_left = deadline - loop.time()
        timeout = time_left if addresses_left == 1 else min(time_left / addresses_left, _ADDRESS_TIMEOUT_SECONDS)
        try:
            async with asyncio.timeout(timeout):
                transport, connection = await loop.create_connection(lambda: Connection(origin, loop), address, port)
                _set_keepalive(transport)
                return await _start_tls(transport, connection, tls, server_hostname), connection
        except ssl.SSLError:
            raise
        except OSError as error:
            last_error = error
    raise last_error


async def _resolve_host(host: str, port: int) -> list[str]:
    """Those of ``host``; itself where it is one, without a thread: all may wait for silent DNS servers."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in resolved))


async def _start_tls(
    transport: asyncio.Transport, connection: Connection, tls: ssl.SSLContext | None, server_hostname: str
) -> asyncio.Transport:
    """The transport over which ``connection`` speaks from now on: ``below``, or TLS over that."""
    if tls is None:
        return transport
    if transport.is_closing():
        # Whoever takes its place now would not be told.
        raise Disconnected("the server closed the connection")
    tls_transport = TlsTransport(connection, tls, server_hostname, asyncio.get_running_loop())
    transport.set_protocol(tls_transport)
    tls_transport.connection_made(transport)
    await tls_transport.wait_handshake()
    return tls_transport


async def _connect_via_proxy(origin: Origin, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> Connection:
    address = proxy.address
    tls = ssl.create_default_context() if address.scheme == "https" else None
    try:
        proxy_transport, connection = await _dial(origin, address.host, address.port, tls, address.host)
    except OSError as error:
        raise ProxyUnreachable(f"cannot connect to the proxy {address.authority}: {describe_error(error)}") from error
    if origin.tls is None:
        return connection
    try:
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        lines = [f"CONNECT {host}:{origin.port} HTTP/1.1", f"Host: {host}:{origin.port}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        response = await connection.send("\r\n".join([*lines, "", ""]).encode(), tunnel=True)
        if response.code != 200:
            raise Disconnected(f"the proxy {address.authority} answered {response.code}")
        tunnel = Connection(origin, loop)
        await _start_tls(proxy_transport, tunnel, origin.tls, origin.server_hostname or origin.host)
    except BaseException:
        proxy_transport.abort()
        raise
    return tunnel


def describe_error(error: Exception) -> str:
    """What went wrong, in words for people: asyncio's own name addresses, and the ssl module's its source files."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message} (see certificate-authority and tls-server-name)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)


def _set_keepalive(transport: asyncio.BaseTransport) -> None:
    """Lets the system notice within half a minute that the peer is gone without a word, as a waiting watch must."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Closed, in whatever way, it forgets what the peer has not acknowledged: else the kernel would go on sending a
    # write of a leader that has ended, and it would arrive after those of the next one.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for name, value in _TCP_KEEPALIVE.items():
        # Not every system has them all.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
