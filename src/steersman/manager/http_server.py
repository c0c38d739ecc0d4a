"""A server for probes and metrics: GET and HEAD over HTTP/1.1, and nothing else.

A web framework would be a quarter of an idle operator's memory, for three paths. Source: RFC 9112.
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

# Prometheus scrapes every minute at most and keeps its connection.
_IDLE_SECONDS = 120.0
_ANSWER_SECONDS = 30.0
_LINGER_SECONDS = 2.0
_LONGEST_HEAD = 65_536
_MOST_CONNECTIONS = 256

log = get_logger("manager")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: the path without its query, and headers by their names in lower case."""

    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    body: str | bytes = ""
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Answer = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Listens at ``host`` (None: all addresses) and ``port`` (0: a free one), and has ``answer`` answer."""

    def __init__(self, host: str | None, port: int, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self._host, self._port = host, port
        self._answer = answer
        self._context = context
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port in use, once started."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listens. Raises ConfigurationError: the address is in use or not ours."""
        try:
            self._server = await asyncio.start_server(
                self._connected, self._host, self._port, ssl=self._context, limit=_LONGEST_HEAD
            )
        except OSError as error:
            raise ConfigurationError(f"cannot listen on port {self._port}: {error.strerror}") from error

    async def stop(self) -> None:
        """Stops listening, and closes every connection."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MOST_CONNECTIONS:
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
        try:
            method, request, keep = _parsed(head)
        except ValueError as error:
            await _write(writer, Response(f"{error}\n", 400), keep=False)
            return False
        if method not in ("GET", "HEAD"):
            refusal = Response("only GET and HEAD\n", 405, headers={"Allow": "GET, HEAD"})
            await _write(writer, refusal, keep=False)
            return False
        await _write(writer, await self._answered(request), keep=keep, head_only=method == "HEAD")
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
    """Method, request, and whether the connection stays open. Raises ValueError."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    try:
        method, target, version = first.split(" ")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    except ValueError:
        raise ValueError("not HTTP") from None
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise ValueError("not HTTP/1.1")
    # A body is not read, so nothing may follow it.
    bodiless = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    asked = headers.get("connection", "").lower()
    keep = bodiless and (asked == "keep-alive" if version == "HTTP/1.0" else asked != "close")
    path, _, query = target.partition("?")
    return method, Request(path, query, headers), keep


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
