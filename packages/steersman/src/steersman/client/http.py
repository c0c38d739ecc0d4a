"""The transport over sockets: identities, time limits and metrics around ``http1``.

A request is one write, right after its guard, so that nothing comes between a last look at the clock and the first
byte.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec

from steersman.client.cluster import ClusterConfig
from steersman.client.http1 import Answer, Connection, ConnectionPool, Disconnected, reason_of
from steersman.client.session import Session, Sessions, server_address
from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.errors import ApiError, ConnectionFailed, Status, error_from_status
from steersman.observability.logging import get_logger
from steersman.observability.requests import RequestMetrics

log = get_logger("client")

# Enough for any number of workers; more would be a burst of handshakes rather than of requests.
_MOST_CONNECTIONS = 128
_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')


class _Progress:
    """How far a request has come: whether a byte of it was written."""

    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written = False


class HttpTransport(Transport):
    """Carries requests to one API server with one identity, on one event loop: the one that first uses it.

    Requests share up to 128 connections; each stream has one of its own, from another pool, so that neither can keep
    the other waiting. Raises ConfigurationError where ``config`` cannot be used at all; credentials are first asked
    for by the first request.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        address = server_address(config)
        self._origin = address.origin
        self._sessions = Sessions(config)
        self._metrics = RequestMetrics(address.authority)
        self._requests: ConnectionPool | None = None
        self._streams: ConnectionPool | None = None
        self._closed = False
        self._warned: set[str] = set()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._config.server

    def clone(self) -> HttpTransport:
        """A transport to the same server with connections of its own, for another event loop or another purpose.

        Credentials are shared: a plugin runs once for both.
        """
        return HttpTransport(self._config)

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Sends ``request`` once: see ``Transport.request``."""
        started = time.perf_counter()
        code, received = "<error>", 0
        try:
            connection, answer = await self._in_time(request, stream=False)
            self._pool(stream=False).release(connection)
            code, received = answer.code, len(answer.body)
            return self._response(answer)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.observe(request.method, code, seconds, len(request.body or b""), received)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Sends a watch on a connection of its own: see ``Transport.stream``."""
        return self._stream(request)

    def abort(self) -> None:
        """Ends all connections at once, in the middle of what they do: for a leader whose lease has ended.

        Requests and streams that run raise ConnectionFailed, and so do those that come later. Must be called on the
        transport's event loop; ``close`` still has to be called.
        """
        self._closed = True
        for pool in (self._requests, self._streams):
            if pool is not None:
                pool.abort()

    async def close(self) -> None:
        """Ends all connections."""
        self.abort()
        # The loop closes sockets in its next round.
        await asyncio.sleep(0)

    def _response(self, answer: Answer) -> HttpResponse:
        warnings = tuple(t for header in answer.headers(b"warning") for t in _warning_texts(header))
        if answer.code < 400:
            self._warn(warnings)
            return HttpResponse(answer.code, answer.body, warnings=warnings)
        return HttpResponse(answer.code, answer.body, _wait(answer), warnings=warnings)

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        try:
            connection, answer = await self._in_time(request, stream=True)
        except ConnectionFailed:
            self._metrics.count(request.method, "<error>")
            raise
        self._metrics.count(request.method, answer.code)
        try:
            if answer.code >= 300:
                raise error_from_body(answer.code, answer.body, _wait(answer))
            yield self._lines(connection, request)
        finally:
            # Ends it, unless the answer was read to its end.
            self._pool(stream=True).release(connection)

    async def _lines(self, connection: Connection, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        try:
            async for line in connection.lines(request.timeout):
                yield line
        except OSError as error:
            raise self._failed(request, error) from error

    async def _in_time(self, request: HttpRequest, *, stream: bool) -> tuple[Connection, Answer]:
        progress, deadline = _Progress(), asyncio.timeout(request.timeout)
        try:
            async with deadline:
                return await self._send(request, progress, stream)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise self._failed(request, error, sent=progress.written) from error

    async def _send(self, request: HttpRequest, progress: _Progress, stream: bool) -> tuple[Connection, Answer]:
        """Sends ``request``; once more where the server answers 401 and there is another identity by now."""
        session = await self._sessions.current()
        connection, answer = await self._try(session, request, progress, stream)
        if answer.code != 401:
            return connection, answer
        try:
            renewed = await self._sessions.renew(session)
        except BaseException:
            self._pool(stream).release(connection)
            raise
        if renewed is None:
            return connection, answer
        self._pool(stream).release(connection)
        return await self._try(renewed, request, progress, stream)

    async def _try(
        self, session: Session, request: HttpRequest, progress: _Progress, stream: bool
    ) -> tuple[Connection, Answer]:
        # A kept connection may end while we write on it. Reading twice does no harm; whether to write twice is for
        # the layer above to say.
        again = request.method == "GET"
        message = session.message(request)
        while True:
            connection = await self._connect(session, request, stream)
            try:
                if not connection.is_usable:
                    # It ended while this task waited for its turn.
                    raise Disconnected("the server closed the connection")
                # Between its word and our first byte nothing may come that takes time.
                if request.guard is not None:
                    request.guard()
                answer = connection.send(message, stream=stream)
                progress.written = True
                return connection, await answer
            except Disconnected as error:
                self._pool(stream).release(connection)
                if not again or self._closed:
                    raise self._failed(request, error, sent=progress.written) from error
                again = False
            except BaseException:
                self._pool(stream).release(connection)
                raise

    async def _connect(self, session: Session, request: HttpRequest, stream: bool) -> Connection:
        try:
            if self._closed:
                raise Disconnected("the transport is closed")
            return await self._pool(stream).acquire(session.route)
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                # The authority may have been replaced, in a file that is not due yet.
                self._sessions.doubt(session)
            raise self._failed(request, error, sent=False) from error

    def _pool(self, stream: bool) -> ConnectionPool:
        # Made here, since connections belong to the event loop that runs.
        if stream:
            if self._streams is None:
                self._streams = ConnectionPool()
            return self._streams
        if self._requests is None:
            self._requests = ConnectionPool(_MOST_CONNECTIONS)
        return self._requests

    def _warn(self, warnings: Sequence[str]) -> None:
        """The API server's warnings, such as of deprecated versions; each is logged once, as client-go does."""
        for text in warnings:
            if text not in self._warned and len(self._warned) < 1000:
                self._warned.add(text)
                log.warning("the API server warns", warning=text)

    def _failed(self, request: HttpRequest, error: Exception, *, sent: bool = True) -> ConnectionFailed:
        return ConnectionFailed(f"{request.method} {self._origin}{request.path}: {reason_of(error)}", sent=sent)


def _warning_texts(header: str) -> list[str]:
    """The texts of a ``Warning`` header, such as ``299 - "text"``, in UTF-8. Source: RFC 7234, section 5.5."""
    header = header.encode("latin-1").decode(errors="replace")
    found = _WARNING.findall(header)
    return [re.sub(r"\\(.)", r"\1", text) for text in found] or [header]


def _wait(answer: Answer) -> float | None:
    value = answer.header(b"retry-after")
    return None if value is None else retry_after(value, answer.header(b"date"))


def error_from_body(code: int, body: bytes, retry_after: float | None) -> ApiError:
    """The exception for a failed answer. Proxies answer without a Status: then the text is its message."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status()
    if not status.message and not status.reason:
        status = msgspec.structs.replace(status, message=body[:512].decode(errors="replace").strip())
    return error_from_status(msgspec.structs.replace(status, code=status.code or code), retry_after)


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
