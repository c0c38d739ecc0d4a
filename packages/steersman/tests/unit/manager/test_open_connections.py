"""Limits of the HTTP server against idle and slow clients."""

from __future__ import annotations

import asyncio
import gc
import ssl
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from framework_support.certificates import CertificateAuthority
from steersman.client.transport.tls import load_key_pair
from steersman.manager.serving.cert_watcher import server_ssl_context
from steersman.manager.serving.http_connection import (
    ConnectionOptions,
    ResponseWriter,
    ServerConnection,
    WireRequest,
)
from steersman.manager.serving.http_server import HttpServer, ServerRequest, ServerResponse
from steersman.manager.serving.open_connections import OpenConnections

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(request: ServerRequest) -> ServerResponse:
    return ServerResponse(request.path)


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server and of a client that trusts it."""
    authority, server = CertificateAuthority(), server_ssl_context()
    load_key_pair(server, *authority.issue("localhost", names=["localhost"]))
    return server, ssl.create_default_context(cadata=authority.certificate.decode())


@asynccontextmanager
async def silent_connections(port: int, count: int) -> AsyncGenerator[list[Stream]]:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def get(port: int, context: ssl.SSLContext | None = None) -> bytes:
    name = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        writer.write(b"GET /orders HTTP/1.0\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()


async def test_idle_connections_make_room_for_new_ones() -> None:
    context, client = tls_contexts()
    server = HttpServer("127.0.0.1", 0, echo, context, max_connections=2)
    await server.start()
    try:
        async with asyncio.timeout(60), silent_connections(server.port, 2) as (first, _):
            assert b"/orders" in await get(server.port, client)
            with suppress(ConnectionResetError):
                assert await first[0].read() == b""
    finally:
        await server.stop()


async def test_busy_connections_refuse_new_ones() -> None:
    busy, release = asyncio.Event(), asyncio.Event()

    async def wait(request: ServerRequest) -> ServerResponse:
        busy.set()
        await release.wait()
        return ServerResponse(request.path)

    server = HttpServer("127.0.0.1", 0, wait, max_connections=1)
    await server.start()
    try:
        async with asyncio.timeout(60):
            first = asyncio.create_task(get(server.port))
            await busy.wait()
            with suppress(ConnectionResetError):
                assert await get(server.port) == b""
            release.set()
            assert b"/orders" in await first
    finally:
        await server.stop()


async def test_silent_tls_connections_use_little_memory() -> None:
    context, client = tls_contexts()
    server = HttpServer("127.0.0.1", 0, echo, context)
    await server.start()
    try:
        await get(server.port, client)
        gc.collect()
        tracemalloc.start()
        async with asyncio.timeout(60), silent_connections(server.port, 100):
            assert b"/orders" in await get(server.port, client)
            used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await server.stop()
    # asyncio's TLS has a buffer of 256 KiB for each connection. The streams of the clients count here, too.
    assert used / 100 < 32 * 1024


async def test_client_that_does_not_read_is_closed() -> None:
    connections = OpenConnections[ServerConnection]()

    async def respond(_: WireRequest, writer: ResponseWriter) -> None:
        writer.send(200, [], b"x" * 2**20)

    options = ConnectionOptions(write_timeout=0.05)
    listener = await asyncio.get_running_loop().create_server(
        lambda: ServerConnection(respond, connections, options), "127.0.0.1", 0
    )
    port = listener.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    try:
        async with asyncio.timeout(60):
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 16)
            await reader.readexactly(1)
            while list(connections):
                await asyncio.sleep(0)
    finally:
        writer.close()
        listener.close()


async def test_connection_without_request_is_closed() -> None:
    connections = OpenConnections[ServerConnection]()
    context, _ = tls_contexts()

    async def respond(_: WireRequest, writer: ResponseWriter) -> None:
        writer.send(200, [], b"")

    options = ConnectionOptions(tls=context, first_request_timeout=0.05)
    listener = await asyncio.get_running_loop().create_server(
        lambda: ServerConnection(respond, connections, options), "127.0.0.1", 0
    )
    try:
        async with asyncio.timeout(60), silent_connections(listener.sockets[0].getsockname()[1], 1) as ((reader, _),):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            assert not list(connections)
    finally:
        listener.close()


@dataclass(eq=False)
class FakeConnection:
    is_idle: bool = True
    closed: bool = False

    def reset(self) -> None:
        self.closed = True


def test_oldest_incomplete_body_is_given_up() -> None:
    connections = OpenConnections[FakeConnection](max_body_bytes=100)
    complete, oldest, newest = FakeConnection(is_idle=False), FakeConnection(), FakeConnection()
    for connection in (complete, oldest, newest):
        assert connections.admit(connection)
    connections.received(complete, 40)
    connections.received(oldest, 40)
    connections.received(newest, 30)
    assert [c.closed for c in (complete, oldest, newest)] == [False, True, False]
    connections.responded(complete, 40)
    connections.received(newest, 70)
    assert not newest.closed
    connections.received(newest, 1)
    assert newest.closed


def test_longest_idle_connection_is_given_up() -> None:
    connections = OpenConnections[FakeConnection](max_connections=2)
    first, second, third = FakeConnection(), FakeConnection(), FakeConnection()
    assert connections.admit(first)
    assert connections.admit(second)
    connections.responded(first, 0)
    assert connections.admit(third)
    assert list(connections) == [first, third]
    assert second.closed
