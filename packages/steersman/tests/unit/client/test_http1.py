"""HTTP/1.1 over sockets on loopback: what servers and proxies do, well-behaved or not."""

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

from steersman.client.http1 import Connection, ConnectionPool, Disconnected, Route

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[Route]:
    """A server that hands each connection to ``handler``, and ends it afterwards."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Ours are closed by a reset.
        with suppress(ConnectionResetError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield Route("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


def answering(*answers: bytes, then: Handler | None = None) -> Handler:
    """Gives one of ``answers`` to each request on a connection, and then does ``then``."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        if then is not None:
            await then(reader, writer)

    return handle


async def until_closed(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def sized(body: bytes, *, code: int = 200, fields: str = "") -> bytes:
    return f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n{fields}\r\n".encode() + body


def chunked(*parts: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts)


async def ask(pool: ConnectionPool, route: Route) -> tuple[int, bytes]:
    connection = await pool.acquire(route)
    try:
        answer = await connection.send(REQUEST)
    finally:
        pool.release(connection)
    return answer.code, answer.body


async def streamed(route: Route, silence: float = 10.0) -> list[bytes]:
    connection = await ConnectionPool().acquire(route)
    assert (await connection.send(REQUEST, stream=True)).code == 200
    return [line async for line in connection.lines(silence)]


async def test_a_connection_is_used_again() -> None:
    async with serving(answering(sized(b"one"), sized(b"two"), then=until_closed)) as route:
        pool = ConnectionPool()
        assert [await ask(pool, route) for _ in range(2)] == [(200, b"one"), (200, b"two")]
        pool.abort()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (sized(b"", code=204), (204, b"")),
        (sized(b"no", code=404), (404, b"no")),
        (chunked(b"a" * 70_000, b"b", b""), (200, b"a" * 70_000 + b"b")),
        (sized(gzip.compress(b"small"), fields="Content-Encoding: gzip\r\n"), (200, b"small")),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"after"), (200, b"after")),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", (200, b"until the end")),
        (sized(b"last", fields="Connection: close\r\n"), (200, b"last")),
    ],
    ids=["nothing", "refusal", "chunked", "gzip", "1xx", "without a length", "closing"],
)
async def test_answers(answer: bytes, expected: tuple[int, bytes]) -> None:
    async with serving(answering(answer)) as route:
        assert await ask(ConnectionPool(), route) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        chunked(b"no end"),
        sized(gzip.compress(b"x" * 1000)[:-12], fields="Content-Encoding: gzip\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 1000)[:-12],
    ],
    ids=["nothing", "short", "no last chunk", "short within gzip", "short within gzip without a length"],
)
async def test_an_answer_that_is_not_whole_is_none(answer: bytes) -> None:
    async with serving(answering(answer)) as route:
        with pytest.raises(Disconnected):
            await ask(ConnectionPool(), route)


def test_on_uvloop() -> None:
    async def use() -> None:
        async with serving(answering(sized(b"one"), sized(b"two"), then=until_closed)) as route:
            pool = ConnectionPool()
            assert [await ask(pool, route) for _ in range(2)] == [(200, b"one"), (200, b"two")]
            pool.abort()
        async with serving(answering(chunked(b"one\n", b"two\n", b""))) as route:
            assert await streamed(route) == [b"one", b"two"]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(use())


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Other\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
        sized(b"no gzip", fields="Content-Encoding: gzip\r\n"),
    ],
    ids=["ssh", "upgrade", "not compressed"],
)
async def test_what_is_not_http_is_called_so(answer: bytes) -> None:
    async with serving(answering(answer, then=until_closed)) as route:
        with pytest.raises(Disconnected, match="not HTTP"):
            await ask(ConnectionPool(), route)


async def test_what_follows_the_body_is_no_header() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(answering(head + b"2\r\nok\r\n0\r\nWarning: trailer\r\n\r\n" + sized(b"unasked"))) as route:
        connection = await ConnectionPool().acquire(route)
        answer = await connection.send(REQUEST)
        assert (answer.body, answer.fields) == (b"ok", [(b"transfer-encoding", b"chunked")])


async def test_headers_are_found_whatever_their_case() -> None:
    async with serving(answering(sized(b"", fields="RETRY-AFTER: 3\r\nwarning: a\r\nWarning: b\r\n"))) as route:
        connection = await ConnectionPool().acquire(route)
        answer = await connection.send(REQUEST)
        assert answer.header(b"retry-after") == "3"
        assert answer.headers(b"warning") == ["a", "b"]
        assert answer.header(b"date") is None
        connection.abort()


async def test_lines_come_whole_however_they_are_cut() -> None:
    body = (b"first\nsec", b"ond", b"\n\n", b"x" * 100_000, b"\nlast")
    async with serving(answering(chunked(*body, b""))) as route:
        assert await streamed(route) == [b"first", b"second", b"", b"x" * 100_000, b"last"]


async def test_a_stream_that_breaks_gives_what_came_before() -> None:
    async with serving(answering(chunked(b"one\n"))) as route:
        connection = await ConnectionPool().acquire(route)
        await connection.send(REQUEST, stream=True)
        lines = connection.lines(10.0)
        assert await anext(lines) == b"one"
        with pytest.raises(Disconnected):
            await anext(lines)


async def test_a_silent_stream_is_noticed() -> None:
    async with serving(answering(chunked(b"one\n"), then=until_closed)) as route:
        connection = await ConnectionPool().acquire(route)
        await connection.send(REQUEST, stream=True)
        lines = connection.lines(0.02)
        assert await anext(lines) == b"one"
        with pytest.raises(TimeoutError):
            await anext(lines)
        connection.abort()


async def test_a_slow_reader_holds_up_the_sender() -> None:
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _line in range(640):
            line = b"y" * 65_535 + b"\n"
            writer.write(b"10000\r\n" + line + b"\r\n")
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n")

    async with serving(answering(chunked(), then=flood)) as route:
        connection = await ConnectionPool().acquire(route)
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


async def test_a_stream_that_is_left_before_its_end_spoils_no_request() -> None:
    """All of it has come, yet reading was paused meanwhile, and nobody would read the next answer."""
    async with serving(answering(chunked(b"first\n", b"x" * (2**20 + 10_000), b""), then=until_closed)) as route:
        pool = ConnectionPool()
        connection = await pool.acquire(route)
        await connection.send(REQUEST, stream=True)
        while not connection._complete:
            await asyncio.sleep(0)
        pool.release(connection)
        assert await pool.acquire(route) is not connection
        pool.abort()


async def test_a_connection_that_was_closed_while_idle_is_not_used() -> None:
    async with serving(answering(sized(b"ok"))) as route:
        pool = ConnectionPool()
        for _ in range(3):
            connection = await pool.acquire(route)
            assert (await connection.send(REQUEST)).body == b"ok"
            pool.release(connection)
            while connection.is_usable:
                await asyncio.sleep(0)


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    async with serving(answering(sized(b"ok") + sized(b"more"), then=until_closed)) as route:
        pool = ConnectionPool()
        connection = await pool.acquire(route)
        await connection.send(REQUEST)
        pool.release(connection)
        assert await pool.acquire(route) is not connection


async def test_an_answer_before_the_request_was_read_ends_the_connection() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sized(b"too large", code=413))
        await asyncio.Event().wait()

    async with serving(refuse) as route:
        connection = await ConnectionPool().acquire(route)
        answer = await connection.send(REQUEST + b"z" * 50_000_000)
        assert answer.code == 413
        assert not connection.is_usable


async def test_the_pool_has_a_limit_and_a_queue() -> None:
    async with serving(answering(*[sized(b"ok")] * 9, then=until_closed)) as route:
        pool = ConnectionPool(limit=1)
        first = await pool.acquire(route)
        order: list[str] = []

        async def use(name: str) -> None:
            connection = await pool.acquire(route)
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


async def test_who_waits_has_his_turn_before_who_comes_later() -> None:
    async with serving(answering(*[sized(b"ok")] * 9, then=until_closed)) as route:
        pool = ConnectionPool(limit=1)
        order: list[str] = []

        async def work(name: str) -> None:
            for _ in range(3):
                await ask(pool, route)
                order.append(name)

        await asyncio.gather(work("a"), work("b"))
        assert order == ["a", "b"] * 3
        pool.abort()


async def test_who_waits_when_all_is_aborted_opens_nothing() -> None:
    async with serving(until_closed) as route:
        pool = ConnectionPool(limit=1)
        asking = [asyncio.create_task(ask(pool, route)) for _ in range(2)]
        while not pool._taken:
            await asyncio.sleep(0)
        pool.abort()
        for task in asking:
            with pytest.raises(Disconnected, match="closed"):
                await task


async def test_a_connection_that_failed_makes_room() -> None:
    async with serving(answering()) as route:
        pool = ConnectionPool(limit=1)
        for _ in range(3):
            with pytest.raises(Disconnected):
                await ask(pool, route)


async def test_routes_do_not_share_connections_and_do_not_starve_each_other() -> None:
    answers = answering(*[sized(b"ok")] * 9, then=until_closed)
    async with serving(answers) as one, serving(answers) as two:
        pool = ConnectionPool(limit=1)
        assert await ask(pool, one) == (200, b"ok")
        assert await ask(pool, two) == (200, b"ok")
        pool.abort()


async def test_idle_connections_end() -> None:
    ended = asyncio.Event()

    async def note(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            await reader.read()
        ended.set()

    async with serving(answering(sized(b"ok"), then=note)) as route:
        await ask(ConnectionPool(keep_alive=0.02), route)
        await ended.wait()


async def test_abort_ends_what_runs() -> None:
    async with serving(until_closed) as route:
        pool = ConnectionPool()
        asking = asyncio.create_task(ask(pool, route))
        while not pool._taken:
            await asyncio.sleep(0)
        pool.abort()
        with pytest.raises(Disconnected, match="closed"):
            await asking


async def test_a_server_that_is_not_there() -> None:
    async with serving(until_closed) as route:
        pass
    with pytest.raises(OSError):
        await ConnectionPool().acquire(route)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback has one address")
async def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.client.http1._ADDRESS_TIMEOUT", 0.05)
    async with serving(answering(sized(b"ok"))) as route:
        with socket.socket() as silent, ExitStack() as crowd:
            silent.bind(("127.0.0.2", route.port))
            silent.listen(0)
            for _ in range(4):
                # Once its backlog is full, the system answers nobody.
                client = crowd.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(("127.0.0.2", route.port))

            async def resolve(*_: object, **__: object) -> list[tuple[Any, ...]]:
                kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
                return [(*kind, (address, route.port)) for address in ("127.0.0.2", "127.0.0.1")]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
            assert await ask(ConnectionPool(), Route("two.example", route.port)) == (200, b"ok")


async def test_an_address_is_reached_while_all_threads_wait() -> None:
    async with serving(answering(sized(b"ok"))) as route:
        loop, over = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = loop.run_in_executor(None, over.wait)
        try:
            async with asyncio.timeout(5):
                assert await ask(ConnectionPool(), route) == (200, b"ok")
        finally:
            over.set()
            await waiting


async def test_a_dead_peer_is_noticed_by_the_system() -> None:
    async with serving(until_closed) as route:
        connection: Connection = await ConnectionPool().acquire(route)
        assert connection._transport is not None
        opened = connection._transport.get_extra_info("socket")
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            patience = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            patience += opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) * 3
            assert patience <= 30
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        connection.abort()
