"""HTTP/1.1 as a server of watches needs it: connections that are kept, streams that wait for their reader and end
with it. The parser is llhttp, in httptools. Source: RFC 9112."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, cast

import httptools

from steersman.observability.logging import get_logger

# As the real server has it: MaxRequestBodyBytes of k8s.io/apiserver, and net/http's DefaultMaxHeaderBytes.
LONGEST_BODY = 3 * 2**20
_LONGEST_HEAD = 2**20
_MOST_WAITING = 16
# Stands between the values of a header that comes several times; a comma may be part of one.
BETWEEN = "\n"

Fault = Literal["", "malformed", "too large"]
Fields = Sequence[tuple[str, str]]
"""A header: names and values, which must not have control characters."""

log = get_logger("testing")


@dataclass(frozen=True, slots=True)
class Message:
    """A request as it came.

    Attributes:
        target: path and query, percent-encoded.
        headers: by their names in lower case; ``BETWEEN`` stands between several values of one.
        keep: whether the client wants the connection kept.
        chunked: whether the client understands an answer in chunks.
        fault: why it could not be read; empty where it is sound.
    """

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes = b""
    keep: bool = True
    chunked: bool = True
    fault: Fault = ""


class Reply:
    """The answer to one message: ``send`` it whole, or ``begin`` it, add ``part`` after ``part``, and ``end`` it."""

    def __init__(
        self,
        transport: asyncio.Transport,
        writable: asyncio.Event,
        message: Message,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._is_stopping = is_stopping
        self._writable = writable
        self._message = message
        self.is_stream = False
        self.has_begun = False

    def send(self, status: int, fields: Fields, body: bytes) -> None:
        """Sends everything at once."""
        head = self._head(status, (*fields, ("Content-Length", str(len(body)))))
        self._transport.write(head if self._message.method == "HEAD" else head + body)

    def begin(self, status: int, fields: Fields) -> None:
        """Sends the head of a stream."""
        self.is_stream = True
        framing = (("Transfer-Encoding", "chunked"),) if self._message.chunked else ()
        self._transport.write(self._head(status, (*fields, *framing)))
        if self._is_stopping():
            raise asyncio.CancelledError

    async def part(self, data: bytes) -> None:
        """Sends a part of a stream, and waits while its reader is behind."""
        if self._message.chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._transport.write(data)
        await self._writable.wait()

    def end(self) -> None:
        """Ends a stream as it should be; without it, the client is told that it broke."""
        if self._message.chunked:
            self._transport.write(b"0\r\n\r\n")
        self.is_stream = False

    def abort(self) -> None:
        """Breaks the connection, as a network does."""
        self._transport.abort()

    def _head(self, status: int, fields: Fields) -> bytes:
        self.has_begun = True
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in fields)]
        if not self._message.keep:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode()


Answer = Callable[[Message, Reply], Awaitable[None]]


class Connection(asyncio.Protocol):
    """A client's connection. Its requests are answered by ``answer``, one after another in their order.

    Args:
        answer: called with a message and the reply to it. It is cancelled when the client goes away.
        others: the open connections of the same server, which this one joins and leaves.
    """

    def __init__(self, answer: Answer, others: set[Connection]) -> None:
        self._answer = answer
        self._others = others
        self._parser = httptools.HttpRequestParser(self)
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reply: Reply | None = None
        self._stopping = False
        self.on_message_begin()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._others.add(self)
        self._task = asyncio.get_running_loop().create_task(self._converse())

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
        self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Its message is complete and is answered; nothing is read after it.
            self._transport.pause_reading()
        except httptools.HttpParserError:
            self._transport.pause_reading()
            self._deliver(Message("", b"", {}, keep=False, fault="malformed"))

    # What httptools calls

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._head_size = self._body_size = 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        field, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[field] = f"{self._headers[field]}{BETWEEN}{text}" if field in self._headers else text
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue" and self._is_idle:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size <= LONGEST_BODY:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        too_large = self._body_size > LONGEST_BODY
        message = Message(
            method=self._parser.get_method().decode("ascii"),
            target=self._target,
            headers=self._headers,
            body=b"" if too_large else b"".join(self._parts),
            keep=self._parser.should_keep_alive() and not self._parser.should_upgrade(),
            chunked=self._parser.get_http_version() == "1.1",
            fault="too large" if too_large else "",
        )
        self._deliver(message)

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _LONGEST_HEAD:
            raise ValueError("the head is too long")

    # The conversation

    def stop(self) -> None:
        """Ends the connection in order: what is being answered is finished, streams get their end."""
        self._stopping = True
        if self._is_idle or (self._reply is not None and self._reply.is_stream):
            self._task.cancel()

    async def wait_closed(self) -> None:
        """Returns once everything that was begun has ended."""
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _is_idle(self) -> bool:
        return self._reply is None and not self._messages

    def _deliver(self, message: Message) -> None:
        self._messages.append(message)
        self._arrived.set()
        if len(self._messages) == _MOST_WAITING:
            self._transport.pause_reading()

    async def _next(self) -> Message:
        while not self._messages:
            self._arrived.clear()
            await self._arrived.wait()
        if len(self._messages) == _MOST_WAITING:
            self._transport.resume_reading()
        return self._messages.popleft()

    async def _converse(self) -> None:
        keep = True
        try:
            while keep and not self._stopping:
                message = await self._next()
                self._reply = Reply(self._transport, self._writable, message, lambda: self._stopping)
                await self._respond(message, self._reply)
                keep, self._reply = message.keep, None
        except asyncio.CancelledError:
            if self._reply is not None and self._reply.is_stream:
                self._reply.end()
            raise
        finally:
            self._transport.close()

    async def _respond(self, message: Message, reply: Reply) -> None:
        try:
            await self._answer(message, reply)
        except Exception as error:
            log.error("a request could not be answered", target=message.target.decode("latin-1"), exc_info=error)
            if reply.has_begun:
                reply.abort()
            else:
                text = f"{type(error).__name__}: {error}\n"
                reply.send(500, [("Content-Type", "text/plain; charset=utf-8")], text.encode())
