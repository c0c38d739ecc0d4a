"""Checks over HTTP, and addresses as people write them."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from steersman.errors import ConfigurationError
from steersman.manager import ProbeServer
from steersman.manager.http_server import Request, Response


@pytest.mark.parametrize("bind", ["8081", "localhost", ":http", ":-1", ":99999", "", ":²"])
def test_malformed_addresses(bind: str) -> None:
    with pytest.raises(ConfigurationError, match="write host:port, such as :8081"):
        ProbeServer(bind)


@pytest.mark.parametrize(("bind", "host"), [("0.0.0.0:0", "127.0.0.1"), ("[::1]:0", "[::1]")])
async def test_addresses(bind: str, host: str) -> None:
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


async def test_one_failed_check_fails_them_all_and_is_named() -> None:
    registry = CollectorRegistry()
    Counter("fish_total", "Fish caught.", registry=registry).inc(3)
    checks = {"sails": lambda: None, "hull": lambda: "leaks", "mast": lambda: ""}
    server = ProbeServer("127.0.0.1:0", ready=checks, metrics=registry)
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
            async with session.get("/readyz") as response:
                assert response.status == 500
                assert await response.text() == "[+]sails ok\n[-]hull failed: leaks\n[-]mast failed: \nfailed\n"
            async with session.get("/readyz/sails") as response:
                assert (response.status, await response.text()) == (200, "ok\n")
            async with session.get("/readyz/hull") as response:
                assert (response.status, await response.text()) == (500, "leaks\n")
            async with session.get("/readyz/keel") as response:
                assert response.status == 404
            async with session.get("/metrics") as response:
                assert "fish_total 3.0" in await response.text()
                assert response.headers["Content-Type"].startswith("text/plain")
            async with session.get("/healthz") as response:
                assert response.status == 404
    finally:
        await server.stop()


async def test_checks_may_be_coroutines_and_may_break() -> None:
    async def sounding() -> str | None:
        return "too shallow"

    def broken() -> str | None:
        raise ValueError("no lead")

    server = ProbeServer("127.0.0.1:0", health={"sounding": sounding, "broken": broken})
    await server.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{server.port}/healthz") as got,
        ):
            assert got.status == 500
            told = "[-]sounding failed: too shallow\n[-]broken failed: ValueError: no lead\nfailed\n"
            assert await got.text() == told
    finally:
        await server.stop()


async def exchange(port: int, sent: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(10):
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
async def test_what_is_no_plain_get(sent: bytes, status: bytes) -> None:
    async def broken(_: Request) -> Response:
        raise ValueError("scripted")

    server = ProbeServer("127.0.0.1:0", health={"ping": lambda: None}, handlers={"/broken": broken})
    await server.start()
    try:
        answer = await exchange(server.port, sent)
        assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert answer.count(b"HTTP/1.1 ") == 1
    finally:
        await server.stop()


async def test_a_connection_serves_several_requests_and_ends_with_the_server() -> None:
    server = ProbeServer("127.0.0.1:0", health={"ping": lambda: None})
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(10):
        for method, body in ((b"GET", b"ok\n"), (b"HEAD", b""), (b"GET", b"ok\n")):
            writer.write(method + b" /healthz/ping HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Content-Length: 3\r\n" in head
            assert await reader.readexactly(len(body)) == body
        await server.stop()
        assert await reader.read() == b""
    writer.close()
