"""The transport on real sockets, against a server on loopback that misbehaves in every way that matters."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from certificates import Authority
from steersman.client import ClusterConfig, HttpRequest, HttpResponse, HttpTransport
from steersman.client.http import error_from_body, ssl_context, watchful_socket
from steersman.errors import (
    AlreadyExists,
    ApiError,
    ConfigurationError,
    Conflict,
    ConnectionFailed,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    NotFound,
    ServerError,
    ServerTimeout,
    ServiceUnavailable,
    SteersmanError,
    TooManyRequests,
    Unauthorized,
)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int, None]:
    """Answers every request on loopback with ``handler``; gives the port."""
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def opened(config: ClusterConfig) -> AsyncGenerator[HttpTransport, None]:
    """The bare transport, which tries everything once."""
    transport = HttpTransport(config)
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def connected(handler: Handler, **config: Any) -> AsyncGenerator[HttpTransport, None]:
    async with (
        serving(handler) as port,
        opened(ClusterConfig(server=f"http://127.0.0.1:{port}", **config)) as transport,
    ):
        yield transport


def get(path: str = "/api/v1/pods", **fields: Any) -> HttpRequest:
    return HttpRequest(method="GET", path=path, **fields)


async def test_a_request_arrives_as_it_was_meant() -> None:
    seen: list[web.BaseRequest] = []
    bodies: list[bytes] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        bodies.append(await request.read())
        return web.json_response({"ok": True}, status=201)

    request = HttpRequest(
        method="PATCH",
        path="/api/v1/namespaces/a/pods/b%3Fc",
        query={"fieldManager": "a&b+c", "labelSelector": "x in (y,z)"},
        body=b"{}",
        content_type="application/apply-patch+yaml",
    )
    async with connected(handler, token="s3cret") as transport:
        response = await transport.request(request)
    assert (response.status, json.loads(response.body)) == (201, {"ok": True})
    assert seen[0].raw_path.startswith("/api/v1/namespaces/a/pods/b%3Fc?")
    assert dict(seen[0].query) == {"fieldManager": "a&b+c", "labelSelector": "x in (y,z)"}
    assert seen[0].headers["Authorization"] == "Bearer s3cret"
    assert seen[0].headers["Content-Type"] == "application/apply-patch+yaml"
    assert bodies == [b"{}"]


def test_sockets_notice_a_peer_that_is_gone() -> None:
    with watchful_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if sys.platform == "linux":
            patience = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            patience += opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) * 3
            assert patience <= 30
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_a_base_path_is_kept_and_redirects_are_answers() -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        assert request.path == "/k8s/clusters/c-1/api/v1/pods"
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with (
        serving(handler) as port,
        opened(ClusterConfig(server=f"http://127.0.0.1:{port}/k8s/clusters/c-1")) as transport,
    ):
        assert (await transport.request(get())).status == 307


@pytest.mark.parametrize(("header", "seconds"), [("3", 3.0), ("0", 0.0), ("tomorrow", None), ("", None), ("²", None)])
async def test_retry_after(header: str, seconds: float | None) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": header})

    async with connected(handler) as transport:
        assert (await transport.request(get())).retry_after == seconds


async def test_nobody_listens() -> None:
    async with serving(lambda _: asyncio.sleep(0, web.Response())) as port:
        closed = port
    async with opened(ClusterConfig(server=f"http://127.0.0.1:{closed}")) as transport:
        with pytest.raises(ConnectionFailed, match=rf"GET http://127.0.0.1:{closed}/api/v1/pods: "):
            await transport.request(get())
        with pytest.raises(ConnectionFailed):
            async with transport.stream(get()):
                raise AssertionError("must not open")


async def test_an_answer_that_does_not_come_in_time() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with connected(handler) as transport:
        with pytest.raises(ConnectionFailed, match=r"GET .*: timed out"):
            await transport.request(get(timeout=0.05))


async def test_the_callers_own_time_limit_is_not_taken_for_the_servers() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with connected(handler) as transport:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await transport.request(get())


async def read(transport: HttpTransport, timeout: float = 5.0) -> list[bytes]:
    async with transport.stream(get(timeout=timeout)) as lines:
        return [line async for line in lines]


def streaming(*chunks: bytes, then: Callable[[web.BaseRequest], Awaitable[None]] | None = None) -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(request)
        return response

    return handler


async def test_lines_arrive_whole_however_they_are_cut() -> None:
    large = b"x" * 300_000
    async with connected(streaming(b"on", b"e\ntwo\n\nth", b"ree\n", large, large, b"\nlast\n")) as transport:
        assert await read(transport) == [b"one", b"two", b"three", large + large, b"last"]


async def test_lines_arrive_before_the_stream_ends() -> None:
    finish = asyncio.Event()

    async def wait(_: web.BaseRequest) -> None:
        await finish.wait()

    async with (
        connected(streaming(b"one\ntwo\n", then=wait)) as transport,
        transport.stream(get(timeout=5)) as lines,
    ):
        assert await anext(lines) == b"one"
        assert await anext(lines) == b"two"
        finish.set()
        assert [line async for line in lines] == []


async def test_a_connection_that_breaks_in_the_middle_of_a_line() -> None:
    async def cut(request: web.BaseRequest) -> None:
        assert request.transport is not None
        request.transport.abort()

    async with connected(streaming(b"whole\nha", then=cut)) as transport:
        with pytest.raises(ConnectionFailed, match=r"GET .*pods: "):
            await read(transport)


async def test_a_stream_that_falls_silent() -> None:
    async def hang(_: web.BaseRequest) -> None:
        await asyncio.Event().wait()

    async with connected(streaming(b"one\n", then=hang)) as transport:
        with pytest.raises(ConnectionFailed, match=r"GET .*pods: "):
            await read(transport, timeout=0.1)


async def test_a_refused_stream_is_an_api_error() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.json_response(
            {"kind": "Status", "reason": "Expired", "code": 410, "message": "too old"},
            status=410,
            headers={"Retry-After": "2"},
        )

    async with connected(handler) as transport:
        with pytest.raises(Expired, match="too old") as caught:
            await read(transport)
    assert caught.value.retry_after == 2.0


async def test_leaving_a_stream_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def wait(_: web.BaseRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with connected(streaming(b"one\n", then=wait)) as transport:
        async with transport.stream(get(timeout=5)) as lines:
            assert await anext(lines) == b"one"
        async with asyncio.timeout(5):
            await closed.wait()


async def echo_token(request: web.BaseRequest) -> web.Response:
    return web.Response(text=request.headers.get("Authorization", "none"))


async def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    async with connected(echo_token, token_file=file, token="old") as transport:
        assert (await transport.request(get())).body == b"Bearer one"
        file.write_text("two\n")
        assert (await transport.request(get())).body == b"Bearer one"
        monkeypatch.setattr("steersman.client.http._TOKEN_MAX_AGE", -1.0)
        assert (await transport.request(get())).body == b"Bearer two"
        file.unlink()
        assert (await transport.request(get())).body == b"Bearer two"


async def test_a_token_file_that_was_never_there_is_named(tmp_path: Path) -> None:
    async with connected(echo_token, token_file=tmp_path / "token") as transport:
        with pytest.raises(ConfigurationError, match=rf"cannot read the token file {tmp_path / 'token'}"):
            await transport.request(get())


async def test_certificates_on_both_sides(tmp_path: Path) -> None:
    authority = Authority()
    server = ssl_server(authority, tmp_path)

    async def who(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        subject = dict(pair[0] for pair in request.transport.get_extra_info("peercert")["subject"])
        return web.Response(text=subject["commonName"])

    certificate, key = authority.issue("jane")
    async with serving(who, server) as port:
        config = ClusterConfig(
            server=f"https://127.0.0.1:{port}",
            ca=authority.certificate,
            client_certificate=certificate,
            client_key=key,
            tls_server_name="kubernetes",
        )
        async with opened(config) as transport:
            assert (await transport.request(get())).body == b"jane"


async def test_a_server_that_another_authority_vouches_for_is_refused(tmp_path: Path) -> None:
    async with serving(echo_token, ssl_server(Authority(), tmp_path)) as port:
        config = ClusterConfig(server=f"https://127.0.0.1:{port}", ca=Authority().certificate, token="s3cret")
        async with opened(config) as transport:
            with pytest.raises(ConnectionFailed, match="certificate verify failed"):
                await transport.request(get())


def ssl_server(authority: Authority, directory: Path) -> ssl.SSLContext:
    certificate, key = authority.issue("kubernetes", names=["kubernetes"])
    (directory / "server.pem").write_bytes(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate.decode())
    context.load_cert_chain(directory / "server.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.mark.parametrize("broken", ["ca", "key", "mismatch", "encrypted"])
def test_broken_certificates_are_configuration_errors(broken: str) -> None:
    authority = Authority()
    certificate, key = authority.issue("jane")
    _, other = authority.issue("joe")
    garbage = b"-----BEGIN CERTIFICATE-----\nZ\n-----END CERTIFICATE-----\n"
    keys = {"key": garbage, "mismatch": other, "encrypted": authority.issue("jane", password=b"x")[1]}
    config = ClusterConfig(
        server="https://10.0.0.1",
        ca=garbage if broken == "ca" else authority.certificate,
        client_certificate=certificate,
        client_key=keys.get(broken, key),
    )
    with pytest.raises(ConfigurationError, match=r"TLS for https://10\.0\.0\.1"):
        ssl_context(config)


REASONS: list[tuple[int, str, type[ApiError]]] = [
    (400, "", ApiError),
    (401, "Unauthorized", Unauthorized),
    (403, "Forbidden", Forbidden),
    (404, "NotFound", NotFound),
    (409, "Conflict", Conflict),
    (409, "AlreadyExists", AlreadyExists),
    (409, "", Conflict),
    (410, "Gone", Expired),
    (418, "", ApiError),
    (422, "Invalid", Invalid),
    (429, "TooManyRequests", TooManyRequests),
    (500, "InternalError", InternalError),
    (500, "StoreReadError", InternalError),
    (502, "", ServerError),
    (503, "ServiceUnavailable", ServiceUnavailable),
    (504, "Timeout", ServerTimeout),
    (500, "ServerTimeout", ServerTimeout),
]


@pytest.mark.parametrize(("code", "reason", "kind"), REASONS)
def test_errors_by_reason_or_else_by_code(code: int, reason: str, kind: type[ApiError]) -> None:
    body = json.dumps({"kind": "Status", "reason": reason, "code": code, "message": "why"}).encode()
    error = error_from_body(code, body, None)
    assert isinstance(error, kind)
    assert isinstance(error, SteersmanError)
    assert (error.code, error.reason, str(error)) == (code, reason, "why")


def test_the_causes_name_the_fields() -> None:
    cause = {"field": "spec.replicas", "message": "must be positive", "reason": "FieldValueInvalid"}
    details = {"causes": [cause], "retryAfterSeconds": 5, "name": "x"}
    body = json.dumps({"reason": "Invalid", "code": 422, "message": "no", "details": details}).encode()
    error = error_from_body(422, body, None)
    assert [(c.field, c.reason) for c in error.causes] == [("spec.replicas", "FieldValueInvalid")]
    assert error.retry_after == 5
    assert error_from_body(422, body, 1.5).retry_after == 1.5
    assert error_from_body(422, b'{"details":{"causes":null}}', None).causes == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"upstream connect error", "upstream connect error"),
        (b'{"error": "no backend"}', '{"error": "no backend"}'),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'{"message": "\xff"}', '{"message": "\ufffd"}'),
        (b"", "HTTP 503"),
    ],
)
def test_proxies_answer_without_a_status(body: bytes, message: str) -> None:
    error = error_from_body(503, body, None)
    assert isinstance(error, ServiceUnavailable)
    assert (str(error), error.code) == (message, 503)


def test_bodies_stay_out_of_repr() -> None:
    assert "s3cret" not in repr(HttpRequest(method="POST", path="/x", body=b"s3cret"))
    assert "s3cret" not in repr(HttpResponse(200, b"s3cret"))
