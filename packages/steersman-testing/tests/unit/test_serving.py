"""HTTP server of the in-memory API server, on real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, HttpRequest, Transport, connect, load_config
from steersman.errors import ApiError, ConfigurationError, ConnectionFailed
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing import InMemoryApiServer, matching
from steersman_testing.apiserver.access.authorization import RBAC
from steersman_testing.serving import ApiEndpoint, serve
from steersman_testing.serving.endpoint import MAX_BODY_BYTES

CONFIG_MAPS_PATH = "/api/v1/namespaces/default/configmaps"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
HOOK = "https://hook.example.com/"
TIMEOUT_SECONDS = 60.0
"""Time limit of a response on a busy machine, in seconds."""

Values = str | tuple[str, ...]
"""One or several values of a header."""


class RawResponse(NamedTuple):
    """A response as received from the socket."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header_values(self, name: str) -> list[str]:
        """Return the values of a header."""
        return [v for n, v in self.headers if n.lower() == name]


class RawConnection:
    """A connection with access to its bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.version = reader, writer, "1.1"

    def write(self, method: str, path: str, body: bytes = b"", **headers: Values) -> None:
        """Send a request."""
        lines = [f"{method} {path} HTTP/{self.version}", "Host: test", f"Content-Length: {len(body)}"]
        for name, values in headers.items():
            each = (values,) if isinstance(values, str) else values
            lines += [f"{name.replace('_', '-')}: {value}" for value in each]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def read(self, *, head_only: bool = False) -> RawResponse:
        """Return the next response. With ``head_only``, return only its head."""
        lines = (await until(self.reader, b"\r\n\r\n")).decode().split("\r\n")
        headers = [(n, v) for n, _, v in (connection.partition(": ") for connection in lines[1:] if connection)]
        response = RawResponse(int(lines[0].split()[1]), headers, b"")
        if head_only or not response.header_values("content-length"):
            return response
        return response._replace(body=await self.reader.readexactly(int(response.header_values("content-length")[0])))

    async def request(self, method: str, path: str, body: bytes = b"", **headers: Values) -> RawResponse:
        """Send a request and return its response."""
        self.write(method, path, body, **headers)
        return await self.read()

    async def read_chunk(self) -> bytes:
        """Return the next chunk of a stream."""
        size = int(await until(self.reader, b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]


async def until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    return await asyncio.wait_for(reader.readuntil(end), TIMEOUT_SECONDS)


@asynccontextmanager
async def connected_client(server: InMemoryApiServer) -> AsyncGenerator[RawConnection]:
    async with serve(server) as endpoint, open_connection(endpoint) as connection:
        yield connection


@asynccontextmanager
async def open_connection(endpoint: ApiEndpoint) -> AsyncGenerator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(endpoint.url.rpartition(":")[2]))
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def connected_transport(endpoint: ApiEndpoint, home: Path) -> AsyncGenerator[Transport]:
    """Connect with the kubeconfig, like any client."""
    kubeconfig = home / "kubeconfig"
    kubeconfig.write_text(endpoint.kubeconfig)
    async with connect(load_config(kubeconfig), retry=None) as transport:
        yield transport


def config_map(name: str, **more: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}).encode()


@pytest.mark.parametrize("tls", [False, True])
async def test_socket_and_transport_share_objects(tls: bool, tmp_path: Path) -> None:
    server, key = InMemoryApiServer(), ObjectKey("default", "a")
    async with serve(server, tls=tls) as endpoint, connected_transport(endpoint, tmp_path) as transport:
        made = await Client(transport).create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
        assert server.read(ConfigMap, key) == made
        await Client(server).delete(ConfigMap, key)
        with pytest.raises(ApiError, match='configmaps "a" not found'):
            await Client(transport).get(ConfigMap, key)


async def test_untrusted_authority_is_rejected(tmp_path: Path) -> None:
    async with serve(InMemoryApiServer(), tls=True) as endpoint:
        stranger = ApiEndpoint(endpoint.url)
        async with connected_transport(stranger, tmp_path) as transport:
            with pytest.raises(ConnectionFailed, match="certificate"):
                await transport.request(HttpRequest(method="GET", path="/readyz"))


async def test_pipelined_requests_are_processed_in_order() -> None:
    async with connected_client(InMemoryApiServer()) as connection:
        # The server reads fewer pipelined requests at once.
        for number in range(40):
            connection.write("POST", CONFIG_MAPS_PATH, config_map(f"m{number}"))
        names = [(await connection.read()).json["metadata"]["name"] for _ in range(40)]
    assert names == [f"m{number}" for number in range(40)]


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (b"GET /\x01\r\n\r\n", 400, "malformed HTTP/1.1 request"),
        (b"NONSENSE\r\n\r\n", 400, "malformed HTTP/1.1 request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nLong: " + b"x" * 2**20 + b"\r\n\r\n", 400, "header is too long"),
    ],
)
async def test_malformed_request_closes_connection(sent: bytes, status: int, message: str) -> None:
    async with connected_client(InMemoryApiServer()) as connection:
        connection.writer.write(sent)
        response = await connection.read()
        assert response.status == status
        assert message in response.json["message"]
        assert await asyncio.wait_for(connection.reader.read(), TIMEOUT_SECONDS) == b""


async def test_oversized_body_returns_413_and_connection_stays() -> None:
    async with connected_client(InMemoryApiServer()) as connection:
        response = await connection.request("POST", CONFIG_MAPS_PATH, b"x" * (MAX_BODY_BYTES + 1))
        assert (response.status, response.json["reason"]) == (413, "RequestEntityTooLarge")
        assert (await connection.request("POST", CONFIG_MAPS_PATH, config_map("a"))).status == 201


async def test_expect_continue_is_honoured() -> None:
    async with connected_client(InMemoryApiServer()) as connection:
        body = config_map("a")
        head = (
            f"POST {CONFIG_MAPS_PATH} HTTP/1.1\r\nHost: a\r\nExpect: "
            f"100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.writer.write(head.encode())
        assert await until(connection.reader, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.writer.write(body)
        assert (await connection.read()).status == 201


async def test_head_request_returns_headers_only() -> None:
    async with connected_client(InMemoryApiServer()) as connection:
        connection.write("HEAD", "/readyz")
        response = await connection.read(head_only=True)
        assert (response.status, response.header_values("content-length")) == (200, ["2"])
        assert (await connection.request("GET", "/readyz")).body == b"ok"


async def test_http10_client_gets_unchunked_watch() -> None:
    server = InMemoryApiServer()
    async with connected_client(server) as connection:
        connection.version = "1.0"
        connection.write("GET", f"{CONFIG_MAPS_PATH}?watch=true&timeoutSeconds=1")
        response = await connection.read(head_only=True)
        assert response.header_values("transfer-encoding") == []
        assert response.header_values("connection") == ["close"]
        server.load(json.loads(config_map("a")))
        assert json.loads(await until(connection.reader, b"\n"))["type"] == "ADDED"
        assert await asyncio.wait_for(connection.reader.read(), TIMEOUT_SECONDS) == b""


async def test_watch_streams_each_change_until_server_stops() -> None:
    async with AsyncExitStack() as lines:
        async with serve(InMemoryApiServer()) as endpoint, open_connection(endpoint) as other:
            connection = await lines.enter_async_context(open_connection(endpoint))
            connection.write("GET", f"{CONFIG_MAPS_PATH}?watch=true")
            assert (await connection.read()).header_values("transfer-encoding") == ["chunked"]
            for name in ("a", "b"):
                assert (await other.request("POST", CONFIG_MAPS_PATH, config_map(name))).status == 201
                event = json.loads(await connection.read_chunk())
                assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)
        assert await asyncio.wait_for(connection.reader.read(), TIMEOUT_SECONDS) == b"0\r\n\r\n"


async def test_watch_opened_during_stop_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    server, asked, opened = InMemoryApiServer(), asyncio.Event(), asyncio.Event()
    stream = server.stream

    @asynccontextmanager
    async def slowly(request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes]]:
        asked.set()
        await opened.wait()
        async with stream(request) as lines:
            yield lines

    monkeypatch.setattr(server, "stream", slowly)
    async with AsyncExitStack() as lines, asyncio.timeout(TIMEOUT_SECONDS):
        async with serve(server) as endpoint:
            connection = await lines.enter_async_context(open_connection(endpoint))
            connection.write("GET", f"{CONFIG_MAPS_PATH}?watch=true")
            await asked.wait()
            # Release the response after the server has begun to stop.
            asyncio.get_running_loop().call_soon(opened.set)
        assert (await connection.read()).header_values("transfer-encoding") == ["chunked"]
        assert await connection.reader.read() == b"0\r\n\r\n"


async def test_slow_reader_does_not_block_others() -> None:
    server = InMemoryApiServer()
    async with serve(server) as endpoint, open_connection(endpoint) as connection, open_connection(endpoint) as other:
        connection.write("GET", f"{CONFIG_MAPS_PATH}?watch=true")
        await connection.read()
        # More bytes than all buffers between the two sides can hold.
        large = "x" * 500_000
        for number in range(30):
            response = await asyncio.wait_for(
                other.request("POST", CONFIG_MAPS_PATH, config_map(f"m{number}", data={"a": large})), TIMEOUT_SECONDS
            )
            assert response.status == 201
        seen = [json.loads(await connection.read_chunk())["object"]["metadata"]["name"] for _ in range(30)]
    assert seen == [f"m{number}" for number in range(30)]


async def test_disconnected_client_ends_watch() -> None:
    server = InMemoryApiServer()
    async with serve(server) as endpoint:
        async with open_connection(endpoint) as connection:
            connection.write("GET", f"{CONFIG_MAPS_PATH}?watch=true")
            await connection.read()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while server.break_watches():
                await asyncio.sleep(0.01)


async def test_injected_faults_reach_the_socket() -> None:
    server = InMemoryApiServer()
    server.fail_next(matching("GET", "/configmaps"), 429)
    server.fail_next(matching("GET", "/configmaps"), ConnectionFailed("cut"))
    async with connected_client(server) as connection:
        assert (await connection.request("GET", CONFIG_MAPS_PATH)).status == 429
        connection.write("GET", CONFIG_MAPS_PATH)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await connection.read()


async def test_bearer_token_identifies_user() -> None:
    server = InMemoryApiServer()
    server.reviews.users["secret"] = {"username": "ann"}
    async with connected_client(server) as connection:
        response = await connection.request("GET", CONFIG_MAPS_PATH, Authorization="Bearer secret")
        assert (response.status, response.json["reason"]) == (403, "Forbidden")
        assert 'User "ann" cannot list' in response.json["message"]
        assert (await connection.request("GET", CONFIG_MAPS_PATH, Authorization="Bearer other")).status == 401
        assert (await connection.request("GET", CONFIG_MAPS_PATH, Authorization="Basic YTpi")).status == 401


async def test_impersonation_requires_permission() -> None:
    server = InMemoryApiServer()
    server.reviews.users["secret"] = {"username": "ann"}
    rule = {"apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"]}
    server.grant(
        "ann", {"kind": "ClusterRole", "apiVersion": f"{RBAC}/v1", "metadata": {"name": "r"}, "rules": [rule]}
    )
    async with connected_client(server) as connection:
        response = await connection.request(
            "POST", WHOAMI, REVIEW, Authorization="Bearer secret", Impersonate_User="bob"
        )
        assert response.json["status"]["userInfo"]["username"] == "bob"
        response = await connection.request(
            "GET", CONFIG_MAPS_PATH, Authorization="Bearer secret", Impersonate_User="bob"
        )
        assert 'User "bob" cannot list' in response.json["message"]
        response = await connection.request(
            "GET", CONFIG_MAPS_PATH, Authorization="Bearer secret", Impersonate_User="eve"
        )
        assert (response.status, response.json["reason"]) == (403, "Forbidden")
        assert 'User "ann" cannot impersonate resource "users"' in response.json["message"]


async def test_administrator_can_impersonate() -> None:
    headers: dict[str, Values] = {
        "Impersonate-User": "ann",
        "Impersonate-Uid": "7",
        "Impersonate-Group": ("sea", "harbour, and more"),
        "Impersonate-Extra-Example.com%2fship": "sloop",
    }
    async with connected_client(InMemoryApiServer()) as connection:
        response = await connection.request("POST", WHOAMI, REVIEW, **headers)
        assert response.json["status"]["userInfo"] == {
            "username": "ann",
            "uid": "7",
            "groups": ["sea", "harbour, and more", "system:authenticated"],
            "extra": {"example.com/ship": ["sloop"]},
        }
        response = await connection.request("POST", WHOAMI, REVIEW)
        assert response.json["status"]["userInfo"]["username"] == "kubernetes-admin"
        response = await connection.request("POST", WHOAMI, REVIEW, Impersonate_Group="sea")
        assert response.status == 500
        assert "without impersonating a user" in response.json["message"]


def warning(*texts: str) -> InMemoryApiServer:
    """Return a server whose webhook warns about created ConfigMaps."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    webhook: dict[str, Any] = {
        "name": "hook.example.com",
        "clientConfig": {"url": HOOK},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    names = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    server = InMemoryApiServer()
    server.load({**names, "metadata": {"name": "warning"}, "webhooks": [webhook]})

    async def answer(review: dict[str, Any]) -> dict[str, Any]:
        response = {"uid": review["request"]["uid"], "allowed": True, "warnings": list(texts)}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

    server.serve_webhook(HOOK, answer)
    return server


@pytest.mark.parametrize(
    ("texts", "headers"),
    [
        ((r'say "no\never"', "schön"), [r'299 - "say \"no\\never\""', '299 - "schön"']),
        (("a\r\nb", "c"), ['299 - "c"']),
        (("x" * 4000, "y" * 300, "z"), [f'299 - "{"x" * 256}"', f'299 - "{"y" * 256}"', '299 - "z"']),
    ],
)
async def test_warnings_are_headers(texts: tuple[str, ...], headers: list[str]) -> None:
    async with connected_client(warning(*texts)) as connection:
        response = await connection.request("POST", CONFIG_MAPS_PATH, config_map("a"))
    assert (response.status, response.header_values("warning")) == (201, headers)


async def test_our_client_reads_these_warnings(tmp_path: Path) -> None:
    async with serve(warning('say "no"')) as endpoint, connected_transport(endpoint, tmp_path) as transport:
        response = await transport.request(HttpRequest(method="POST", path=CONFIG_MAPS_PATH, body=config_map("a")))
    assert response.warnings == ('say "no"',)


async def test_default_field_manager_is_user_agent() -> None:
    async with connected_client(InMemoryApiServer()) as connection:
        response = await connection.request(
            "POST", CONFIG_MAPS_PATH, config_map("a", data={"k": "v"}), User_Agent="kubectl/v1.36 (linux)"
        )
        assert [m["manager"] for m in response.json["metadata"]["managedFields"]] == ["kubectl"]
        response = await connection.request(
            "POST", f"{CONFIG_MAPS_PATH}?fieldManager=me", config_map("b", data={"k": "v"}), User_Agent="x/1"
        )
        assert [m["manager"] for m in response.json["metadata"]["managedFields"]] == ["me"]


async def test_duplicate_query_parameter_uses_first() -> None:
    async with connected_client(InMemoryApiServer()) as connection:
        for name in ("a", "b"):
            await connection.request("POST", CONFIG_MAPS_PATH, config_map(name))
        path = f"{CONFIG_MAPS_PATH}?fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db"
        assert [i["metadata"]["name"] for i in (await connection.request("GET", path)).json["items"]] == ["a"]


async def test_unsupported_request_returns_501() -> None:
    server = InMemoryApiServer()
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    server.load({**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    async with connected_client(server) as connection:
        path = "/api/v1/namespaces/default/pods/p/exec?command=ls"
        response = await connection.request("GET", path, Connection="Upgrade", Upgrade="websocket")
    assert (response.status, response.json["reason"]) == (501, "NotImplemented")
    assert "pods/exec" in response.json["message"]


async def test_internal_error_returns_500(monkeypatch: pytest.MonkeyPatch) -> None:
    server = InMemoryApiServer()

    async def broken(_: HttpRequest) -> None:
        raise LookupError("oh")

    monkeypatch.setattr(server, "request", broken)
    async with connected_client(server) as connection:
        response = await connection.request("GET", CONFIG_MAPS_PATH)
    assert (response.status, response.body) == (500, b"LookupError: oh\n")


async def test_port_in_use_raises() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on port {port}"):
            async with serve(InMemoryApiServer(), port=port):
                pass


async def test_the_kubeconfig_is_complete() -> None:
    async with serve(InMemoryApiServer(), tls=True) as endpoint:
        found: Mapping[str, Any] = yaml.safe_load(endpoint.kubeconfig)
    assert found["clusters"][0]["cluster"]["server"] == endpoint.url
    assert endpoint.url.startswith("https://127.0.0.1:")
    # Over TLS, kubectl prompts for a username without credentials.
    assert found["users"][0]["user"]["token"]
    assert found["contexts"][0]["name"] == found["current-context"]


@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("/readyz", "*/*", "text/plain; charset=utf-8"),
        ("/nowhere", "*/*", "text/plain; charset=utf-8"),
        (CONFIG_MAPS_PATH, "application/json", "application/json"),
        (
            "/apis",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
        ("/apis", "application/json", "application/json"),
    ],
)
async def test_response_has_negotiated_content_type(path: str, accept: str, kind: str) -> None:
    async with connected_client(InMemoryApiServer()) as connection:
        assert (await connection.request("GET", path, Accept=accept)).header_values("content-type") == [kind]
