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
_IDLE_SECONDS = 120.0
_BODY_SECONDS = 30.0
_HANDSHAKE_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LINGER_SECONDS = 2.0
_LONGEST_HEAD = 65_536

log = get_logger("manager")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: the path without its query, and headers by their names in lower case; of a POST, the body."""

    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    body: str | bytes = ""
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Answer = Callable[[Request], Awaitable[Response]]


class _Refused(Exception):
    """The request is answered by ``response``, and the connection ends: what follows in it was not read."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.body)
        self.response = response


class HttpServer:
    """Listens at ``host`` (None: all addresses) and ``port`` (0: a free one), and has ``answer`` answer.

    Args:
        context: for TLS. A certificate that is loaded into it later is shown to connections from then on.
        longest_body: bytes that a POST to a path may have, 0 for none; without it there is no POST.
        most_connections: at the same time; further ones are closed at once.
    """

    def __init__(
        self,
        host: str | None,
        port: int,
        answer: Answer,
        context: ssl.SSLContext | None = None,
        *,
        longest_body: Callable[[str], int] | None = None,
        most_connections: int = 256,
    ) -> None:
        self._host, self._port = host, port
        self._answer = answer
        self._context = context
        self._longest_body = longest_body
        self._most_connections = most_connections
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
                self._connected,
                self._host,
                self._port,
                ssl=self._context,
                ssl_handshake_timeout=None if self._context is None else _HANDSHAKE_SECONDS,
                limit=_LONGEST_HEAD,
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

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._most_connections:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
            await _linger(reader, writer)
        except (OSError, EOFError, TimeoutError):
            # The other side went away, or has nothing to say.
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether another may follow."""
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            await _write(writer, Response("the header is too long\n", 431), keep=False)
            return False
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            method, request, keep = _parsed(head)
            if method == "POST" and self._longest_body is not None:
                body = await _body(reader, request, self._longest_body(request.path))
                request = Request(request.path, request.query, request.headers, body)
            else:
                _check_method(method, posts=self._longest_body is not None)
                # A body is not read, so nothing may follow it.
                keep = keep and _is_bodiless(request)
            response = await self._answered(request)
            # Whoever asks again should ask somebody else.
            keep = keep and not self._draining
            await _write(writer, response, keep=keep, head_only=method == "HEAD")
        except _Refused as refused:
            await _write(writer, refused.response, keep=False)
            return False
        finally:
            self._busy.discard(task)
        return keep

    async def _answered(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._answer(request)
        except Exception as error:
            log.warning("a request could not be answered", path=request.path, exc_info=error)
            return Response("internal error\n", 500)


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads what the other side still sends: closing over unread bytes is a reset, which may cost it the answer."""
    if writer.can_write_eof():
        writer.write_eof()
    async with asyncio.timeout(_LINGER_SECONDS):
        while await reader.read(_LONGEST_HEAD):
            pass


def _parsed(head: bytes) -> tuple[str, Request, bool]:
    """Method, request, and whether the connection stays open. Raises _Refused."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    try:
        method, target, version = first.split(" ")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    except ValueError:
        raise _Refused(Response("not HTTP\n", 400)) from None
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise _Refused(Response("not HTTP/1.1\n", 400))
    asked = headers.get("connection", "").lower()
    keep = asked == "keep-alive" if version == "HTTP/1.0" else asked != "close"
    path, _, query = target.partition("?")
    return method, Request(path, query, headers), keep


def _check_method(method: str, *, posts: bool) -> None:
    """Raises _Refused."""
    if method not in ("GET", "HEAD"):
        allowed = "GET, HEAD, POST" if posts else "GET, HEAD"
        raise _Refused(Response(f"only {allowed.replace(', ', ' and ')}\n", 405, headers={"Allow": allowed}))


def _is_bodiless(request: Request) -> bool:
    return request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers


async def _body(reader: asyncio.StreamReader, request: Request, longest: int) -> bytes:
    """The body of a POST. Raises _Refused."""
    if longest == 0:
        raise _Refused(Response("not found\n", 404))
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in request.headers:
        raise _Refused(Response("say the length of the body\n", 411))
    if int(length) > longest:
        raise _Refused(Response(f"a body may have {longest} bytes\n", 413))
    async with asyncio.timeout(_BODY_SECONDS):
        return await reader.readexactly(int(length))


async def _write(writer: asyncio.StreamWriter, response: Response, *, keep: bool, head_only: bool = False) -> None:
    body = response.body.encode() if isinstance(response.body, str) else response.body
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(body)),
        "X-Content-Type-Options": "nosniff",
        "Connection": "keep-alive" if keep else "close",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head_only else body))
    async with asyncio.timeout(_ANSWER_SECONDS):
        await writer.drain()
