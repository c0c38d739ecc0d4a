"""HTTP server for probes, metrics and webhooks.

It supports GET, HEAD and, if enabled, POST. Decision 0012 has the reasons for not using a web framework.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from steersman.errors import ConfigurationError
from steersman.manager.serving.http_connection import (
    ConnectionOptions,
    ResponseWriter,
    ServerConnection,
    WireRequest,
)
from steersman.manager.serving.open_connections import OpenConnections
from steersman.observability.logging import get_logger

# Prometheus scrapes at least once a minute and keeps its connection. The API server closes idle connections after 90
# s and must be the first to do so: otherwise it may send a request to a connection that closes.
_IDLE_TIMEOUT_SECONDS = 120.0
_BODY_TIMEOUT_SECONDS = 30.0
_FIRST_REQUEST_TIMEOUT_SECONDS = 10.0
_RESPONSE_TIMEOUT_SECONDS = 30.0
_MAX_HEADER_BYTES = 65_536
# Admission reviews of a few of the largest objects.
_MAX_TOTAL_BODY_BYTES = 32 << 20

log = get_logger("manager")


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request.

    Attributes:
        path: path without the query.
        headers: values by lower-case name.
        body: body of a POST request.
    """

    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """A response."""

    body: str | bytes = ""
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


HttpHandler = Callable[[ServerRequest], Awaitable[ServerResponse]]


def parse_bind_address(address: str, *, subject: str, example: str) -> tuple[str | None, int]:
    """Host (None for all addresses) and port of ``host:port``.

    Raises:
        ConfigurationError: ``address`` has another form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"{subject} {address!r}: write host:port, such as {example}")
    return host.strip("[]") or None, int(port)


def is_loopback(host: str | None) -> bool:
    """Return True if ``host`` is ``localhost`` or a loopback address."""
    if not host or host == "localhost":
        return bool(host)
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class HttpServer:
    """Listens on an address and passes requests to a handler.

    Args:
        host: None for all addresses.
        port: 0 for a free port.
        ssl_context: serves HTTPS. A certificate loaded into it later is used for new connections.
        max_body_size: returns the maximum size in bytes of a POST body for a path; 0 means that the path does not
            exist. Without it, POST is not allowed.
        max_connections: above it the longest idle connection is closed. TLS handshakes count.
        max_total_body_size: bytes of all request bodies in memory. Above it the connection with the oldest incomplete
            body is closed. Defaults to 32 MiB.
        on_accept: called for each connection before TLS.
        option: command-line option that sets the address, for the error if the port is in use.
    """

    def __init__(
        self,
        host: str | None,
        port: int,
        handler: HttpHandler,
        ssl_context: ssl.SSLContext | None = None,
        *,
        max_body_size: Callable[[str], int] | None = None,
        max_connections: int = 256,
        max_total_body_size: int = _MAX_TOTAL_BODY_BYTES,
        on_accept: Callable[[], None] | None = None,
        option: str = "",
    ) -> None:
        self._host, self._port = host, port
        self._handler = handler
        self._max_body_size = max_body_size
        self._options = ConnectionOptions(
            max_header_bytes=_MAX_HEADER_BYTES,
            tls=ssl_context,
            first_request_timeout=_FIRST_REQUEST_TIMEOUT_SECONDS,
            idle_timeout=_IDLE_TIMEOUT_SECONDS,
            body_timeout=_BODY_TIMEOUT_SECONDS,
            write_timeout=_RESPONSE_TIMEOUT_SECONDS,
            reads_body=lambda request: request.method == "POST" and self._reject(request) is None,
        )
        self._server: asyncio.Server | None = None
        self._connections = OpenConnections[ServerConnection](max_connections, max_total_body_size)
        self._on_accept = on_accept
        self._advice = f". Stop the other process, or set {option}" if option else ""
        self._draining = False

    @property
    def port(self) -> int:
        """The port in use, after ``start``."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigurationError: the address is in use or does not belong to this host.
        """
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._new_connection, self._host, self._port
            )
        except OSError as error:
            advice = self._advice if error.errno == errno.EADDRINUSE else ""
            raise ConfigurationError(f"cannot listen on port {self._port}: {error.strerror}{advice}") from error

    def drain(self) -> None:
        """Close each connection after its next response.

        Clients then connect to another replica.
        """
        self._draining = True
        for connection in self._connections:
            connection.drain()

    async def stop(self, grace: float = 0.0) -> None:
        """Stop listening and close all connections. Running requests have ``grace`` seconds to complete."""
        self._draining = True
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        if grace > 0 and connections:
            for connection in connections:
                connection.stop()
            closing = [asyncio.ensure_future(connection.wait_closed()) for connection in connections]
            await asyncio.wait(closing, timeout=grace)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))

    def _new_connection(self) -> ServerConnection:
        if self._on_accept is not None:
            self._on_accept()
        connection = ServerConnection(self._respond, self._connections, self._options)
        if self._draining:
            connection.drain()
        return connection

    async def _respond(self, request: WireRequest, writer: ResponseWriter) -> None:
        response = self._reject(request)
        if response is not None:
            writer.keep_alive = False
        else:
            path, query = _split_target(request)
            response = await self._handle(ServerRequest(path, query, request.headers, request.body))
        body = response.body.encode() if isinstance(response.body, str) else response.body
        headers = {"Content-Type": response.content_type, "X-Content-Type-Options": "nosniff", **response.headers}
        writer.send(response.status, tuple(headers.items()), body)

    async def _handle(self, request: ServerRequest) -> ServerResponse:
        try:
            async with asyncio.timeout(_RESPONSE_TIMEOUT_SECONDS):
                return await self._handler(request)
        except Exception as error:
            log.warning("request handler failed", path=request.path, exc_info=error)
            return ServerResponse("internal error\n", 500)

    def _reject(self, request: WireRequest) -> ServerResponse | None:
        """The error response if the header is invalid, else None."""
        if request.error == "header too large":
            return ServerResponse("request header is too large\n", 431)
        if request.error or not request.target.startswith(b"/"):
            return ServerResponse("malformed HTTP request\n", 400)
        if request.method == "POST" and self._max_body_size is not None:
            return self._reject_body(request, self._max_body_size(_split_target(request)[0]))
        if request.method not in ("GET", "HEAD"):
            allowed = "GET, HEAD" if self._max_body_size is None else "GET, HEAD, POST"
            return ServerResponse(f"method not allowed; use {allowed}\n", 405, headers={"Allow": allowed})
        return None

    def _reject_body(self, request: WireRequest, max_size: int) -> ServerResponse | None:
        length = request.headers.get("content-length", "")
        if max_size == 0:
            return ServerResponse("not found\n", 404)
        if not length.isdecimal() or "transfer-encoding" in request.headers:
            return ServerResponse("Content-Length is required\n", 411)
        if int(length) > max_size:
            return ServerResponse(f"request body is too large; the limit is {max_size} bytes\n", 413)
        return None


def _split_target(request: WireRequest) -> tuple[str, str]:
    path, _, query = request.target.decode("latin-1").partition("?")
    return path, query
