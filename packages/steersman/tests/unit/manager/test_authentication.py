"""Who may read the metrics: what is asked of the API server, what is remembered, and what the endpoint answers."""

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

from framework_support.certificates import Authority
from framework_support.scripted_transport import ScriptedTransport, answer, refusal
from framework_support.world import World
from steersman.client import Client, HttpResponse
from steersman.errors import ConfigurationError, ConnectionFailed
from steersman.manager import Manager, ManagerOptions, ProbeServer
from steersman.manager.authentication import TokenAuthorizer, Verdict
from steersman.manager.serving_certificate import ServingCertificate
from steersman.observability.runtime import Runtime
from steersman_testing import virtual_runtime, virtual_time

BEARER = "Bearer prometheus-token"


def known(username: str = "prometheus") -> HttpResponse:
    user = {"username": username, "uid": "u-1", "groups": ["monitors"], "extra": {"scope": ["all"]}}
    return answer({"metadata": {}, "spec": {}, "status": {"authenticated": True, "user": user}}, 201)


def unknown() -> HttpResponse:
    return answer({"metadata": {}, "spec": {}, "status": {"authenticated": False}}, 201)


def allowed(yes: bool = True) -> HttpResponse:
    return answer({"metadata": {}, "spec": {}, "status": {"allowed": yes}}, 201)


def authorizer(answers: Sequence[HttpResponse | Exception]) -> tuple[TokenAuthorizer, ScriptedTransport]:
    transport = ScriptedTransport(answers)
    return TokenAuthorizer(Client(transport), virtual_runtime()), transport


def sent(transport: ScriptedTransport) -> list[tuple[str, Any]]:
    return [(r.path, json.loads(r.body or b"{}")["spec"]) for _, r in transport.requests]


@virtual_time
async def test_the_api_server_is_asked_who_it_is_and_whether_they_may() -> None:
    asked, transport = authorizer([known(), allowed()])
    assert await asked.decide(BEARER, "/metrics") == Verdict(200)
    (first, token), (second, access) = sent(transport)
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
def test_without_a_token_nobody_is_asked(header: str) -> None:
    @virtual_time
    async def scenario() -> None:
        asked, transport = authorizer([])
        assert (await asked.decide(header, "/metrics")).status == 401
        assert transport.requests == []

    scenario()


@virtual_time
async def test_a_yes_is_remembered_for_a_minute_by_path() -> None:
    asked, transport = authorizer([known(), allowed(), known(), allowed(False), known(), allowed()])
    for _ in range(50):
        assert (await asked.decide(BEARER, "/metrics")).status == 200
        await asyncio.sleep(1)
    assert len(transport.requests) == 2
    assert (await asked.decide(BEARER, "/debug")).status == 403
    await asyncio.sleep(15)
    assert (await asked.decide(BEARER, "/metrics")).status == 200
    assert len(transport.requests) == 6


@virtual_time
async def test_a_no_is_remembered_for_ten_seconds() -> None:
    asked, transport = authorizer([unknown(), known(), allowed(False), known(), allowed()])
    assert (await asked.decide(BEARER, "/metrics")).status == 401
    assert (await asked.decide(BEARER, "/metrics")).status == 401
    await asyncio.sleep(11)
    assert await asked.decide(BEARER, "/metrics") == Verdict(403, "prometheus may not get /metrics")
    assert await asked.decide(BEARER, "/metrics") == Verdict(403, "prometheus may not get /metrics")
    await asyncio.sleep(11)
    assert (await asked.decide(BEARER, "/metrics")).status == 200
    assert len(transport.requests) == 5


@virtual_time
async def test_where_the_api_server_does_not_answer_nobody_is_let_in_and_nothing_remembered() -> None:
    asked, _ = authorizer([ConnectionFailed("scripted"), refusal(403, "Forbidden"), known(), allowed()])
    assert (await asked.decide(BEARER, "/metrics")).status == 500
    assert (await asked.decide(BEARER, "/metrics")).status == 500
    assert (await asked.decide(BEARER, "/metrics")).status == 200


@pytest.fixture
def authority() -> Authority:
    return Authority()


def write_pair(directory: Path, authority: Authority, name: str = "first") -> None:
    certificate, key = authority.issue(name, names=["localhost"])
    (directory / "tls.crt").write_bytes(certificate)
    (directory / "tls.key").write_bytes(key)


def trusting(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def scrape(port: int, authority: Authority, header: str = "") -> tuple[int, str, str]:
    """Status, body, and what the client is asked for."""
    headers = {"Authorization": header} if header else {}
    url = f"https://localhost:{port}/metrics"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=trusting(authority), headers=headers) as response,
    ):
        return response.status, await response.text(), response.headers.get("WWW-Authenticate", "")


async def served_as(port: int, authority: Authority) -> str:
    """The name in the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost")
    try:
        return writer.get_extra_info("peercert")["subject"][0][0][1]
    finally:
        writer.close()
        await writer.wait_closed()


async def test_the_endpoint_answers_by_tls_to_whom_is_allowed_and_follows_a_renewed_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    write_pair(tmp_path, authority)
    transport = ScriptedTransport([known(), allowed(), unknown(), known("clerk"), allowed(False)])
    server = ProbeServer(
        "127.0.0.1:0",
        metrics=CollectorRegistry(),
        certificate=ServingCertificate(str(tmp_path)),
        authorizer=TokenAuthorizer(Client(transport), Runtime()),
    )
    await server.start()
    try:
        assert await scrape(server.port, authority) == (401, "a bearer token is required\n", "Bearer")
        assert (await scrape(server.port, authority, BEARER))[0] == 200
        assert (await scrape(server.port, authority, "Bearer stolen"))[:2] == (401, "the token is not valid\n")
        assert (await scrape(server.port, authority, "Bearer clerk"))[:2] == (403, "clerk may not get /metrics\n")
        assert await served_as(server.port, authority) == "first"
        write_pair(tmp_path, authority, "second")
        await scrape(server.port, authority, BEARER)
        assert await served_as(server.port, authority) == "second"
        (tmp_path / "tls.key").write_text("half a k")
        with capture_logs() as logs:
            await scrape(server.port, authority, BEARER)
        assert [entry["event"] for entry in logs] == ["certificate not read again"]
        assert await served_as(server.port, authority) == "second"
    finally:
        await server.stop()


async def test_a_manager_says_what_is_missing_for_secure_metrics(tmp_path: Path) -> None:
    world = World(Runtime())
    for path, message in (("", "--metrics-cert-path"), (str(tmp_path), "tls.crt: No such file")):
        options = ManagerOptions(metrics_bind_address=":0", metrics_secure=True, metrics_cert_path=path)
        manager = Manager(world.server, options)
        with pytest.raises(ConfigurationError, match=message):
            await manager.run()


def test_what_secure_metrics_need_is_among_the_permissions() -> None:
    world = World()
    assert Manager(world.server).permissions == ()
    needed = Manager(world.server, ManagerOptions(metrics_secure=True)).permissions
    assert [(p.resource.plural, p.verbs) for p in needed] == [
        ("tokenreviews", ("create",)),
        ("subjectaccessreviews", ("create",)),
    ]
