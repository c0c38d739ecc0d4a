"""Checks over HTTP, and addresses as people write them."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from framework_support.certificates import CertificateAuthority
from steersman.client.transport.tls import load_key_pair
from steersman.errors import ConfigurationError
from steersman.manager import ProbeServer
from steersman.manager.serving.cert_watcher import server_ssl_context
from steersman.manager.serving.http_server import HttpHandler, HttpServer, ServerRequest, ServerResponse


@pytest.mark.parametrize("bind", ["8081", "localhost", ":http", ":-1", ":99999", "", ":²"])
def test_probe_server_malformed_address_raises(bind: str) -> None:
    with pytest.raises(ConfigurationError, match="write host:port, such as :8081"):
        ProbeServer(bind)


@pytest.mark.parametrize(("bind", "host"), [("0.0.0.0:0", "127.0.0.1"), ("[::1]:0", "[::1]")])
async def test_probe_server_binds_addresses(bind: str, host: str) -> None:
    server = ProbeServer(bind, health={"ping": lambda: None})
    await server.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{host}:{server.port}/healthz") as response,
        ):
            assert response.status == 200
    finally:
        await server.stop()


async def test_health_failed_check_is_named() -> None:
    registry = CollectorRegistry()
    Counter("orders_total", "Fish caught.", registry=registry).inc(3)
    checks = {"database": lambda: None, "queue": lambda: "full", "cache": lambda: ""}
    server = ProbeServer("127.0.0.1:0", ready=checks, metrics=registry)
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
            async with session.get("/readyz") as response:
                assert response.status == 500
                assert await response.text() == "[+]database ok\n[-]queue failed: full\n[-]cache failed: \nfailed\n"
            async with session.get("/readyz/database") as response:
                assert (response.status, await response.text()) == (200, "ok\n")
            async with session.get("/readyz/queue") as response:
                assert (response.status, await response.text()) == (500, "full\n")
            async with session.get("/readyz/unknown") as response:
                assert response.status == 404
            async with session.get("/metrics") as response:
                assert "orders_total 3.0" in await response.text()
                assert response.headers["Content-Type"].startswith("text/plain")
            async with session.get("/healthz") as response:
                assert response.status == 404
    finally:
        await server.stop()


async def test_health_checks_may_be_async_or_raise() -> None:
    async def async_check() -> str | None:
        return "too shallow"

    def broken() -> str | None:
        raise ValueError("no lead")

    server = ProbeServer("127.0.0.1:0", health={"async_check": async_check, "broken": broken})
    await server.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{server.port}/healthz") as got,
        ):
            assert got.status == 500
            expected = "[-]async_check failed: too shallow\n[-]broken failed: ValueError: no lead\nfailed\n"
            assert await got.text() == expected
    finally:
        await server.stop()


async def exchange(port: int, sent: bytes) -> bytes:
    """Return the response until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(60):
        received = await reader.read()
    writer.close()
    return received


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", b"200 OK"),
        (b"GET /healthz?verbose HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /healthz HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"200 OK"),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405 Method Not Allowed"),
        (b"\x16\x03\x01 hello\r\n\r\n", b"400 Bad Request"),
        (b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n", b"400 Bad Request"),
        (b"GET http://elsewhere/healthz HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"431 Request Header Fields Too Large"),
        (b"GET /broken HTTP/1.0\r\n\r\n", b"500 Internal Server Error"),
    ],
)
async def test_probe_server_rejects_invalid_requests(sent: bytes, status: bytes) -> None:
    async def broken(_: ServerRequest) -> ServerResponse:
        raise ValueError("scripted")

    server = ProbeServer("127.0.0.1:0", health={"ping": lambda: None}, handlers={"/broken": broken})
    await server.start()
    try:
        answer = await exchange(server.port, sent)
        assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert answer.count(b"HTTP/1.1 ") == 1
    finally:
        await server.stop()


async def test_endless_header_in_pieces_returns_431() -> None:
    server = ProbeServer("127.0.0.1:0", health={"ping": lambda: None})
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(60):
            writer.write(b"GET /healthz HTTP/1.1\r\nEndless: ")
            received = asyncio.create_task(reader.readline())
            while not received.done():
                writer.write(b"x" * 1000)
                await writer.drain()
                await asyncio.sleep(0)
            assert await received == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    finally:
        writer.close()
        await server.stop()


async def test_connection_over_limit_is_closed() -> None:
    server = HttpServer("127.0.0.1", 0, echo, max_connections=1)
    await server.start()
    _, first = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        # The server resets the connection, which the client may see as an error or as the end.
        with suppress(ConnectionResetError):
            assert await exchange(server.port, b"") == b""
    finally:
        first.close()
        await server.stop()


async def test_probe_server_keeps_connection_alive_until_stop() -> None:
    server = ProbeServer("127.0.0.1:0", health={"ping": lambda: None})
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(60):
        for method, body in ((b"GET", b"ok\n"), (b"HEAD", b""), (b"GET", b"ok\n")):
            writer.write(method + b" /healthz/ping HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Content-Length: 3\r\n" in head
            assert await reader.readexactly(len(body)) == body
        await server.stop()
        assert await reader.read() == b""
    writer.close()


class TestPosts:
    """Requests with bodies, limits and draining, as webhooks need them."""

    @staticmethod
    async def started(answer: HttpHandler, context: ssl.SSLContext | None = None) -> HttpServer:
        server = HttpServer(
            "127.0.0.1", 0, answer, context, max_body_size=lambda path: 200_000 if path == "/echo" else 0
        )
        await server.start()
        return server

    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            (b"POST /echo HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", b"200 OK"),
            (b"POST /echo HTTP/1.1\r\nContent-Length: 200001\r\n\r\n", b"413 Request Entity Too Large"),
            (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411 Length Required"),
            (b"POST /echo HTTP/1.1\r\n\r\n", b"411 Length Required"),
            (b"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400 Bad Request"),
            (b"POST /other HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"404 Not Found"),
            (b"PUT /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        ],
    )
    async def test_post_bodies_are_limited(self, sent: bytes, status: bytes) -> None:
        server = await self.started(echo)
        try:
            answer = await exchange(server.port, sent)
        finally:
            await server.stop()
        # RFC 9110 changed some of these phrases.
        assert answer.startswith(b"HTTP/1.1 " + status[:3])
        assert answer.count(b"HTTP/1.1 ") == 1

    async def test_connection_serves_many_posts(self) -> None:
        server = await self.started(echo)
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
                for size in (0, 1, 70_000, 200_000):
                    async with session.post("/echo?timeout=10s", data=b"x" * size) as response:
                        assert await response.text() == f"{size} timeout=10s"
        finally:
            await server.stop()

    async def test_shutdown_request_gets_response_and_close(self) -> None:
        arrived, gate = asyncio.Event(), asyncio.Event()

        async def slow(request: ServerRequest) -> ServerResponse:
            arrived.set()
            await gate.wait()
            return ServerResponse("done")

        server = await self.started(slow)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /echo HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        await asyncio.wait_for(arrived.wait(), 10)
        server.drain()
        ending = asyncio.create_task(server.stop(grace=10))
        await asyncio.sleep(0)
        gate.set()
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"Connection: close" in answer
        writer.close()
        await ending

    async def test_new_certificate_is_used_by_new_connections(self) -> None:
        context, authority = server_ssl_context(), CertificateAuthority()
        clients = ssl.create_default_context(cadata=authority.certificate.decode())
        first, second = (authority.issue(name, names=["localhost"]) for name in ("one", "two"))
        load_key_pair(context, *first)
        server = await self.started(echo, context)
        try:
            names: list[str] = []
            for pair in (first, second):
                load_key_pair(context, *pair)
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", server.port, ssl=clients, server_hostname="localhost"
                )
                names.append(writer.get_extra_info("peercert")["subject"][0][0][1])
                writer.close()
            assert names == ["one", "two"]
        finally:
            await server.stop()


async def echo(request: ServerRequest) -> ServerResponse:
    return ServerResponse(f"{len(request.body)} {request.query}")
