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

from steersman.client.config import ClusterConfig
from steersman.client.transport.auth import AuthenticatedEndpoint, Authenticator, server_address
from steersman.client.transport.http1 import Connection, Disconnected, RawResponse, describe_error
from steersman.client.transport.interface import HttpRequest, HttpResponse, Transport
from steersman.client.transport.pool import ConnectionPool
from steersman.errors import ApiError, ApiStatus, ConnectionFailed, error_from_status
from steersman.observability.logging import get_logger
from steersman.observability.request_metrics import RequestMetrics

log = get_logger("client")

# Enough for any number of workers; more would be a burst of handshakes rather than of requests.
_MAX_CONNECTIONS = 128
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
        self._authenticator = Authenticator(config)
        self._metrics = RequestMetrics(address.authority)
        self._request_pool: ConnectionPool | None = None
        self._stream_pool: ConnectionPool | None = None
        self._closed = False
        self._logged_warnings: set[str] = set()

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
            connection, response = await self._send_with_timeout(request, stream=False)
            self._pool(stream=False).release(connection)
            code, received = response.code, len(response.body)
            return self._build_response(response)
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
        for pool in (self._request_pool, self._stream_pool):
            if pool is not None:
                pool.abort()

    async def close(self) -> None:
        """Ends all connections."""
        self.abort()
        # The loop closes sockets in its next round.
        await asyncio.sleep(0)

    def _build_response(self, response: RawResponse) -> HttpResponse:
        warnings = tuple(t for header in response.headers(b"warning") for t in _warning_texts(header))
        if response.code < 400:
            self._log_warnings(warnings)
            return HttpResponse(response.code, response.body, warnings=warnings)
        return HttpResponse(response.code, response.body, _retry_after(response), warnings=warnings)

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        try:
            connection, response = await self._send_with_timeout(request, stream=True)
        except ConnectionFailed:
            self._metrics.count(request.method, "<error>")
            raise
        self._metrics.count(request.method, response.code)
        try:
            if response.code >= 300:
                raise error_from_body(response.code, response.body, _retry_after(response))
            yield self._lines(connection, request)
        finally:
            # Ends it, unless the answer was read to its end.
            self._pool(stream=True).release(connection)

    async def _lines(self, connection: Connection, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        try:
            async for line in connection.lines(request.timeout):
                yield line
        except OSError as error:
            raise self._connection_error(request, error) from error

    async def _send_with_timeout(self, request: HttpRequest, *, stream: bool) -> tuple[Connection, RawResponse]:
        progress, timeout_scope = _Progress(), asyncio.timeout(request.timeout)
        try:
            async with timeout_scope:
                return await self._send_authenticated(request, progress, stream)
        except TimeoutError as error:
            if not timeout_scope.expired():
                raise
            raise self._connection_error(request, error, sent=progress.written) from error

    async def _send_authenticated(
        self, request: HttpRequest, progress: _Progress, stream: bool
    ) -> tuple[Connection, RawResponse]:
        """Sends ``request``; once more where the server answers 401 and there is another identity by now."""
        endpoint = await self._authenticator.current()
        connection, response = await self._send_once(endpoint, request, progress, stream)
        if response.code != 401:
            return connection, response
        try:
            refreshed = await self._authenticator.refresh(endpoint)
        except BaseException:
            self._pool(stream).release(connection)
            raise
        if refreshed is None:
            return connection, response
        self._pool(stream).release(connection)
        return await self._send_once(refreshed, request, progress, stream)

    async def _send_once(
        self, endpoint: AuthenticatedEndpoint, request: HttpRequest, progress: _Progress, stream: bool
    ) -> tuple[Connection, RawResponse]:
        # A kept connection may end while we write on it. Reading twice does no harm; whether to write twice is for
        # the layer above to say.
        may_retry = request.method == "GET"
        message = endpoint.encode_request(request)
        while True:
            connection = await self._connect(endpoint, request, stream)
            try:
                if not connection.is_usable:
                    # It ended while this task waited for its turn.
                    raise Disconnected("the server closed the connection")
                # Between its word and our first byte nothing may come that takes time.
                if request.before_send is not None:
                    request.before_send()
                response = connection.send(message, stream=stream)
                progress.written = True
                return connection, await response
            except Disconnected as error:
                self._pool(stream).release(connection)
                if not may_retry or self._closed:
                    raise self._connection_error(request, error, sent=progress.written) from error
                may_retry = False
            except BaseException:
                self._pool(stream).release(connection)
                raise

    async def _connect(self, endpoint: AuthenticatedEndpoint, request: HttpRequest, stream: bool) -> Connection:
        try:
            if self._closed:
                raise Disconnected("the transport is closed")
            return await self._pool(stream).acquire(endpoint.origin)
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                # The authority may have been replaced, in a file that is not due yet.
                self._authenticator.invalidate(endpoint)
            raise self._connection_error(request, error, sent=False) from error

    def _pool(self, stream: bool) -> ConnectionPool:
        # Made here, since connections belong to the event loop that runs.
        if stream:
            if self._stream_pool is None:
                self._stream_pool = ConnectionPool()
            return self._stream_pool
        if self._request_pool is None:
            self._request_pool = ConnectionPool(_MAX_CONNECTIONS)
        return self._request_pool

    def _log_warnings(self, warnings: Sequence[str]) -> None:
        """The API server's warnings, such as of deprecated versions; each is logged once, as client-go does."""
        for text in warnings:
            if text not in self._logged_warnings and len(self._logged_warnings) < 1000:
                self._logged_warnings.add(text)
                log.warning("the API server warns", warning=text)

    def _connection_error(self, request: HttpRequest, error: Exception, *, sent: bool = True) -> ConnectionFailed:
        return ConnectionFailed(f"{request.method} {self._origin}{request.path}: {describe_error(error)}", sent=sent)


def _warning_texts(header: str) -> list[str]:
    """The texts of a ``Warning`` header, such as ``299 - "text"``, in UTF-8. Source: RFC 7234, section 5.5."""
    header = header.encode("latin-1").decode(errors="replace")
    found = _WARNING.findall(header)
    return [re.sub(r"\\(.)", r"\1", text) for text in found] or [header]


def _retry_after(response: RawResponse) -> float | None:
    value = response.header(b"retry-after")
    return None if value is None else parse_retry_after(value, response.header(b"date"))


def error_from_body(code: int, body: bytes, retry_after: float | None) -> ApiError:
    """The exception for a failed answer. Proxies answer without a Status: then the text is its message."""
    try:
        status = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = ApiStatus()
    if not status.message and not status.reason:
        status = msgspec.structs.replace(status, message=body[:512].decode(errors="replace").strip())
    return error_from_status(msgspec.structs.replace(status, code=status.code or code), retry_after)


def parse_retry_after(value: str, date: str | None = None) -> float | None:
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
