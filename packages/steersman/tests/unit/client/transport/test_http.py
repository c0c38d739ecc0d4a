"""HTTP transport on real sockets, with a faulty server on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable
from typing import Any

import pytest
from aiohttp import web

from framework_support.loopback_server import get, open_transport, running_server, transport_to
from steersman.client import ClusterConfig, HttpRequest, HttpResponse, HttpTransport
from steersman.client.config import Impersonation
from steersman.client.credentials import StaticToken
from steersman.errors import ConfigurationError, ConnectionFailed, LeadershipLost


async def test_request_has_query_headers_and_body() -> None:
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
    async with transport_to(handler, credentials=StaticToken("s3cret")) as transport:
        response = await transport.request(request)
    assert (response.status, json.loads(response.body)) == (201, {"ok": True})
    assert seen[0].raw_path.startswith("/api/v1/namespaces/a/pods/b%3Fc?")
    assert dict(seen[0].query) == {"fieldManager": "a&b+c", "labelSelector": "x in (y,z)"}
    assert seen[0].headers["Authorization"] == "Bearer s3cret"
    assert seen[0].headers["Content-Type"] == "application/apply-patch+yaml"
    assert bodies == [b"{}"]


async def test_unacknowledged_bytes_are_discarded_on_close() -> None:
    """A late write of the previous leader must not arrive."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        async with open_transport(ClusterConfig(server=f"http://127.0.0.1:{listener.getsockname()[1]}")) as transport:
            writing = asyncio.create_task(transport.request(write(b"x" * 2**24)))
            reader, _ = await loop.sock_accept(listener)
            assert await loop.sock_recv(reader, 1) == b"P"
        with reader, pytest.raises(ConnectionResetError):
            while await loop.sock_recv(reader, 2**20):
                pass
        with pytest.raises(ConnectionFailed):
            await writing


def write(body: bytes) -> HttpRequest:
    return HttpRequest(method="POST", path="/api/v1/namespaces/a/pods", body=body)


async def test_base_path_is_kept_and_redirects_are_returned() -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        assert request.path == "/k8s/clusters/c-1/api/v1/pods"
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with (
        running_server(handler) as port,
        open_transport(ClusterConfig(server=f"http://127.0.0.1:{port}/k8s/clusters/c-1")) as transport,
    ):
        assert (await transport.request(get())).status == 307


async def test_connection_refused_raises_connection_failed() -> None:
    async with running_server(lambda _: asyncio.sleep(0, web.Response())) as port:
        closed = port
    async with open_transport(ClusterConfig(server=f"http://127.0.0.1:{closed}")) as transport:
        with pytest.raises(ConnectionFailed, match=rf"GET http://127.0.0.1:{closed}/api/v1/pods: "):
            await transport.request(get())
        with pytest.raises(ConnectionFailed):
            async with transport.stream(get()):
                raise AssertionError("must not open")


async def test_request_timeout_raises_connection_failed() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with transport_to(handler) as transport:
        with pytest.raises(ConnectionFailed, match=r"GET .*: timed out"):
            await transport.request(get(timeout=0.05))


async def test_caller_timeout_raises_timeout_error() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with transport_to(handler) as transport:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await transport.request(get())


async def test_request_sends_user_agent_and_impersonation() -> None:
    seen: list[web.BaseRequest] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response()

    who = Impersonation(user="jané", uid="7", groups=("a", "b c"), extra={"example.com/scopes": ("view", "edit")})
    async with transport_to(handler, impersonate=who) as transport:
        await transport.request(get(accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"))
    headers = seen[0].headers
    assert headers["Host"] == seen[0].host
    assert headers["User-Agent"].startswith("steersman/")
    assert headers["Accept"] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    # Go sends raw bytes. The server of aiohttp decodes them as UTF-8.
    assert headers["Impersonate-User"] == "jané"
    assert headers["Impersonate-Uid"] == "7"
    assert headers.getall("Impersonate-Group") == ["a", "b c"]
    assert headers.getall("Impersonate-Extra-example.com%2Fscopes") == ["view", "edit"]


@pytest.mark.parametrize(
    "unfit",
    [
        {"path": "/api/v1/pods\r\nX-Evil: 1"},
        {"path": "/api/v1/pods HTTP/1.1"},
        {"path": "/api/v1/pöds"},
        {"path": "/", "accept": "a\r\nX-Evil: 1"},
    ],
)
async def test_no_request_smuggles_another(unfit: dict[str, Any]) -> None:
    seen: list[web.BaseRequest] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response()

    async with transport_to(handler) as transport:
        with pytest.raises(ValueError, match=r"percent-encoded|control characters"):
            await transport.request(HttpRequest(method="GET", **unfit))
        assert seen == []
        await transport.request(get(query={"labelSelector": "a\r\nX-Evil: 1"}))
    assert seen[0].query["labelSelector"] == "a\r\nX-Evil: 1"


def test_header_injection_in_user_name_is_rejected() -> None:
    config = ClusterConfig(server="http://127.0.0.1", impersonate=Impersonation(user="a\r\nX-Evil: 1"))
    with pytest.raises(ConfigurationError, match="Impersonate-User"):
        HttpTransport(config)


@pytest.mark.parametrize(("disabled", "encoding"), [(False, "gzip"), (True, None), (None, None)])
async def test_compression(disabled: bool | None, encoding: str | None) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        assert request.headers.get("Accept-Encoding") == encoding
        response = web.Response(body=b"x" * 100_000)
        if encoding:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async with transport_to(handler, disable_compression=disabled) as transport:
        assert (await transport.request(get())).body == b"x" * 100_000


async def test_before_send_runs_last() -> None:
    arrived: list[str] = []
    connections: set[object] = set()

    async def handler(request: web.BaseRequest) -> web.Response:
        arrived.append(request.method)
        connections.add(request.transport)
        return web.Response()

    calls: list[int] = []

    def guard() -> None:
        calls.append(len(arrived))
        if len(calls) == 2:
            raise LeadershipLost("too late")

    put = HttpRequest(method="PUT", path="/api/v1/pods/a", body=b"{}", before_send=guard)
    async with transport_to(handler) as transport:
        await transport.request(put)
        with pytest.raises(LeadershipLost, match="too late"):
            await transport.request(put)
        await transport.request(put)
    assert calls == [0, 1, 1]
    assert arrived == ["PUT", "PUT"]
    assert len(connections) == 1


@pytest.mark.parametrize("error", [TimeoutError, OSError, KeyError])
async def test_before_send_error_is_raised(error: type[Exception]) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response()

    def guard() -> None:
        raise error("mine")

    async with transport_to(handler) as transport:
        with pytest.raises(error, match="mine"):
            await transport.request(get(before_send=guard))
        with pytest.raises(error, match="mine"):
            async with transport.stream(get(before_send=guard)):
                raise AssertionError("must not open")


async def test_before_send_runs_after_waiting_for_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.client.transport.http._MAX_CONNECTIONS", 1)
    finish, busy, arrived = asyncio.Event(), asyncio.Event(), list[str]()

    async def handler(request: web.BaseRequest) -> web.Response:
        arrived.append(request.path)
        busy.set()
        await finish.wait()
        return web.Response()

    def guard() -> None:
        assert finish.is_set()
        raise LeadershipLost("too late")

    async with transport_to(handler) as transport, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(transport.request(get("/first")))
        await busy.wait()
        second = tasks.create_task(_outcome(transport.request(get("/second", before_send=guard))))
        finish.set()
        assert isinstance(await second, LeadershipLost)
        assert (await first).status == 200
    assert arrived == ["/first"]


async def _outcome(request: Awaitable[HttpResponse]) -> Exception | HttpResponse:
    try:
        return await request
    except Exception as error:
        return error


async def test_timeout_before_sending_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.client.transport.http._MAX_CONNECTIONS", 1)
    busy = asyncio.Event()

    async def handler(_: web.BaseRequest) -> web.Response:
        busy.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with transport_to(handler) as transport, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(_outcome(transport.request(get(timeout=30))))
        await busy.wait()
        second = await _outcome(transport.request(get(timeout=0.05)))
        assert isinstance(second, ConnectionFailed)
        assert not second.sent
        transport.abort()
        broken = await first
        assert isinstance(broken, ConnectionFailed)
        assert broken.sent


async def test_abort_ends_requests_and_rejects_new_ones() -> None:
    busy = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/stream":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"one\n")
            await asyncio.Event().wait()
        busy.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with transport_to(handler) as transport, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_outcome(transport.request(get(timeout=30)))) for _ in range(3)]
        await busy.wait()
        async with transport.stream(get("/stream", timeout=30)) as stream:
            assert await anext(stream) == b"one"
            transport.abort()
            with pytest.raises(ConnectionFailed):
                await anext(stream)
        assert [type(await task) for task in running] == [ConnectionFailed] * 3
        late = await _outcome(transport.request(get()))
        assert isinstance(late, ConnectionFailed)
        assert not late.sent


async def test_transport_clone_has_own_connections() -> None:
    peers: list[object] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response()

    async with transport_to(handler) as transport:
        await transport.request(get())
        clone = transport.clone()
        # The leader elector has a separate thread with its own event loop.
        await asyncio.to_thread(asyncio.run, _request_and_close(clone))
        await transport.request(get())
    assert peers[0] == peers[2] != peers[1]


async def _request_and_close(transport: HttpTransport) -> None:
    assert (await transport.request(get())).status == 200
    await transport.close()


async def test_read_on_closed_pooled_connection_is_retried() -> None:
    """The server closes the connection without a response to the second request."""
    served: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answered in range(2):
            await reader.readuntil(b"\r\n\r\n")
            served.append(answered)
            if answered:
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, open_transport(ClusterConfig(server=f"http://127.0.0.1:{_port(server)}")) as transport:
        assert (await transport.request(get())).body == b"ok"
        assert (await transport.request(get())).body == b"ok"
        # A write is not repeated, because the first attempt may have succeeded.
        with pytest.raises(ConnectionFailed) as caught:
            await transport.request(HttpRequest(method="PUT", path="/x", body=b"{}"))
        assert caught.value.sent
        await transport.close()
    assert served == [0, 1, 0, 1]


def _port(server: asyncio.Server) -> int:
    return server.sockets[0].getsockname()[1]


async def test_informational_responses_are_skipped() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, open_transport(ClusterConfig(server=f"http://127.0.0.1:{_port(server)}")) as transport:
        response = await transport.request(get())
        assert (response.status, response.body) == (200, b"ok")
        await transport.close()


async def test_non_http_response_raises_connection_failed() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, open_transport(ClusterConfig(server=f"http://127.0.0.1:{_port(server)}")) as transport:
        with pytest.raises(ConnectionFailed, match="GET http"):
            await transport.request(get())


async def test_early_response_does_not_reuse_connection() -> None:
    """The server responds without reading the body.

    The rest of the body must not precede the next request.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status = b"413 Too Large" if head.startswith(b"PUT") else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, open_transport(ClusterConfig(server=f"http://127.0.0.1:{_port(server)}")) as transport:
        large = HttpRequest(method="PUT", path="/x", body=b"x" * 50_000_000)
        assert (await transport.request(large)).status == 413
        assert (await transport.request(get(timeout=10))).status == 200
        await transport.close()


def test_bodies_stay_out_of_repr() -> None:
    assert "s3cret" not in repr(HttpRequest(method="POST", path="/x", body=b"s3cret"))
    assert "s3cret" not in repr(HttpResponse(200, b"s3cret"))
