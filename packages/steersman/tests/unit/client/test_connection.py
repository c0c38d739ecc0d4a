"""What ``connect`` composes, on real sockets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from framework_support.certificates import Authority
from framework_support.loopback import get, serving
from steersman.client import ClusterConfig, HttpRequest, HttpTransport, RateLimit, RetryPolicy, connect
from steersman.errors import ConnectionFailed
from steersman.observability import metrics

QUICK = RetryPolicy(attempts=3, first_delay=0.001)
POST = HttpRequest(method="POST", path="/api/v1/pods", body=b"{}")


def retries(config: ClusterConfig, verb: str = "GET") -> float:
    """How often a request to ``config``'s server was tried again."""
    host = config.server.partition("://")[2]
    samples = (s for family in metrics.registry.collect() for s in family.samples)
    counted = (s for s in samples if s.name == "rest_client_request_retries_total")
    return sum(s.value for s in counted if (s.labels["host"], s.labels["verb"]) == (host, verb))


@pytest.fixture
def nobody() -> Iterator[ClusterConfig]:
    """An address that refuses connections: bound, and never listened on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield ClusterConfig(server=f"http://127.0.0.1:{bound.getsockname()[1]}")


async def test_a_write_that_was_refused_the_connection_is_tried_again(nobody: ClusterConfig) -> None:
    async with connect(nobody, retry=QUICK) as transport:
        with pytest.raises(ConnectionFailed) as caught:
            await transport.request(POST)
    assert not caught.value.sent
    assert retries(nobody, "POST") == 2


async def test_without_retries_it_is_the_bare_transport(nobody: ClusterConfig) -> None:
    async with connect(nobody, retry=None) as transport:
        assert isinstance(transport, HttpTransport)
        with pytest.raises(ConnectionFailed):
            await transport.request(get())
    assert retries(nobody) == 0


async def test_a_write_whose_connection_was_cut_is_not_tried_again() -> None:
    async def cut(request: web.BaseRequest) -> web.Response:
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serving(cut) as port:
        config = ClusterConfig(server=f"http://127.0.0.1:{port}")
        async with connect(config, retry=QUICK) as transport:
            with pytest.raises(ConnectionFailed) as caught:
                await transport.request(POST)
            assert caught.value.sent
            with pytest.raises(ConnectionFailed):
                await transport.request(get())
        assert (retries(config, "POST"), retries(config)) == (0, 2)


async def test_a_stranger_is_not_asked_again(tmp_path: Path) -> None:
    certificate, key = Authority().issue("kubernetes", names=["kubernetes"])
    (tmp_path / "server.pem").write_bytes(certificate + key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem")

    async def never(_: web.BaseRequest) -> web.Response:
        raise AssertionError("must not arrive")

    async with serving(never, tls) as port:
        config = ClusterConfig(
            server=f"https://127.0.0.1:{port}", ca=Authority().certificate, tls_server_name="kubernetes"
        )
        async with connect(config, retry=QUICK) as transport:
            with pytest.raises(ConnectionFailed, match="certificate"):
                await transport.request(get())
        assert retries(config) == 0


async def test_each_try_takes_a_token() -> None:
    async def throttle(_: web.BaseRequest) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "0"})

    async with serving(throttle) as port:
        config = ClusterConfig(server=f"http://127.0.0.1:{port}")
        async with connect(config, retry=QUICK, rate_limit=RateLimit(qps=1000, burst=1)) as transport:
            assert (await transport.request(get())).status == 429
    labels = {"verb": "GET", "host": f"127.0.0.1:{port}"}
    assert metrics.registry.get_sample_value("rest_client_rate_limiter_duration_seconds_count", labels) == 3
