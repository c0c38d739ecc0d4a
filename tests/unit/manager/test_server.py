"""Checks over HTTP, and addresses as people write them."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from steersman.errors import ConfigurationError
from steersman.manager import ProbeServer


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
