"""Loopback HTTP server with a custom handler, and its transports."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from steersman.client import ClusterConfig, HttpRequest, HttpTransport

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def running_server(
    handler: Handler, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncGenerator[int, None]:
    """Serve requests on loopback with ``handler`` during the block. Yields the port."""
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def open_transport(config: ClusterConfig) -> AsyncGenerator[HttpTransport, None]:
    """Transport without retries."""
    transport = HttpTransport(config)
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def transport_to(handler: Handler, **config: Any) -> AsyncGenerator[HttpTransport, None]:
    """Transport to a server with ``handler``."""
    async with (
        running_server(handler) as port,
        open_transport(ClusterConfig(server=f"http://127.0.0.1:{port}", **config)) as transport,
    ):
        yield transport


def get(path: str = "/api/v1/pods", **fields: Any) -> HttpRequest:
    return HttpRequest(method="GET", path=path, **fields)


async def echo_authorization(request: web.BaseRequest) -> web.Response:
    """Respond with the ``Authorization`` header."""
    return web.Response(text=request.headers.get("Authorization", "none"))


@asynccontextmanager
async def connect_proxy(
    *, authorization: str | None = None, answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n", tls: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[int, list[str]], None]:
    """Proxy that supports only CONNECT. Yields its port and the requested targets."""
    targets: list[str] = []
    streams: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        if authorization is not None and f"Proxy-Authorization: {authorization}" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        assert method == "CONNECT"
        targets.append(target)
        host, _, port = target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(answer)
        await asyncio.gather(_pump(reader, back), _pump(there, writer))

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        streams.add(task)
        task.add_done_callback(streams.discard)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], targets
    finally:
        server.close()
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()
