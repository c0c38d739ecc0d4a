"""HTTP/1.1 connections to correct and faulty servers and proxies."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import gzip
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop

from steersman.client.transport.http1 import Connection, Disconnected, Origin
from steersman.client.transport.pool import ConnectionPool

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[Origin]:
    """Run a server that closes each connection after ``handler`` returns."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client closes connections with a reset.
        with suppress(ConnectionResetError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield Origin("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


def respond_with(*responses: bytes, then: Handler | None = None) -> Handler:
    """Return a handler that sends ``responses`` in order, and then calls ``then``."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
        if then is not None:
            await then(reader, writer)

    return handle


async def wait_until_closed(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def with_content_length(body: bytes, *, code: int = 200, fields: str = "") -> bytes:
    return f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n{fields}\r\n".encode() + body


def chunked(*parts: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts)


async def send_request(pool: ConnectionPool, origin: Origin) -> tuple[int, bytes]:
    connection = await pool.acquire(origin)
    try:
        response = await connection.send(REQUEST)
    finally:
        pool.release(connection)
    return response.code, response.body


async def read_stream(origin: Origin, idle_timeout: float = 10.0) -> list[bytes]:
    connection = await ConnectionPool().acquire(origin)
    assert (await connection.send(REQUEST, stream=True)).code == 200
    return [line async for line in connection.lines(idle_timeout)]


async def test_pool_reuses_connection() -> None:
    async with serving(
        respond_with(with_content_length(b"one"), with_content_length(b"two"), then=wait_until_closed)
    ) as origin:
        pool = ConnectionPool()
        assert [await send_request(pool, origin) for _ in range(2)] == [(200, b"one"), (200, b"two")]
        pool.abort()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (with_content_length(b"", code=204), (204, b"")),
        (with_content_length(b"no", code=404), (404, b"no")),
        (chunked(b"a" * 70_000, b"b", b""), (200, b"a" * 70_000 + b"b")),
        (with_content_length(gzip.compress(b"small"), fields="Content-Encoding: gzip\r\n"), (200, b"small")),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + with_content_length(b"after"), (200, b"after")),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", (200, b"until the end")),
        (with_content_length(b"last", fields="Connection: close\r\n"), (200, b"last")),
    ],
    ids=["nothing", "refusal", "chunked", "gzip", "1xx", "without a length", "closing"],
)
async def test_response_bodies_are_decoded(answer: bytes, expected: tuple[int, bytes]) -> None:
    async with serving(respond_with(answer)) as origin:
        assert await send_request(ConnectionPool(), origin) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        chunked(b"no end"),
        with_content_length(gzip.compress(b"x" * 1000)[:-12], fields="Content-Encoding: gzip\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 1000)[:-12],
    ],
    ids=["nothing", "short", "no last chunk", "short within gzip", "short within gzip without a length"],
)
async def test_truncated_response_raises_disconnected(answer: bytes) -> None:
    async with serving(respond_with(answer)) as origin:
        with pytest.raises(Disconnected):
            await send_request(ConnectionPool(), origin)


def test_http1_on_uvloop() -> None:
    async def use() -> None:
        async with serving(
            respond_with(with_content_length(b"one"), with_content_length(b"two"), then=wait_until_closed)
        ) as origin:
            pool = ConnectionPool()
            assert [await send_request(pool, origin) for _ in range(2)] == [(200, b"one"), (200, b"two")]
            pool.abort()
        async with serving(respond_with(chunked(b"one\n", b"two\n", b""))) as origin:
            assert await read_stream(origin) == [b"one", b"two"]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(use())


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Other\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
        with_content_length(b"no gzip", fields="Content-Encoding: gzip\r\n"),
    ],
    ids=["ssh", "upgrade", "not compressed"],
)
async def test_non_http_bytes_raise_disconnected(answer: bytes) -> None:
    async with serving(respond_with(answer, then=wait_until_closed)) as origin:
        with pytest.raises(Disconnected, match="not HTTP"):
            await send_request(ConnectionPool(), origin)


async def test_chunked_trailer_is_not_a_header() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(
        respond_with(head + b"2\r\nok\r\n0\r\nWarning: trailer\r\n\r\n" + with_content_length(b"unasked"))
    ) as origin:
        connection = await ConnectionPool().acquire(origin)
        answer = await connection.send(REQUEST)
        assert (answer.body, answer.fields) == (b"ok", [(b"transfer-encoding", b"chunked")])


async def test_header_lookup_is_case_insensitive() -> None:
    async with serving(
        respond_with(with_content_length(b"", fields="RETRY-AFTER: 3\r\nwarning: a\r\nWarning: b\r\n"))
    ) as origin:
        connection = await ConnectionPool().acquire(origin)
        answer = await connection.send(REQUEST)
        assert answer.header(b"retry-after") == "3"
        assert answer.headers(b"warning") == ["a", "b"]
        assert answer.header(b"date") is None
        connection.abort()


async def test_streamed_lines_are_independent_of_chunks() -> None:
    body = (b"first\nsec", b"ond", b"\n\n", b"x" * 100_000, b"\nlast")
    async with serving(respond_with(chunked(*body, b""))) as origin:
        assert await read_stream(origin) == [b"first", b"second", b"", b"x" * 100_000, b"last"]


async def test_broken_stream_yields_received_lines_first() -> None:
    async with serving(respond_with(chunked(b"one\n"))) as origin:
        connection = await ConnectionPool().acquire(origin)
        await connection.send(REQUEST, stream=True)
        lines = connection.lines(10.0)
        assert await anext(lines) == b"one"
        with pytest.raises(Disconnected):
            await anext(lines)


async def test_silent_stream_times_out() -> None:
    async with serving(respond_with(chunked(b"one\n"), then=wait_until_closed)) as origin:
        connection = await ConnectionPool().acquire(origin)
        await connection.send(REQUEST, stream=True)
        lines = connection.lines(0.02)
        assert await anext(lines) == b"one"
        with pytest.raises(TimeoutError):
            await anext(lines)
        connection.abort()


async def test_slow_reader_causes_back_pressure() -> None:
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _line in range(640):
            line = b"y" * 65_535 + b"\n"
            writer.write(b"10000\r\n" + line + b"\r\n")
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n")

    async with serving(respond_with(chunked(), then=flood)) as origin:
        connection = await ConnectionPool().acquire(origin)
        await connection.send(REQUEST, stream=True)
        while not connection._paused:
            await asyncio.sleep(0)
        before = -1
        while before != sent:
            before = sent
            for _ in range(100):
                await asyncio.sleep(0)
        assert sent < 640
        assert sum([1 async for _ in connection.lines(10.0)]) == 640


async def test_unfinished_stream_connection_is_not_reused() -> None:
    """Reading is paused, although the whole response has arrived.

    The next response would not be read.
    """
    async with serving(
        respond_with(chunked(b"first\n", b"x" * (2**20 + 10_000), b""), then=wait_until_closed)
    ) as origin:
        pool = ConnectionPool()
        connection = await pool.acquire(origin)
        await connection.send(REQUEST, stream=True)
        while not connection._complete:
            await asyncio.sleep(0)
        pool.release(connection)
        assert await pool.acquire(origin) is not connection
        pool.abort()


async def test_idle_closed_connection_is_not_reused() -> None:
    async with serving(respond_with(with_content_length(b"ok"))) as origin:
        pool = ConnectionPool()
        for _ in range(3):
            connection = await pool.acquire(origin)
            assert (await connection.send(REQUEST)).body == b"ok"
            pool.release(connection)
            while connection.is_usable:
                await asyncio.sleep(0)


async def test_unexpected_bytes_close_the_connection() -> None:
    async with serving(
        respond_with(with_content_length(b"ok") + with_content_length(b"more"), then=wait_until_closed)
    ) as origin:
        pool = ConnectionPool()
        connection = await pool.acquire(origin)
        await connection.send(REQUEST)
        pool.release(connection)
        assert await pool.acquire(origin) is not connection


async def test_early_response_makes_connection_unusable() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(with_content_length(b"too large", code=413))
        await asyncio.Event().wait()

    async with serving(refuse) as origin:
        connection = await ConnectionPool().acquire(origin)
        answer = await connection.send(REQUEST + b"z" * 50_000_000)
        assert answer.code == 413
        assert not connection.is_usable


async def test_pool_queues_requests_above_limit() -> None:
    async with serving(respond_with(*[with_content_length(b"ok")] * 9, then=wait_until_closed)) as origin:
        pool = ConnectionPool(limit=1)
        first = await pool.acquire(origin)
        order: list[str] = []

        async def use(name: str) -> None:
            connection = await pool.acquire(origin)
            order.append(name)
            pool.release(connection)

        tasks = [asyncio.create_task(use(name)) for name in ("a", "cancelled", "b")]
        await asyncio.sleep(0)
        await first.send(REQUEST)
        tasks[1].cancel()
        pool.release(first)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["a", "b"]
        pool.abort()


async def test_pool_waiters_are_served_in_order() -> None:
    async with serving(respond_with(*[with_content_length(b"ok")] * 9, then=wait_until_closed)) as origin:
        pool = ConnectionPool(limit=1)
        order: list[str] = []

        async def work(name: str) -> None:
            for _ in range(3):
                await send_request(pool, origin)
                order.append(name)

        await asyncio.gather(work("a"), work("b"))
        assert order == ["a", "b"] * 3
        pool.abort()


async def test_pool_abort_cancels_waiters() -> None:
    async with serving(wait_until_closed) as origin:
        pool = ConnectionPool(limit=1)
        asking = [asyncio.create_task(send_request(pool, origin)) for _ in range(2)]
        while not pool._in_use:
            await asyncio.sleep(0)
        pool.abort()
        for task in asking:
            with pytest.raises(Disconnected, match="closed"):
                await task


async def test_failed_connection_frees_pool_slot() -> None:
    async with serving(respond_with()) as origin:
        pool = ConnectionPool(limit=1)
        for _ in range(3):
            with pytest.raises(Disconnected):
                await send_request(pool, origin)


async def test_pool_is_separate_per_origin() -> None:
    answers = respond_with(*[with_content_length(b"ok")] * 9, then=wait_until_closed)
    async with serving(answers) as one, serving(answers) as two:
        pool = ConnectionPool(limit=1)
        assert await send_request(pool, one) == (200, b"ok")
        assert await send_request(pool, two) == (200, b"ok")
        pool.abort()


async def test_idle_connections_end() -> None:
    ended = asyncio.Event()

    async def note(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            await reader.read()
        ended.set()

    async with serving(respond_with(with_content_length(b"ok"), then=note)) as origin:
        await send_request(ConnectionPool(keep_alive=0.02), origin)
        await ended.wait()


async def test_pool_abort_ends_running_requests() -> None:
    async with serving(wait_until_closed) as origin:
        pool = ConnectionPool()
        asking = asyncio.create_task(send_request(pool, origin))
        while not pool._in_use:
            await asyncio.sleep(0)
        pool.abort()
        with pytest.raises(Disconnected, match="closed"):
            await asking


async def test_connect_to_missing_server_fails() -> None:
    async with serving(wait_until_closed) as origin:
        pass
    with pytest.raises(OSError):
        await ConnectionPool().acquire(origin)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback has one address")
async def test_connect_tries_next_address_after_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.client.transport.pool._ADDRESS_TIMEOUT_SECONDS", 0.05)
    async with serving(respond_with(with_content_length(b"ok"))) as origin:
        with socket.socket() as silent, ExitStack() as crowd:
            silent.bind(("127.0.0.2", origin.port))
            silent.listen(0)
            for _ in range(4):
                # The kernel ignores new connections when the backlog is full.
                client = crowd.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(("127.0.0.2", origin.port))

            def resolve(*_: object, **__: object) -> list[tuple[Any, ...]]:
                kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
                return [(*kind, (address, origin.port)) for address in ("127.0.0.2", "127.0.0.1")]

            monkeypatch.setattr(socket, "getaddrinfo", resolve)
            assert await send_request(ConnectionPool(), Origin("two.example", origin.port)) == (200, b"ok")


async def test_connect_to_ip_address_needs_no_thread() -> None:
    async with serving(respond_with(with_content_length(b"ok"))) as origin:
        loop, over = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = loop.run_in_executor(None, over.wait)
        try:
            async with asyncio.timeout(5):
                assert await send_request(ConnectionPool(), origin) == (200, b"ok")
        finally:
            over.set()
            await waiting


async def test_tcp_keepalive_is_enabled() -> None:
    async with serving(wait_until_closed) as origin:
        connection: Connection = await ConnectionPool().acquire(origin)
        assert connection._transport is not None
        opened = connection._transport.get_extra_info("socket")
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            patience = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            patience += opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) * 3
            assert patience <= 30
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        connection.abort()
