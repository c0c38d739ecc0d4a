"""A server for probes, metrics and webhooks: GET, HEAD, and POST where there is one, over HTTP/1.1.

A web framework would be a quarter of an idle operator's memory, for a few paths. Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from steersman.errors import ConfigurationError
from steersman.observability.logging import get_logger

# Prometheus scrapes every minute at most and keeps its connection. The API server closes idle ones after 90 s, and
# must be the first to do so: otherwise a request may be on its way to a connection that ends.
_IDLE_TIMEOUT_SECONDS = 120.0
_BODY_TIMEOUT_SECONDS = 30.0
_HANDSHAKE_TIMEOUT_SECONDS = 10.0
_RESPONSE_TIMEOUT_SECONDS = 30.0
_LINGER_TIMEOUT_SECONDS = 2.0
_MAX_HEADER_BYTES = 65_536

log = get_logger("manager")


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """What is asked: the path without its query, and headers by their names in lower case; of a POST, the body."""

    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """What is answered."""

    body: str | bytes = ""
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


HttpHandler = Callable[[ServerRequest], Awaitable[ServerResponse]]


class _HttpError(Exception):
    """The request is answered by ``response``, and the connection ends: what follows in it was not read."""

    def __init__(self, response: ServerResponse) -> None:
        super().__init__(response.body)
        self.response = response


class HttpServer:
    """Listens at ``host`` (None: all addresses) and ``port`` (0: a free one), and has ``answer`` answer.

    Args:
        ssl_context: for TLS. A certificate that is loaded into it later is shown to connections from then on.
        max_body_size: bytes that a POST to a path may have, 0 for none; without it there is no POST.
        max_connections: at the same time; further ones are closed at once.
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
    ) -> None:
        self._host, self._port = host, port
        self._handler = handler
        self._ssl_context = ssl_context
        self._max_body_size = max_body_size
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()
        self._draining = False

    @property
    def port(self) -> int:
        """The port in use, once started."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listens. Raises ConfigurationError: the address is in use or not ours."""
        try:
            self._server = await asyncio.start_server(
                self._on_connection,
                self._host,
                self._port,
                ssl=self._ssl_context,
                ssl_handshake_timeout=None if self._ssl_context is None else _HANDSHAKE_TIMEOUT_SECONDS,
                limit=_MAX_HEADER_BYTES,
            )
        except OSError as error:
            raise ConfigurationError(f"cannot listen on port {self._port}: {error.strerror}") from error

    def drain(self) -> None:
        """From now on each connection ends with the next answer, so that none is left that somebody counts on."""
        self._draining = True

    async def stop(self, grace: float = 0.0) -> None:
        """Stops listening, and closes every connection; requests that are being answered get ``grace`` seconds."""
        if self._server is not None:
            self._server.close()
        self._draining = True
        if grace > 0 and self._busy:
            await asyncio.wait(self._busy, timeout=grace)
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve_connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_request(reader, writer):
                pass
            await _drain_input(reader, writer)
        except (OSError, EOFError, TimeoutError):
            # The other side went away, or has nothing to say.
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether another may follow."""
        try:
            async with asyncio.timeout(_IDLE_TIMEOUT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            await _write_response(writer, ServerResponse("the header is too long\n", 431), keep_alive=False)
            return False
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            method, request, keep_alive = _parse_head(head)
            if method == "POST" and self._max_body_size is not None:
                body = await _read_body(reader, request, self._max_body_size(request.path))
                request = ServerRequest(request.path, request.query, request.headers, body)
            else:
                _check_method(method, allows_post=self._max_body_size is not None)
                # A body is not read, so nothing may follow it.
                keep_alive = keep_alive and _has_no_body(request)
            response = await self._handle(request)
            # Whoever asks again should ask somebody else.
            keep_alive = keep_alive and not self._draining
            await _write_response(writer, response, keep_alive=keep_alive, head_only=method == "HEAD")
        except _HttpError as error:
            await _write_response(writer, error.response, keep_alive=False)
            return False
        finally:
            self._busy.discard(task)
        return keep_alive

    async def _handle(self, request: ServerRequest) -> ServerResponse:
        try:
            async with asyncio.timeout(_RESPONSE_TIMEOUT_SECONDS):
                return await self._handler(request)
        except Exception as error:
            log.warning("a request could not be answered", path=request.path, exc_info=error)
            return ServerResponse("internal error\n", 500)


async def _drain_input(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads what the other side still sends: closing over unread bytes is a reset, which may cost it the answer."""
    if writer.can_write_eof():
        writer.write_eof()
    async with asyncio.timeout(_LINGER_TIMEOUT_SECONDS):
        while await reader.read(_MAX_HEADER_BYTES):
            pass


def _parse_head(head: bytes) -> tuple[str, ServerRequest, bool]:
    """Method, request, and whether the connection stays open. Raises _Refused."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    try:
        method, target, version = first.split(" ")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    except ValueError:
        raise _HttpError(ServerResponse("not HTTP\n", 400)) from None
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise _HttpError(ServerResponse("not HTTP/1.1\n", 400))
    connection = headers.get("connection", "").lower()
    keep_alive = connection == "keep-alive" if version == "HTTP/1.0" else connection != "close"
    path, _, query = target.partition("?")
    return method, ServerRequest(path, query, headers), keep_alive


def _check_method(method: str, *, allows_post: bool) -> None:
    """Raises _Refused."""
    if method not in ("GET", "HEAD"):
        allowed = "GET, HEAD, POST" if allows_post else "GET, HEAD"
        raise _HttpError(ServerResponse(f"only {allowed.replace(', ', ' and ')}\n", 405, headers={"Allow": allowed}))


def _has_no_body(request: ServerRequest) -> bool:
    return request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers


async def _read_body(reader: asyncio.StreamReader, request: ServerRequest, max_size: int) -> bytes:
    """The body of a POST. Raises _Refused."""
    if max_size == 0:
        raise _HttpError(ServerResponse("not found\n", 404))
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in request.headers:
        raise _HttpError(ServerResponse("say the length of the body\n", 411))
    if int(length) > max_size:
        raise _HttpError(ServerResponse(f"a body may have {max_size} bytes\n", 413))
    async with asyncio.timeout(_BODY_TIMEOUT_SECONDS):
        return await reader.readexactly(int(length))


async def _write_response(
    writer: asyncio.StreamWriter, response: ServerResponse, *, keep_alive: bool, head_only: bool = False
) -> None:
    body = response.body.encode() if isinstance(response.body, str) else response.body
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(body)),
        "X-Content-Type-Options": "nosniff",
        "Connection": "keep-alive" if keep_alive else "close",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head_only else body))
    async with asyncio.timeout(_RESPONSE_TIMEOUT_SECONDS):
        await writer.drain()
