"""Transports composed by ``connect``, on real sockets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from framework_support.certificates import CertificateAuthority
from framework_support.loopback_server import get, running_server
from steersman.client import ClusterConfig, HttpRequest, HttpTransport, RateLimit, RetryPolicy, connect
from steersman.errors import ConnectionFailed
from steersman.observability import metrics

FAST_RETRIES = RetryPolicy(attempts=3, initial_delay=0.001)
POST = HttpRequest(method="POST", path="/api/v1/pods", body=b"{}")


def retries(config: ClusterConfig, verb: str = "GET") -> float:
    """Return the number of retries of requests to the server of ``config``."""
    host = config.server.partition("://")[2]
    samples = (s for family in metrics.registry.collect() for s in family.samples)
    counted = (s for s in samples if s.name == "rest_client_request_retries_total")
    return sum(s.value for s in counted if (s.labels["host"], s.labels["verb"]) == (host, verb))


@pytest.fixture
def unreachable_server() -> Iterator[ClusterConfig]:
    """Yield the configuration of a server that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield ClusterConfig(server=f"http://127.0.0.1:{bound.getsockname()[1]}")


async def test_write_with_refused_connection_is_retried(unreachable_server: ClusterConfig) -> None:
    async with connect(unreachable_server, retry=FAST_RETRIES) as transport:
        with pytest.raises(ConnectionFailed) as caught:
            await transport.request(POST)
    assert not caught.value.sent
    assert retries(unreachable_server, "POST") == 2


async def test_transport_without_retries_makes_one_attempt(unreachable_server: ClusterConfig) -> None:
    async with connect(unreachable_server, retry=None) as transport:
        assert isinstance(transport, HttpTransport)
        with pytest.raises(ConnectionFailed):
            await transport.request(get())
    assert retries(unreachable_server) == 0


async def test_write_with_reset_connection_is_not_retried() -> None:
    async def cut(request: web.BaseRequest) -> web.Response:
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with running_server(cut) as port:
        config = ClusterConfig(server=f"http://127.0.0.1:{port}")
        async with connect(config, retry=FAST_RETRIES) as transport:
            with pytest.raises(ConnectionFailed) as caught:
                await transport.request(POST)
            assert caught.value.sent
            with pytest.raises(ConnectionFailed):
                await transport.request(get())
        assert (retries(config, "POST"), retries(config)) == (0, 2)


async def test_untrusted_certificate_is_not_retried(tmp_path: Path) -> None:
    certificate, key = CertificateAuthority().issue("kubernetes", names=["kubernetes"])
    (tmp_path / "server.pem").write_bytes(certificate + key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem")

    async def never(_: web.BaseRequest) -> web.Response:
        raise AssertionError("must not arrive")

    async with running_server(never, tls) as port:
        config = ClusterConfig(
            server=f"https://127.0.0.1:{port}", ca=CertificateAuthority().certificate, tls_server_name="kubernetes"
        )
        async with connect(config, retry=FAST_RETRIES) as transport:
            with pytest.raises(ConnectionFailed, match="certificate"):
                await transport.request(get())
        assert retries(config) == 0


async def test_each_retry_uses_a_rate_limit_token() -> None:
    async def throttle(_: web.BaseRequest) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "0"})

    async with running_server(throttle) as port:
        config = ClusterConfig(server=f"http://127.0.0.1:{port}")
        async with connect(config, retry=FAST_RETRIES, rate_limit=RateLimit(qps=1000, burst=1)) as transport:
            assert (await transport.request(get())).status == 429
    labels = {"verb": "GET", "host": f"127.0.0.1:{port}"}
    assert metrics.registry.get_sample_value("rest_client_rate_limiter_duration_seconds_count", labels) == 3
