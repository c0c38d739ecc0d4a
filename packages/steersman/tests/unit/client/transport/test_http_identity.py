"""Identity of a transport during rotations of tokens and certificates."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from framework_support.certificates import CertificateAuthority
from framework_support.loopback_server import (
    connect_proxy,
    echo_authorization,
    get,
    open_transport,
    running_server,
    transport_to,
)
from steersman.client import ClusterConfig, HttpRequest, HttpTransport
from steersman.client.credentials import (
    ClientCertificate,
    Credentials,
    Identity,
    StaticToken,
    TokenFile,
)
from steersman.client.transport.tls import create_ssl_context
from steersman.errors import ConfigurationError, ConnectionFailed, CredentialsFailed


class RotatingTokens(Credentials):
    """Returns the next token at first, after a rejection and after expiry."""

    def __init__(self, *tokens: str, valid_for: float = float("inf")) -> None:
        self._tokens = list(tokens)
        self._valid_for = valid_for
        self.loads = 0

    def load(self, rejected: Identity | None = None) -> Identity:
        self.loads += 1
        if self.loads > 1 and len(self._tokens) > 1:
            del self._tokens[0]
        return Identity(f"Bearer {self._tokens[0]}", valid_for=self._valid_for)


def require_token(*tokens: str) -> Any:
    async def handler(request: web.BaseRequest) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return web.Response(status=200 if token in tokens else 401, text=f"{token}\n")

    return handler


async def test_credentials_concurrent_requests_load_once() -> None:
    source = RotatingTokens("one")
    async with transport_to(echo_authorization, credentials=source) as transport:
        answers = await asyncio.gather(*(transport.request(get()) for _ in range(10)))
    assert {answer.body for answer in answers} == {b"Bearer one"}
    assert source.loads == 1


async def test_credentials_expired_are_reloaded() -> None:
    async with transport_to(echo_authorization, credentials=RotatingTokens("one", "two", valid_for=0)) as transport:
        assert (await transport.request(get())).body == b"Bearer one"
        assert (await transport.request(get())).body == b"Bearer two"


async def test_request_after_401_is_retried_with_new_identity() -> None:
    guarded: list[str] = []
    source = RotatingTokens("old", "new")
    async with transport_to(require_token("new"), credentials=source) as transport:
        answer = await transport.request(get(before_send=lambda: guarded.append("asked")))
        assert (answer.status, answer.body) == (200, b"new\n")
        assert (await transport.request(get())).status == 200
    assert source.loads == 2
    # ``before_send`` also runs before the second attempt.
    assert len(guarded) == 2


async def test_stream_after_401_is_retried_with_new_identity() -> None:
    async with (
        transport_to(require_token("new"), credentials=RotatingTokens("old", "new")) as transport,
        transport.stream(get()) as lines,
    ):
        assert [line async for line in lines] == [b"new"]


async def test_request_after_401_without_new_identity_returns_401() -> None:
    seen: list[web.BaseRequest] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(status=401, text="who are you?")

    async with transport_to(handler, credentials=StaticToken("old")) as transport:
        answer = await transport.request(get())
    assert (answer.status, answer.body) == (401, b"who are you?")
    assert len(seen) == 1


async def test_second_401_is_returned() -> None:
    async with transport_to(require_token("three"), credentials=RotatingTokens("one", "two", "three")) as transport:
        assert (await transport.request(get())).status == 401


async def test_token_file_is_reloaded_after_401(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    async with transport_to(require_token("old", "new"), credentials=TokenFile(file)) as transport:
        assert (await transport.request(get())).body == b"old\n"
        file.write_text("new")
        # The next reload is due in a minute.
        assert (await transport.request(get())).body == b"old\n"
    file.write_text("old")
    async with transport_to(require_token("new"), credentials=TokenFile(file)) as transport:
        assert (await transport.request(get())).status == 401
        file.write_text("new")
        assert (await transport.request(get())).body == b"new\n"


async def test_credential_errors_are_cached() -> None:
    class Failing(Credentials):
        loads = 0

        def load(self, rejected: Identity | None = None) -> Identity:
            self.loads += 1
            raise CredentialsFailed("plugin is not logged in")

    source, seen = Failing(), list[web.BaseRequest]()

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response()

    async with transport_to(handler, credentials=source) as transport:
        outcomes = await asyncio.gather(*(transport.request(get()) for _ in range(20)), return_exceptions=True)
        with pytest.raises(CredentialsFailed, match="not logged in"):
            async with transport.stream(get()):
                raise AssertionError("must not open")
    assert {str(outcome) for outcome in outcomes} == {"plugin is not logged in"}
    assert source.loads < 10
    assert seen == []


async def respond_common_name(request: web.BaseRequest) -> web.Response:
    """Respond with the common name of the client certificate."""
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert")
    subject = dict(pair[0] for pair in certificate["subject"]) if certificate else {}
    return web.Response(text=f"{subject.get('commonName', 'nobody')}\n")


def server_context(authority: CertificateAuthority, directory: Path, name: str = "kubernetes") -> ssl.SSLContext:
    certificate, key = authority.issue(name, names=[name])
    (directory / "server.pem").write_bytes(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate.decode())
    context.load_cert_chain(directory / "server.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@asynccontextmanager
async def connected_tls(
    tmp_path: Path, authority: CertificateAuthority, handler: Any = respond_common_name, **config: Any
) -> AsyncGenerator[HttpTransport, None]:
    fields: dict[str, Any] = {"ca": authority.certificate, "tls_server_name": "kubernetes", **config}
    async with (
        running_server(handler, server_context(authority, tmp_path)) as port,
        open_transport(ClusterConfig(server=f"https://127.0.0.1:{port}", **fields)) as transport,
    ):
        yield transport


async def test_certificates_on_both_sides(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    async with connected_tls(
        tmp_path, authority, credentials=ClientCertificate(*authority.issue("jane"))
    ) as transport:
        assert (await transport.request(get())).body == b"jane\n"


@pytest.mark.parametrize("comment", [b"", "# Autorité\n".encode(), b"# Autorit\xe9\n"])
async def test_intermediate_authority_alone_is_trusted(tmp_path: Path, comment: bytes) -> None:
    authority = CertificateAuthority(issuer=CertificateAuthority())
    fields = {"ca": comment + authority.certificate}
    async with connected_tls(tmp_path, authority, **fields) as transport:
        assert (await transport.request(get())).status == 200


def test_authority_without_ascii_characters_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="not valid PEM"):
        create_ssl_context(ClusterConfig(server="https://10.0.0.1", ca=b"\xff\xfe"), Identity())


async def test_server_of_other_authority_is_rejected(tmp_path: Path) -> None:
    fields = {"ca": CertificateAuthority().certificate, "credentials": StaticToken("s3cret")}
    async with connected_tls(tmp_path, CertificateAuthority(), **fields) as transport:
        with pytest.raises(ConnectionFailed, match="certificate verify failed") as caught:
            await transport.request(HttpRequest(method="PUT", path="/", body=b"{}"))
        assert not caught.value.sent


async def test_server_name_mismatch_is_rejected(tmp_path: Path) -> None:
    async with connected_tls(tmp_path, CertificateAuthority(), tls_server_name="elsewhere") as transport:
        with pytest.raises(ConnectionFailed, match="elsewhere"):
            await transport.request(get())


async def test_insecure_tls_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fields = {"ca": None, "insecure_skip_tls_verify": True, "tls_server_name": None}
    async with connected_tls(tmp_path, CertificateAuthority(), **fields) as transport:
        assert (await transport.request(get())).body == b"nobody\n"
    assert caplog.text.count("TLS verification is disabled") == 1


async def test_rotated_certificate_is_used_by_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = CertificateAuthority()
    files = (tmp_path / "tls.crt", tmp_path / "tls.key")
    finish, busy = asyncio.Event(), asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.Response:
        answer = await respond_common_name(request)
        if request.path == "/slow":
            busy.set()
            await finish.wait()
        return answer

    def rotate(name: str) -> None:
        for file, content in zip(files, authority.issue(name), strict=True):
            file.write_bytes(content)

    rotate("before")
    monkeypatch.setattr("steersman.client.credentials.FILE_RELOAD_INTERVAL_SECONDS", 0.0)
    async with (
        connected_tls(tmp_path, authority, handler, credentials=ClientCertificate(*files)) as transport,
        asyncio.TaskGroup() as tasks,
    ):
        slow = tasks.create_task(transport.request(get("/slow", timeout=30)))
        await busy.wait()
        rotate("after")
        assert (await transport.request(get())).body == b"after\n"
        finish.set()
        assert (await slow).body == b"before\n"


async def test_half_rotated_certificate_keeps_previous_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    authority = CertificateAuthority()
    old, new = authority.issue("before"), authority.issue("after")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(old[0])
    key.write_bytes(old[1])
    monkeypatch.setattr("steersman.client.credentials.FILE_RELOAD_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("steersman.client.transport.auth._RETRY_INTERVAL_SECONDS", 0.0)
    async with connected_tls(tmp_path, authority, credentials=ClientCertificate(certificate, key)) as transport:
        assert (await transport.request(get())).body == b"before\n"
        certificate.write_bytes(new[0])
        assert (await transport.request(get())).body == b"before\n"
        assert "keeping the previous ones" in caplog.text
        key.write_bytes(new[1])
        assert (await transport.request(get())).body == b"after\n"


async def test_rotated_ca_is_reloaded_after_tls_failure(tmp_path: Path) -> None:
    old, new = CertificateAuthority(), CertificateAuthority()
    (tmp_path / "ca.crt").write_bytes(old.certificate)
    config: dict[str, Any] = {"ca": tmp_path / "ca.crt", "tls_server_name": "kubernetes"}
    async with (
        running_server(respond_common_name, server_context(new, tmp_path)) as port,
        open_transport(ClusterConfig(server=f"https://127.0.0.1:{port}", **config)) as transport,
    ):
        with pytest.raises(ConnectionFailed, match="certificate verify failed"):
            await transport.request(get())
        (tmp_path / "ca.crt").write_bytes(new.certificate)
        # The 401 response triggers a reload, long before it is due.
        assert (await transport.request(get())).status == 200


@pytest.mark.parametrize("broken", ["ca", "key", "mismatch", "encrypted"])
def test_broken_certificates_are_configuration_errors(broken: str) -> None:
    authority = CertificateAuthority()
    certificate, key = authority.issue("jane")
    _, other = authority.issue("joe")
    garbage = b"-----BEGIN CERTIFICATE-----\nZ\n-----END CERTIFICATE-----\n"
    keys = {"key": garbage, "mismatch": other, "encrypted": authority.issue("jane", password=b"x")[1]}
    config = ClusterConfig(server="https://10.0.0.1", ca=garbage if broken == "ca" else authority.certificate)
    with pytest.raises(ConfigurationError, match=r"TLS for https://10\.0\.0\.1: .* not valid PEM"):
        create_ssl_context(config, Identity(None, certificate, keys.get(broken, key)))


def test_certificate_without_key_is_not_loaded() -> None:
    authority = CertificateAuthority()
    certificate, _ = authority.issue("jane")
    config = ClusterConfig(server="https://10.0.0.1", ca=authority.certificate)
    assert create_ssl_context(config, Identity(None, certificate, None)).check_hostname


def test_missing_ca_file_raises_on_construction(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"certificate authority: cannot read {tmp_path / 'gone'}"):
        HttpTransport(ClusterConfig(server="https://10.0.0.1", ca=tmp_path / "gone"))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.0 200 Connection established\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["plain", "an old one with a length", "chunked"],
)
async def test_connect_response_length_is_ignored(tmp_path: Path, answer: bytes) -> None:
    """The length of a CONNECT response is ignored. Source: RFC 9110, 9.3.6."""
    authority = CertificateAuthority()
    certificate = ClientCertificate(*authority.issue("jane"))
    async with connect_proxy(authorization="Basic bWU6czNjcmV0", answer=answer) as (port, targets):
        fields = {"credentials": certificate, "proxy_url": f"http://me:s3cret@127.0.0.1:{port}"}
        async with connected_tls(tmp_path, authority, **fields) as transport:
            assert (await transport.request(get())).body == b"jane\n"
            async with transport.stream(get()) as lines:
                assert [line async for line in lines] == [b"jane"]
        assert len(targets) == 2


async def test_proxy_rejection_raises_connection_failed(tmp_path: Path) -> None:
    async with connect_proxy(authorization="Basic other") as (port, targets):
        proxy_url = f"http://me:s3cret@127.0.0.1:{port}"
        async with connected_tls(tmp_path, CertificateAuthority(), proxy_url=proxy_url) as transport:
            with pytest.raises(ConnectionFailed, match="407") as caught:
                await transport.request(get())
    assert targets == []
    assert not caught.value.sent
    assert "s3cret" not in str(caught.value)


async def test_https_proxy_uses_system_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy is verified with the CAs of the system.

    The CA of the cluster is valid only for the cluster.
    """
    (tmp_path / "proxy").mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))
    public = CertificateAuthority()
    (tmp_path / "authorities.pem").write_bytes(public.certificate)
    tls = server_context(public, tmp_path / "proxy", "localhost")
    async with connect_proxy(tls=tls) as (port, targets):
        async with connected_tls(
            tmp_path, CertificateAuthority(), proxy_url=f"https://localhost:{port}"
        ) as transport:
            assert (await transport.request(get())).status == 200
        assert len(targets) == 1


async def test_unreachable_proxy_error_names_proxy(tmp_path: Path) -> None:
    async with running_server(respond_common_name) as port:
        pass
    async with connected_tls(tmp_path, CertificateAuthority(), proxy_url=f"http://127.0.0.1:{port}") as transport:
        with pytest.raises(ConnectionFailed, match=rf": cannot connect to the proxy 127\.0\.0\.1:{port}: Conn"):
            await transport.request(get())


async def test_plain_http_through_proxy() -> None:
    seen: list[web.BaseRequest] = []

    async def proxy(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(text="relayed")

    async with running_server(proxy) as port:
        config = ClusterConfig(server="http://api.example.com:8001/base", proxy_url=f"http://me:p@127.0.0.1:{port}")
        async with open_transport(config) as transport:
            for _ in range(2):
                assert (await transport.request(get("/api", query={"a": "b"}))).body == b"relayed"
    assert [r.raw_path for r in seen] == ["http://api.example.com:8001/base/api?a=b"] * 2
    assert seen[0].headers["Host"] == "api.example.com:8001"
    assert seen[0].headers["Proxy-Authorization"] == "Basic bWU6cA=="


@asynccontextmanager
async def full_default_pool() -> AsyncGenerator[None]:
    """Occupy all threads of the default pool during the block."""
    release = threading.Event()
    pool = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    busy = asyncio.create_task(asyncio.to_thread(release.wait))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        release.set()
        await busy


async def test_request_needs_no_thread_of_the_users_pool() -> None:
    source = RotatingTokens("one", "two", valid_for=0)
    async with full_default_pool(), running_server(echo_authorization) as port:
        config = ClusterConfig(server=f"http://localhost:{port}", credentials=source)
        async with open_transport(config) as transport, asyncio.timeout(20):
            assert (await transport.request(get())).body == b"Bearer one"
            assert (await transport.request(get())).body == b"Bearer two"


async def test_request_uses_previous_token_during_slow_refresh() -> None:
    release = threading.Event()

    class Slow(RotatingTokens):
        def load(self, rejected: Identity | None = None) -> Identity:
            if self.loads == 1:
                release.wait(20)
            return super().load(rejected)

    try:
        async with transport_to(echo_authorization, credentials=Slow("one", "two", valid_for=0)) as transport:
            for _ in range(3):
                assert (await transport.request(get())).body == b"Bearer one"
            release.set()
            async with asyncio.timeout(20):
                while (await transport.request(get())).body != b"Bearer two":
                    await asyncio.sleep(0.01)
    finally:
        release.set()
