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
from steersman.client.secure import SecureTransport

CONNECT_TIMEOUT = 30.0
# For each address of several but the last: a lease must be renewed in 10 s.
_ADDRESS_TIMEOUT = 5.0
# The API server ends idle connections after 90 s: ours end first, so that none is used at that moment.
_KEEP_ALIVE = 60.0
# A stream whose reader is slow is held up by the window of TCP, rather than by our memory.
_HIGH_WATER, _LOW_WATER = 2**20, 2**18
# asyncio would allocate a quarter of a mebibyte for each read and give most of it back: what is kept of it, however
# small, leaves holes in the heap, and the process grows for days.
_READ_SIZE = 2**17
# Seconds until the first probe of an idle connection and between probes; how many; milliseconds without an answer.
_WATCHFULNESS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


class Disconnected(ConnectionError):
    """The connection ended, or spoke something else than HTTP, before the answer was complete."""


class ProxyUnreachable(ConnectionError):
    """The proxy cannot be reached; the message names it."""


class Route(Struct, frozen=True, eq=False):
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


class Answer:
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
    def tells_its_length(self) -> bool:
        """Whether it is known where the body ends; otherwise that is where the connection does."""
        return any(name in (b"content-length", b"transfer-encoding") for name, _ in self.fields)


class _Inbox(threading.local):
    """Where bytes arrive. One a thread: an event loop asks for it and fills it in one go, whichever connection."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_READ_SIZE))


_inbox = _Inbox()


class Connection(asyncio.BufferedProtocol):
    """One connection to a server. Made by a ``ConnectionPool``."""

    def __init__(self, route: Route, loop: asyncio.AbstractEventLoop) -> None:
        self.route = route
        self.idle_since = 0.0
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._failure: Exception | None = None
        self._reset(stream=False)
        self._complete = True

    def _reset(self, *, stream: bool, tunnel: bool = False) -> None:
        self._stream = stream
        self._tunnel = tunnel
        self._fields: list[tuple[bytes, bytes]] = []
        self._answer: Answer | None = None
        self._parts: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        self._complete = False
        self._inflate: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]

    @property
    def is_usable(self) -> bool:
        """Whether a request may be written: open, being read, and the former answer was read to its end."""
        return self._complete and not self._paused and self._failure is None and self._transport is not None

    def send(self, message: bytes, *, stream: bool = False, tunnel: bool = False) -> asyncio.Future[Answer]:
        """Writes ``message`` at once. The answer comes whole, or for a ``stream`` that is not refused when it begins.

        The future raises Disconnected. After a ``tunnel`` (CONNECT) the connection stays, whatever is said of it.
        """
        assert self._transport is not None
        self._reset(stream=stream or tunnel, tunnel=tunnel)
        self._waiter = self._loop.create_future()
        self._transport.write(message)
        return self._waiter

    async def lines(self, silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of a stream, without their newlines; what follows the last newline is a line if it is not empty.

        Raises:
            Disconnected: the connection broke.
            TimeoutError: not a byte came for ``silence`` seconds.
        """
        # Parts are joined once their line is complete: joining at each part would copy a large object over and over.
        parts: list[bytes] = []
        while (chunk := await self._next(silence)) is not None:
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
        return _inbox.view

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        if self._complete:
            # Nobody asked for anything.
            self.abort()
            return
        try:
            self._parser.feed_data(_inbox.view[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Disconnected(f"the answer is not HTTP: {error.__context__ or error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._transport = None
        if exc is None and self._answer is not None and not self._complete and not self._answer.tells_its_length:
            self.on_message_complete()
        self._fail(Disconnected(reason_of(exc) if exc else "the server closed the connection"))

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
        answer = self._answer = Answer(code, self._fields)
        # What follows the body are no headers of its answer.
        self._fields = []
        if (b"content-encoding", b"gzip") in answer.fields:
            self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
        if self._stream and code < 300:
            self._resolve(answer)
        else:
            self._stream = False

    def on_body(self, body: bytes) -> None:
        """A part of the answer's body."""
        if self._inflate is not None:
            body = self._inflate.decompress(body)
        self._parts.append(body)
        if self._stream:
            self._buffered += len(body)
            if self._buffered > _HIGH_WATER and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
            self._wake()

    def on_message_complete(self) -> None:
        """The answer is read to its end."""
        answer = self._answer
        if answer is None:
            # 1xx announces the answer proper.
            self._fields = []
            return
        if self._inflate is not None and not self._inflate.eof and self._parts:
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
            self._failure = self._failure or Disconnected("the server closed the connection")
        if self._stream:
            self._wake()
        else:
            parts = self._parts
            answer.body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._resolve(answer)

    # Inside

    async def _next(self, silence: float) -> bytes | None:
        """The next part of a stream; None at its end."""
        while not self._parts:
            if self._complete:
                return None
            if self._failure is not None:
                raise self._failure
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(silence, self._silent, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
        part = self._parts.popleft()
        self._buffered -= len(part)
        if self._paused and self._buffered < _LOW_WATER and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return part

    @staticmethod
    def _silent(waiter: asyncio.Future[Answer]) -> None:
        if not waiter.done():
            waiter.set_exception(TimeoutError("silent for too long"))

    def _wake(self) -> None:
        if self._answer is not None:
            self._resolve(self._answer)

    def _resolve(self, answer: Answer) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._failure)


class ConnectionPool:
    """Opens connections and keeps idle ones for the next request.

    Args:
        limit: connections in use at most; who finds them all busy waits his turn. None: as many as are asked for.
        keep_alive: seconds after which an idle connection is ended.
    """

    def __init__(self, limit: int | None = None, *, keep_alive: float = _KEEP_ALIVE) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(limit or sys.maxsize)
        self._keep_alive = keep_alive
        self._idle: dict[Route, list[Connection]] = {}
        self._taken: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._aborted = False

    async def acquire(self, route: Route) -> Connection:
        """A connection that is ready for a request; ``release`` must follow, once.

        Raises:
            OSError: the server cannot be reached; ``ssl.SSLError`` where TLS fails, ``TimeoutError`` after 30 s,
                ``Disconnected`` after ``abort``.
        """
        await self._turns.acquire()
        try:
            connection = self._kept(route) or await self._opened(route)
        except BaseException:
            self._turns.release()
            raise
        self._taken.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Gives ``connection`` back: kept if its answer was read to the end, ended otherwise."""
        self._taken.remove(connection)
        if connection.is_usable:
            connection.idle_since = self._loop.time()
            self._idle.setdefault(connection.route, []).append(connection)
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(self._keep_alive / 2, self._sweep)
        else:
            connection.abort()
        self._turns.release()

    def abort(self) -> None:
        """Ends all connections at once, and opens no more."""
        self._aborted = True
        for connection in [*self._taken, *(c for idle in self._idle.values() for c in idle)]:
            connection.abort()
        self._idle.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _kept(self, route: Route) -> Connection | None:
        idle = self._idle.get(route)
        while idle:
            # The one used last: those beyond what is needed grow old and end.
            connection = idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def _opened(self, route: Route) -> Connection:
        if not self._aborted:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                connection = await _connect(route, self._loop)
            if not self._aborted:
                return connection
            connection.abort()
        raise Disconnected("the connection was closed")

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = self._loop.time() - self._keep_alive
        for route, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since < oldest:
                    connection.abort()
            if kept := [c for c in idle if c.is_usable]:
                self._idle[route] = kept
            else:
                del self._idle[route]
        if self._idle:
            self._sweeper = self._loop.call_later(self._keep_alive / 2, self._sweep)


async def _connect(route: Route, loop: asyncio.AbstractEventLoop) -> Connection:
    if route.proxy is not None:
        return await _connect_through(route, route.proxy, loop)
    return (await _dial(route, route.host, route.port, route.tls, route.server_hostname or route.host))[1]


async def _dial(
    route: Route, host: str, port: int, tls: ssl.SSLContext | None, server_hostname: str
) -> tuple[asyncio.Transport, Connection]:
    """Connects to one of ``host``'s addresses; each has its share of the time, since one may be of a dead machine."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + CONNECT_TIMEOUT
    addresses = await _addresses(host, port)
    failure: OSError = OSError(f"{host} has no address")
    for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
        time_left = ends - loop.time()
        patience = time_left if left == 1 else min(time_left / left, _ADDRESS_TIMEOUT)
        try:
            async with asyncio.timeout(patience):
                transport, connection = await loop.create_connection(lambda: Connection(route, loop), address, port)
                _watch_peer(transport)
                return await _secured(transport, connection, tls, server_hostname), connection
        except ssl.SSLError:
            raise
        except OSError as error:
            failure = error
    raise failure


async def _addresses(host: str, port: int) -> list[str]:
    """Those of ``host``; itself where it is one, without a thread: all may wait for silent DNS servers."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _secured(
    below: asyncio.Transport, connection: Connection, tls: ssl.SSLContext | None, server_hostname: str
) -> asyncio.Transport:
    """The transport over which ``connection`` speaks from now on: ``below``, or TLS over that."""
    if tls is None:
        return below
    if below.is_closing():
        # Whoever takes its place now would not be told.
        raise Disconnected("the server closed the connection")
    secure = SecureTransport(connection, tls, server_hostname, asyncio.get_running_loop())
    below.set_protocol(secure)
    secure.connection_made(below)
    await secure.secured()
    return secure


async def _connect_through(route: Route, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> Connection:
    at = proxy.address
    tls = ssl.create_default_context() if at.scheme == "https" else None
    try:
        hop, connection = await _dial(route, at.host, at.port, tls, at.host)
    except OSError as error:
        raise ProxyUnreachable(f"cannot connect to the proxy {at.authority}: {reason_of(error)}") from error
    if route.tls is None:
        return connection
    try:
        host = f"[{route.host}]" if ":" in route.host else route.host
        lines = [f"CONNECT {host}:{route.port} HTTP/1.1", f"Host: {host}:{route.port}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        answer = await connection.send("\r\n".join([*lines, "", ""]).encode(), tunnel=True)
        if answer.code != 200:
            raise Disconnected(f"the proxy {at.authority} answered {answer.code}")
        tunnelled = Connection(route, loop)
        await _secured(hop, tunnelled, route.tls, route.server_hostname or route.host)
    except BaseException:
        hop.abort()
        raise
    return tunnelled


def reason_of(error: Exception) -> str:
    """What went wrong, in words for people: asyncio's own name addresses, and the ssl module's its source files."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message} (see certificate-authority and tls-server-name)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)


def _watch_peer(transport: asyncio.BaseTransport) -> None:
    """Lets the system notice within half a minute that the peer is gone without a word, as a waiting watch must."""
    opened = transport.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Closed, in whatever way, it forgets what the peer has not acknowledged: else the kernel would go on sending a
    # write of a leader that has ended, and it would arrive after those of the next one.
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for name, value in _WATCHFULNESS.items():
        # Not every system has them all.
        if (option := getattr(socket, name, None)) is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
