"""Authentication and authorization of metrics clients."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from framework_support.certificates import CertificateAuthority
from framework_support.controller_env import ControllerEnv
from framework_support.transports import ScriptedTransport, error_response, json_response
from steersman.client import Client, HttpResponse
from steersman.errors import ConfigurationError, ConnectionFailed
from steersman.manager import Manager, ManagerOptions, ProbeServer
from steersman.manager.serving.cert_watcher import CertWatcher
from steersman.manager.serving.token_authorizer import TokenAuthorizer, TokenReviewResult
from steersman.observability.runtime import Runtime
from steersman_testing import virtual_runtime, virtual_time

BEARER = "Bearer prometheus-token"


def authenticated_response(username: str = "prometheus") -> HttpResponse:
    user = {"username": username, "uid": "u-1", "groups": ["monitors"], "extra": {"scope": ["all"]}}
    return json_response({"metadata": {}, "spec": {}, "status": {"authenticated": True, "user": user}}, 201)


def unauthenticated_response() -> HttpResponse:
    return json_response({"metadata": {}, "spec": {}, "status": {"authenticated": False}}, 201)


def access_response(yes: bool = True) -> HttpResponse:
    return json_response({"metadata": {}, "spec": {}, "status": {"allowed": yes}}, 201)


def token_authorizer(answers: Sequence[HttpResponse | Exception]) -> tuple[TokenAuthorizer, ScriptedTransport]:
    transport = ScriptedTransport(answers)
    return TokenAuthorizer(Client(transport), virtual_runtime()), transport


def sent_requests(transport: ScriptedTransport) -> list[tuple[str, Any]]:
    return [(r.path, json.loads(r.body or b"{}")["spec"]) for _, r in transport.requests]


@virtual_time
async def test_authorizer_sends_token_and_access_review() -> None:
    authorizer, transport = token_authorizer([authenticated_response(), access_response()])
    assert await authorizer.authorize(BEARER, "/metrics") == TokenReviewResult(200)
    (first, token), (second, access) = sent_requests(transport)
    assert first == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert token == {"token": "prometheus-token"}
    assert second == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert access == {
        "user": "prometheus",
        "uid": "u-1",
        "groups": ["monitors"],
        "extra": {"scope": ["all"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic cm9vdDo=", "Bearer " + "x" * 20_000])
def test_authorizer_without_token_sends_no_request(header: str) -> None:
    @virtual_time
    async def scenario() -> None:
        authorizer, transport = token_authorizer([])
        assert (await authorizer.authorize(header, "/metrics")).status == 401
        assert transport.requests == []

    scenario()


@virtual_time
async def test_authorizer_caches_permission_for_a_minute_by_path() -> None:
    authorizer, transport = token_authorizer(
        [
            authenticated_response(),
            access_response(),
            authenticated_response(),
            access_response(False),
            authenticated_response(),
            access_response(),
        ]
    )
    for _ in range(50):
        assert (await authorizer.authorize(BEARER, "/metrics")).status == 200
        await asyncio.sleep(1)
    assert len(transport.requests) == 2
    assert (await authorizer.authorize(BEARER, "/debug")).status == 403
    await asyncio.sleep(15)
    assert (await authorizer.authorize(BEARER, "/metrics")).status == 200
    assert len(transport.requests) == 6


@virtual_time
async def test_authorizer_caches_denial_for_ten_seconds() -> None:
    authorizer, transport = token_authorizer(
        [
            unauthenticated_response(),
            authenticated_response(),
            access_response(False),
            authenticated_response(),
            access_response(),
        ]
    )
    assert (await authorizer.authorize(BEARER, "/metrics")).status == 401
    assert (await authorizer.authorize(BEARER, "/metrics")).status == 401
    await asyncio.sleep(11)
    assert await authorizer.authorize(BEARER, "/metrics") == TokenReviewResult(
        403, "user 'prometheus' is not allowed to get /metrics"
    )
    assert await authorizer.authorize(BEARER, "/metrics") == TokenReviewResult(
        403, "user 'prometheus' is not allowed to get /metrics"
    )
    await asyncio.sleep(11)
    assert (await authorizer.authorize(BEARER, "/metrics")).status == 200
    assert len(transport.requests) == 5


@virtual_time
async def test_authorizer_unreachable_server_denies_uncached() -> None:
    authorizer, _ = token_authorizer(
        [ConnectionFailed("scripted"), error_response(403, "Forbidden"), authenticated_response(), access_response()]
    )
    assert (await authorizer.authorize(BEARER, "/metrics")).status == 500
    assert (await authorizer.authorize(BEARER, "/metrics")).status == 500
    assert (await authorizer.authorize(BEARER, "/metrics")).status == 200


@pytest.fixture
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def write_pair(directory: Path, authority: CertificateAuthority, name: str = "first") -> None:
    certificate, key = authority.issue(name, names=["localhost"])
    (directory / "tls.crt").write_bytes(certificate)
    (directory / "tls.key").write_bytes(key)


def trusting_ssl_context(authority: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def scrape(port: int, authority: CertificateAuthority, header: str = "") -> tuple[int, str, str]:
    """Return the status, the body and the requested authentication."""
    headers = {"Authorization": header} if header else {}
    url = f"https://localhost:{port}/metrics"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=trusting_ssl_context(authority), headers=headers) as response,
    ):
        return response.status, await response.text(), response.headers.get("WWW-Authenticate", "")


async def served_common_name(port: int, authority: CertificateAuthority) -> str:
    """Return the common name of the certificate for a new connection."""
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trusting_ssl_context(authority), server_hostname="localhost"
    )
    try:
        return writer.get_extra_info("peercert")["subject"][0][0][1]
    finally:
        writer.close()
        await writer.wait_closed()


async def test_secure_metrics_serve_allowed_users_and_reload_cert(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    write_pair(tmp_path, authority)
    transport = ScriptedTransport(
        [
            authenticated_response(),
            access_response(),
            unauthenticated_response(),
            authenticated_response("unprivileged"),
            access_response(False),
        ]
    )
    server = ProbeServer(
        "127.0.0.1:0",
        metrics=CollectorRegistry(),
        certificate=CertWatcher(str(tmp_path)),
        authorizer=TokenAuthorizer(Client(transport), Runtime()),
    )
    await server.start()
    try:
        assert await scrape(server.port, authority) == (401, "a bearer token is required\n", "Bearer")
        assert (await scrape(server.port, authority, BEARER))[0] == 200
        assert (await scrape(server.port, authority, "Bearer stolen"))[:2] == (401, "the token is not valid\n")
        assert (await scrape(server.port, authority, "Bearer unprivileged"))[:2] == (
            403,
            "user 'unprivileged' is not allowed to get /metrics\n",
        )
        assert await served_common_name(server.port, authority) == "first"
        write_pair(tmp_path, authority, "second")
        await scrape(server.port, authority, BEARER)
        assert await served_common_name(server.port, authority) == "second"
        (tmp_path / "tls.key").write_text("half a k")
        with capture_logs() as logs:
            await scrape(server.port, authority, BEARER)
        assert [entry["event"] for entry in logs] == ["failed to reload certificate"]
        assert await served_common_name(server.port, authority) == "second"
    finally:
        await server.stop()


async def test_secure_metrics_missing_option_raises(tmp_path: Path) -> None:
    world = ControllerEnv(Runtime())
    for path, message in (("", "--metrics-cert-path"), (str(tmp_path), "tls.crt: No such file")):
        options = ManagerOptions(metrics_bind_address=":0", metrics_secure=True, metrics_cert_path=path)
        manager = Manager(world.server, options)
        with pytest.raises(ConfigurationError, match=message):
            await manager.run()


def test_secure_metrics_permissions_are_declared() -> None:
    world = ControllerEnv()
    assert Manager(world.server).permissions == ()
    needed = Manager(world.server, ManagerOptions(metrics_secure=True)).permissions
    assert [(p.resource.plural, p.verbs) for p in needed] == [
        ("tokenreviews", ("create",)),
        ("subjectaccessreviews", ("create",)),
    ]


async def test_replaced_certificate_reaches_clients_of_a_new_ca(tmp_path: Path) -> None:
    """Clients that reject the previous certificate send no request."""
    previous, current = CertificateAuthority(), CertificateAuthority()

    def write_pair(authority: CertificateAuthority) -> None:
        certificate, key = authority.issue("localhost", names=["localhost"])
        (tmp_path / "tls.crt").write_bytes(certificate)
        (tmp_path / "tls.key").write_bytes(key)

    write_pair(previous)
    authorizer, _ = token_authorizer([])
    server = ProbeServer(
        "127.0.0.1:0", metrics=CollectorRegistry(), certificate=CertWatcher(str(tmp_path)), authorizer=authorizer
    )
    await server.start()
    write_pair(current)
    trusted = ssl.create_default_context(cadata=current.certificate.decode())
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://localhost:{server.port}/metrics", ssl=trusted) as response,
        ):
            assert response.status == 401
    finally:
        await server.stop()
