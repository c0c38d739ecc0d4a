"""The transport over sockets: aiohttp's connections and parser, without its sessions.

A session of aiohttp costs 70 µs of CPU more for each request, and writes from a task that runs later, so that nobody
could say whether a leader's time had passed meanwhile. Here a request is one ``write``, right after its guard.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import aiohttp
import msgspec
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from steersman.client.cluster import ClusterConfig
from steersman.client.session import Session, Sessions
from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.errors import ApiError, ConnectionFailed, Status, error_from_status
from steersman.observability.logging import get_logger
from steersman.observability.metrics import RequestMetrics

log = get_logger("client")

# The API server ends idle connections after 90 s: ours end first, so that none is used at that moment.
_KEEP_ALIVE = 60.0
# Seconds until the first probe of an idle connection and between probes; how many; milliseconds without an answer.
_WATCHFULNESS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
_CONNECT_TIMEOUT = 30.0
# Enough for any number of workers; more would be a burst of handshakes rather than of requests.
_MOST_CONNECTIONS = 128
_READ_BUFFER = 2**20
_FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError)
_NO_CEILING = aiohttp.ClientTimeout(total=None)


def watchful_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices within half a minute that its peer is gone without a word, as a watch that waits must.

    Closing it resets the connection. Source: socket(7), tcp(7).
    """
    opened = socket.socket(*address[:3])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Closed, in whatever way, it forgets what the peer has not acknowledged: else the kernel would go on sending a
    # write of a leader that has ended, and it would arrive after those of the next one.
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for name, value in _WATCHFULNESS.items():
        # Not every system has them all.
        if (option := getattr(socket, name, None)) is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened


class _Exchange:
    """One request, as far as it has come."""

    __slots__ = ("_connection", "_message", "_payload", "written")

    def __init__(self) -> None:
        self.written = False
        self._connection: Connection | None = None
        self._message: RawResponseMessage | None = None
        self._payload: aiohttp.StreamReader | None = None

    def begin(self, connection: Connection, message: RawResponseMessage, payload: aiohttp.StreamReader) -> None:
        """The answer has begun."""
        self._connection, self._message, self._payload = connection, message, payload

    @property
    def connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    @property
    def message(self) -> RawResponseMessage:
        assert self._message is not None
        return self._message

    @property
    def payload(self) -> aiohttp.StreamReader:
        assert self._payload is not None
        return self._payload

    def retry_after(self) -> float | None:
        value = self.message.headers.get("Retry-After")
        return None if value is None else retry_after(value, self.message.headers.get("Date"))


class HttpTransport(Transport):
    """Carries requests to one API server with one identity, on one event loop: the one that first uses it.

    Requests share up to 128 connections; each stream has one of its own, from another pool, so that neither can keep
    the other waiting. Raises ConfigurationError where ``config`` cannot be used at all; credentials are first asked
    for by the first request.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._base = URL(config.server)
        self._sessions = Sessions(config)
        self._metrics = RequestMetrics(self._base.authority.rpartition("@")[2])
        self._requests: aiohttp.TCPConnector | None = None
        self._streams: aiohttp.TCPConnector | None = None
        self._open: set[Connection] = set()
        self._closed = False
        self._warned: set[str] = set()

    def clone(self) -> HttpTransport:
        """A transport to the same server with connections of its own, for another event loop or another purpose.

        Credentials are shared: a plugin runs once for both.
        """
        return HttpTransport(self._config)

    async def request(self, request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        exchange, body, code = _Exchange(), b"", "<error>"
        deadline = asyncio.timeout(request.timeout)
        try:
            async with deadline:
                await self._send(exchange, request, stream=False)
                body = await self._read(exchange, request)
            code = exchange.message.code
            return self._response(exchange, body)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise self._failed(request, error, sent=exchange.written) from error
        finally:
            seconds = time.perf_counter() - started
            self._metrics.observe(request.method, code, seconds, len(request.body or b""), len(body))

    def _response(self, exchange: _Exchange, body: bytes) -> HttpResponse:
        message = exchange.message
        if "Warning" in message.headers:
            self._warn(message.headers.getall("Warning"))
        return HttpResponse(message.code, body, exchange.retry_after() if message.code >= 400 else None)

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        exchange = _Exchange()
        try:
            await self._send(exchange, request, stream=True)
        except ConnectionFailed:
            self._metrics.count(request.method, "<error>")
            raise
        self._metrics.count(request.method, exchange.message.code)
        try:
            if exchange.message.code >= 300:
                body = await self._read(exchange, request)
                raise error_from_body(exchange.message.code, body, exchange.retry_after())
            yield self._lines(exchange.payload, request)
        finally:
            self._open.discard(exchange.connection)
            # Closes it, unless the answer was read to its end.
            exchange.connection.release()

    async def _lines(self, content: aiohttp.StreamReader, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        try:
            async for line in lines(content):
                yield line
        except _FAILURES as error:
            raise self._failed(request, error) from error

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    def abort(self) -> None:
        """Ends all connections at once, in the middle of what they do: for a leader whose lease has ended.

        Requests and streams that run raise ConnectionFailed, and so do those that come later. Must be called on the
        transport's event loop; ``close`` still has to be called.
        """
        self._closed = True
        for connection in tuple(self._open):
            if (transport := connection.transport) is not None:
                transport.abort()

    async def close(self) -> None:
        self.abort()
        for pool in (self._requests, self._streams):
            if pool is not None:
                await pool.close(abort_ssl=True)

    async def _send(self, exchange: _Exchange, request: HttpRequest, *, stream: bool) -> None:
        """Sends ``request``; once more where the server answers 401 and there is another identity by now."""
        session = await self._sessions.current()
        await self._try(exchange, session, request, stream)
        if exchange.message.code == 401:
            try:
                renewed = await self._sessions.renew(session)
            except BaseException:
                self._drop(exchange.connection)
                raise
            if renewed is not None:
                self._drop(exchange.connection)
                await self._try(exchange, renewed, request, stream)

    async def _try(self, exchange: _Exchange, session: Session, request: HttpRequest, stream: bool) -> None:
        # A kept connection may end while we write on it. Reading twice does no harm; whether to write twice is for
        # the layer above to say.
        again = request.method == "GET"
        while True:
            connection = await self._connect(session, request, stream)
            if not self._write(connection, session, request, stream):
                self._drop(connection)
                continue
            exchange.written = True
            try:
                exchange.begin(connection, *await _answer(connection))
                return
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                self._drop(connection)
                if not again or self._closed:
                    raise self._failed(request, error) from error
                again = False
            except _FAILURES as error:
                self._drop(connection)
                raise self._failed(request, error) from error
            except BaseException:
                self._drop(connection)
                raise

    def _write(self, connection: Connection, session: Session, request: HttpRequest, stream: bool) -> bool:
        """Puts ``request`` on the wire; False when the connection has ended before a byte was written."""
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or transport.is_closing():
            return False
        try:
            message = session.message(request)
            protocol.set_response_params(
                read_until_eof=True, read_timeout=request.timeout if stream else None, read_bufsize=_READ_BUFFER
            )
            # Between its word and our first byte nothing may come that takes time.
            if request.guard is not None:
                request.guard()
        except BaseException:
            self._open.discard(connection)
            connection.release()
            raise
        transport.write(message)
        protocol.start_timeout()
        return True

    async def _connect(self, session: Session, request: HttpRequest, stream: bool) -> Connection:
        if self._closed:
            raise ConnectionFailed(f"{self._place(request)}: the transport is closed", sent=False)
        try:
            # A stream has no time limit of its own to end this.
            patience = asyncio.timeout(_CONNECT_TIMEOUT) if stream else nullcontext()
            async with patience:
                connection = await self._pool(stream).connect(session.route, [], _NO_CEILING)
        except _FAILURES as error:
            if isinstance(error, aiohttp.ClientSSLError):
                # The authority may have been replaced, in a file that is not due yet.
                self._sessions.doubt(session)
            raise self._failed(request, error, sent=False) from error
        self._open.add(connection)
        if self._closed:
            self._drop(connection)
            raise ConnectionFailed(f"{self._place(request)}: the transport is closed", sent=False)
        return connection

    def _pool(self, stream: bool) -> aiohttp.TCPConnector:
        # Made here, since connectors belong to the event loop that runs.
        if stream:
            if self._streams is None:
                self._streams = _connector(limit=0)
            return self._streams
        if self._requests is None:
            self._requests = _connector(limit=_MOST_CONNECTIONS)
        return self._requests

    async def _read(self, exchange: _Exchange, request: HttpRequest) -> bytes:
        connection = exchange.connection
        try:
            body = await exchange.payload.read()
        except _FAILURES as error:
            self._drop(connection)
            raise self._failed(request, error) from error
        except BaseException:
            self._drop(connection)
            raise
        transport = connection.transport
        if transport is not None and transport.get_write_buffer_size():
            # Answered before it had read all: the rest of the body would be taken for the next request.
            self._drop(connection)
        else:
            self._open.discard(connection)
            connection.release()
        return body

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()

    def _warn(self, warnings: list[str]) -> None:
        """The API server's warnings, such as of deprecated versions; each is logged once, as client-go does."""
        for warning in warnings:
            text = warning.partition('"')[2].rpartition('"')[0] or warning
            if text not in self._warned and len(self._warned) < 1000:
                self._warned.add(text)
                log.warning("the API server warns", warning=text)

    def _place(self, request: HttpRequest) -> str:
        return f"{request.method} {self._base.origin()}{request.path}"

    def _failed(self, request: HttpRequest, error: Exception, *, sent: bool = True) -> ConnectionFailed:
        return ConnectionFailed(f"{self._place(request)}: {_reason(error)}", sent=sent)


def _reason(error: Exception) -> str:
    """What went wrong, in words for people: aiohttp's own show objects of the ssl module."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        told = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
        return f"certificate verify failed: {told} (see certificate-authority and tls-server-name)"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        told = os.strerror(number) if number and number > 0 else str(error.os_error)
        proxy = "the proxy " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
        return f"cannot connect to {proxy}{error.host}:{error.port}: {told}"
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)


def _connector(limit: int) -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=limit, keepalive_timeout=_KEEP_ALIVE, socket_factory=watchful_socket)


async def _answer(connection: Connection) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
    protocol = connection.protocol
    while protocol is not None:
        message, payload = await protocol.read()
        # 1xx are announcements of the answer; 101 would be one, but nobody asked for it.
        if not 100 <= message.code < 200 or message.code == 101:
            return message, payload
    raise aiohttp.ServerDisconnectedError


def error_from_body(code: int, body: bytes, retry_after: float | None) -> ApiError:
    """The exception for a failed answer. Proxies answer without a Status: then the text is its message."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status()
    if not status.message and not status.reason:
        status = msgspec.structs.replace(status, message=body[:512].decode(errors="replace").strip())
    return error_from_status(msgspec.structs.replace(status, code=status.code or code), retry_after)


async def lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """The lines of ``content``, without their newlines; what follows the last newline, if anything, is one, too."""
    # Not StreamReader.readline: it fails on lines over its buffer's limit, and an object may have 1.5 MiB. Parts are
    # joined once their line is complete: joining at each part would copy a large object over and over.
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        if not rest:
            continue
        first = b"".join(parts)
        parts = [rest.pop()]
        yield first
        for line in rest:
            yield line
    if remainder := b"".join(parts):
        yield remainder


def retry_after(value: str, date: str | None = None) -> float | None:
    """The seconds that a ``Retry-After`` header asks for; None when it is malformed. Source: RFC 9110, 10.2.3.

    Args:
        value: seconds, or a date.
        date: the answer's ``Date``: the wait is counted from it, since clocks differ.
    """
    if value.isdecimal():
        return float(value) if value.isascii() else None
    # Not above: dates are rare, and the package for e-mail is large.
    from email.utils import parsedate_to_datetime

    try:
        until = parsedate_to_datetime(value).timestamp()
        now = parsedate_to_datetime(date).timestamp() if date else time.time()
    except ValueError:
        return None
    return max(0.0, until - now)
