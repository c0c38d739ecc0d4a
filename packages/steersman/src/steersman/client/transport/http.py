"""Transport over sockets: credentials, timeouts and metrics on top of HTTP/1.1 connections.

Each request is a single write right after its ``before_send``, so no code runs between the check of a lease and the
first byte.
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

# This suffices for any number of workers. More would cause a burst of handshakes.
_MAX_CONNECTIONS = 128
_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')


class HttpTransport(Transport):
    """Sends requests to one API server with the credentials of one ClusterConfig.

    A transport belongs to the event loop that first uses it. Requests share up to 128 connections. Each stream has a
    connection of its own from a second pool, so requests and streams never wait for each other. The first request
    loads the credentials.

    Raises:
        ConfigurationError: ``config`` is invalid.
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
        """Return a transport to the same server with separate connections.

        Use it on another event loop. Both share the credentials, so an exec plugin runs once.
        """
        return HttpTransport(self._config)

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Send ``request`` once. See ``Transport.request``."""
        started = time.perf_counter()
        code, received = "<error>", 0
        try:
            pool = self._request_pool or self._pool(stream=False)
            connection, response = await self._send(request, pool, stream=False)
            pool.release(connection)
            code, received = response.code, len(response.body)
            return self._build_response(response)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.observe(request.method, code, seconds, len(request.body or b""), received)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a watch on a connection of its own. See ``Transport.stream``."""
        return self._stream(request)

    def abort(self) -> None:
        """Close all connections at once.

        Use it when a leader loses its lease. Running and later requests and streams raise ConnectionFailed. Call it
        on the event loop of the transport, and call ``close`` afterwards.
        """
        self._closed = True
        for pool in (self._request_pool, self._stream_pool):
            if pool is not None:
                pool.abort()

    async def close(self) -> None:
        """Close all connections."""
        self.abort()
        # The event loop closes sockets in its next iteration.
        await asyncio.sleep(0)

    def _build_response(self, response: RawResponse) -> HttpResponse:
        warnings: tuple[str, ...] = ()
        if headers := response.headers(b"warning"):
            warnings = tuple(text for header in headers for text in _warning_texts(header))
        if response.code >= 400:
            return HttpResponse(response.code, response.body, _retry_after(response), warnings=warnings)
        if warnings:
            self._log_warnings(warnings)
        return HttpResponse(response.code, response.body, warnings=warnings)

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        pool = self._pool(stream=True)
        try:
            connection, response = await self._send(request, pool, stream=True)
        except ConnectionFailed:
            self._metrics.count(request.method, "<error>")
            raise
        self._metrics.count(request.method, response.code)
        try:
            if response.code >= 300:
                raise error_from_body(response.code, response.body, _retry_after(response))
            yield self._lines(connection, request)
        finally:
            # This closes the connection, unless the response was read completely.
            pool.release(connection)

    async def _lines(self, connection: Connection, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        try:
            async for line in connection.lines(request.timeout):
                yield line
        except OSError as error:
            raise self._connection_error(request, error) from error

    async def _send(
        self, request: HttpRequest, pool: ConnectionPool, *, stream: bool
    ) -> tuple[Connection, RawResponse]:
        """Send ``request`` and wait for its response.

        A GET whose connection ends is sent again once. Any request is sent again once after 401 if new credentials
        are available. ``request.timeout`` limits all attempts together. After an error, the connection is released.
        """
        deadline = asyncio.get_running_loop().time() + request.timeout
        endpoint = self._authenticator.cached() or await self._authenticate(request, deadline)
        may_reconnect, may_refresh, sent = request.method == "GET", True, False
        while True:
            waiter: asyncio.Future[RawResponse] | None = None
            message = endpoint.encode_request(request)
            connection = pool.acquire_idle(endpoint.origin) or await self._acquire(pool, endpoint, request, deadline)
            try:
                if not connection.is_usable:
                    raise Disconnected("the server closed the connection")
                # No code that takes time may run between this check and the first byte.
                if request.before_send is not None:
                    request.before_send()
                waiter = connection.send(message, stream=stream, deadline=deadline)
                sent = True
                response = await waiter
            except (Disconnected, TimeoutError) as error:
                pool.release(connection)
                if isinstance(error, TimeoutError) and waiter is None:
                    raise
                if isinstance(error, TimeoutError) or not may_reconnect or self._closed:
                    raise self._connection_error(request, error, sent=sent) from error
                may_reconnect = False
                continue
            except BaseException:
                pool.release(connection)
                raise
            if response.code != 401 or not may_refresh:
                return connection, response
            may_refresh = False
            refreshed = await self._refresh(pool, connection, endpoint, request, deadline)
            if refreshed is None:
                return connection, response
            pool.release(connection)
            endpoint, may_reconnect = refreshed, request.method == "GET"

    async def _authenticate(self, request: HttpRequest, deadline: float) -> AuthenticatedEndpoint:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._authenticator.current()
        except TimeoutError as error:
            raise self._connection_error(request, error, sent=False) from error

    async def _refresh(
        self,
        pool: ConnectionPool,
        connection: Connection,
        rejected: AuthenticatedEndpoint,
        request: HttpRequest,
        deadline: float,
    ) -> AuthenticatedEndpoint | None:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._authenticator.refresh(rejected)
        except TimeoutError as error:
            pool.release(connection)
            raise self._connection_error(request, error) from error
        except BaseException:
            pool.release(connection)
            raise

    async def _acquire(
        self, pool: ConnectionPool, endpoint: AuthenticatedEndpoint, request: HttpRequest, deadline: float
    ) -> Connection:
        try:
            if self._closed:
                raise Disconnected("the transport is closed")
            async with asyncio.timeout_at(deadline):
                return await pool.acquire(endpoint.origin)
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                # The certificate authority may have been replaced in a file whose reload is not due yet.
                self._authenticator.invalidate(endpoint)
            raise self._connection_error(request, error, sent=False) from error

    def _pool(self, stream: bool) -> ConnectionPool:
        # Created at the first use, since connections belong to the running event loop.
        if stream:
            if self._stream_pool is None:
                self._stream_pool = ConnectionPool()
            return self._stream_pool
        if self._request_pool is None:
            self._request_pool = ConnectionPool(_MAX_CONNECTIONS)
        return self._request_pool

    def _log_warnings(self, warnings: Sequence[str]) -> None:
        """Log each warning of the API server once, as client-go does."""
        for text in warnings:
            if text not in self._logged_warnings and len(self._logged_warnings) < 1000:
                self._logged_warnings.add(text)
                log.warning("API server warning", warning=text)

    def _connection_error(self, request: HttpRequest, error: Exception, *, sent: bool = True) -> ConnectionFailed:
        return ConnectionFailed(f"{request.method} {self._origin}{request.path}: {describe_error(error)}", sent=sent)


def _warning_texts(header: str) -> list[str]:
    """Return the texts of a ``Warning`` header such as ``299 - "text"``. Source: RFC 7234, section 5.5."""
    header = header.encode("latin-1").decode(errors="replace")
    found = _WARNING.findall(header)
    return [re.sub(r"\\(.)", r"\1", text) for text in found] or [header]


def _retry_after(response: RawResponse) -> float | None:
    value = response.header(b"retry-after")
    return None if value is None else parse_retry_after(value, response.header(b"date"))


def error_from_body(code: int, body: bytes, retry_after: float | None) -> ApiError:
    """Return the exception for an error response.

    If the body is not a Status, as from proxies, the body becomes the message.
    """
    try:
        status = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = ApiStatus()
    if not status.message and not status.reason:
        status = msgspec.structs.replace(status, message=body[:512].decode(errors="replace").strip())
    return error_from_status(msgspec.structs.replace(status, code=status.code or code), retry_after)


def parse_retry_after(value: str, date: str | None = None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, or None if malformed.

    Args:
        value: seconds, or a date.
        date: ``Date`` header of the response. The delay starts there, since the clocks of client and server differ.

    Source: RFC 9110, section 10.2.3.
    """
    if value.isdecimal():
        return float(value) if value.isascii() else None
    # Dates are rare, and the email package takes long to import.
    from email.utils import parsedate_to_datetime

    try:
        until = parsedate_to_datetime(value).timestamp()
        now = parsedate_to_datetime(date).timestamp() if date else time.time()
    except ValueError:
        return None
    return max(0.0, until - now)
