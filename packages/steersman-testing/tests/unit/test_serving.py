"""The HTTP door of the API server in memory, on real sockets."""

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
from steersman_testing.serving.connection import LONGEST_BODY

MAPS = "/api/v1/namespaces/default/configmaps"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
HOOK = "https://hook.example.com/"
PATIENCE = 60.0
"""Seconds for an answer, on a machine that does other things."""

Values = str | tuple[str, ...]
"""Of a header: once, or several times."""


class Told(NamedTuple):
    """An answer as it came over the socket."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def all(self, name: str) -> list[str]:
        """The values of a header."""
        return [v for n, v in self.headers if n.lower() == name]


class Line:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.version = reader, writer, "1.1"

    def write(self, method: str, path: str, body: bytes = b"", **headers: Values) -> None:
        """Sends a request."""
        lines = [f"{method} {path} HTTP/{self.version}", "Host: test", f"Content-Length: {len(body)}"]
        for name, values in headers.items():
            each = (values,) if isinstance(values, str) else values
            lines += [f"{name.replace('_', '-')}: {value}" for value in each]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def read(self, *, head_only: bool = False) -> Told:
        """The next answer; of a stream its head alone."""
        lines = (await until(self.reader, b"\r\n\r\n")).decode().split("\r\n")
        headers = [(n, v) for n, _, v in (line.partition(": ") for line in lines[1:] if line)]
        told = Told(int(lines[0].split()[1]), headers, b"")
        if head_only or not told.all("content-length"):
            return told
        return told._replace(body=await self.reader.readexactly(int(told.all("content-length")[0])))

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: Values) -> Told:
        """The answer to a request."""
        self.write(method, path, body, **headers)
        return await self.read()

    async def chunk(self) -> bytes:
        """The next chunk of a stream."""
        size = int(await until(self.reader, b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]


async def until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    return await asyncio.wait_for(reader.readuntil(end), PATIENCE)


@asynccontextmanager
async def dialled(server: InMemoryApiServer) -> AsyncGenerator[Line]:
    async with serve(server) as endpoint, line_to(endpoint) as line:
        yield line


@asynccontextmanager
async def line_to(endpoint: ApiEndpoint) -> AsyncGenerator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(endpoint.url.rpartition(":")[2]))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def connected(endpoint: ApiEndpoint, home: Path) -> AsyncGenerator[Transport]:
    """As any program gets there: by the kubeconfig."""
    kubeconfig = home / "kubeconfig"
    kubeconfig.write_text(endpoint.kubeconfig)
    async with connect(load_config(kubeconfig), retry=None) as transport:
        yield transport


def config_map(name: str, **more: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}).encode()


@pytest.mark.parametrize("tls", [False, True])
async def test_both_doors_lead_to_the_same_objects(tls: bool, tmp_path: Path) -> None:
    server, key = InMemoryApiServer(), ObjectKey("default", "a")
    async with serve(server, tls=tls) as endpoint, connected(endpoint, tmp_path) as transport:
        made = await Client(transport).create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
        assert server.read(ConfigMap, key) == made
        await Client(server).delete(ConfigMap, key)
        with pytest.raises(ApiError, match='configmaps "a" not found'):
            await Client(transport).get(ConfigMap, key)


async def test_who_does_not_know_the_authority_trusts_nobody(tmp_path: Path) -> None:
    async with serve(InMemoryApiServer(), tls=True) as endpoint:
        stranger = ApiEndpoint(endpoint.url)
        async with connected(stranger, tmp_path) as transport:
            with pytest.raises(ConnectionFailed, match="certificate"):
                await transport.request(HttpRequest(method="GET", path="/readyz"))


async def test_requests_on_one_connection_are_answered_in_their_order() -> None:
    async with dialled(InMemoryApiServer()) as line:
        # More than are taken in at once.
        for number in range(40):
            line.write("POST", MAPS, config_map(f"m{number}"))
        names = [(await line.read()).json["metadata"]["name"] for _ in range(40)]
    assert names == [f"m{number}" for number in range(40)]


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (b"GET /\x01\r\n\r\n", 400, "not HTTP/1.1"),
        (b"NONSENSE\r\n\r\n", 400, "not HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nLong: " + b"x" * 2**20 + b"\r\n\r\n", 400, "header is too long"),
    ],
)
async def test_what_cannot_be_read_is_refused_and_the_connection_closed(
    sent: bytes, status: int, message: str
) -> None:
    async with dialled(InMemoryApiServer()) as line:
        line.writer.write(sent)
        told = await line.read()
        assert told.status == status
        assert message in told.json["message"]
        assert await asyncio.wait_for(line.reader.read(), PATIENCE) == b""


async def test_a_body_that_is_too_large_is_refused_and_the_next_one_is_read() -> None:
    async with dialled(InMemoryApiServer()) as line:
        told = await line.ask("POST", MAPS, b"x" * (LONGEST_BODY + 1))
        assert (told.status, told.json["reason"]) == (413, "RequestEntityTooLarge")
        assert (await line.ask("POST", MAPS, config_map("a"))).status == 201


async def test_who_waits_for_leave_to_send_gets_it() -> None:
    async with dialled(InMemoryApiServer()) as line:
        body = config_map("a")
        head = f"POST {MAPS} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        line.writer.write(head.encode())
        assert await until(line.reader, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.writer.write(body)
        assert (await line.read()).status == 201


async def test_a_head_is_all_that_head_gets() -> None:
    async with dialled(InMemoryApiServer()) as line:
        line.write("HEAD", "/readyz")
        told = await line.read(head_only=True)
        assert (told.status, told.all("content-length")) == (200, ["2"])
        assert (await line.ask("GET", "/readyz")).body == b"ok"


async def test_an_old_client_gets_a_watch_without_chunks() -> None:
    server = InMemoryApiServer()
    async with dialled(server) as line:
        line.version = "1.0"
        line.write("GET", f"{MAPS}?watch=true&timeoutSeconds=1")
        told = await line.read(head_only=True)
        assert told.all("transfer-encoding") == []
        assert told.all("connection") == ["close"]
        server.load(json.loads(config_map("a")))
        assert json.loads(await until(line.reader, b"\n"))["type"] == "ADDED"
        assert await asyncio.wait_for(line.reader.read(), PATIENCE) == b""


async def test_a_watch_is_told_each_change_at_once_and_ends_in_order_with_the_server() -> None:
    async with AsyncExitStack() as lines:
        async with serve(InMemoryApiServer()) as endpoint, line_to(endpoint) as other:
            line = await lines.enter_async_context(line_to(endpoint))
            line.write("GET", f"{MAPS}?watch=true")
            assert (await line.read()).all("transfer-encoding") == ["chunked"]
            for name in ("a", "b"):
                assert (await other.ask("POST", MAPS, config_map(name))).status == 201
                event = json.loads(await line.chunk())
                assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)
        assert await asyncio.wait_for(line.reader.read(), PATIENCE) == b"0\r\n\r\n"


async def test_a_watch_that_is_just_being_opened_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    server, asked, opened = InMemoryApiServer(), asyncio.Event(), asyncio.Event()
    stream = server.stream

    @asynccontextmanager
    async def slowly(request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes]]:
        asked.set()
        await opened.wait()
        async with stream(request) as lines:
            yield lines

    monkeypatch.setattr(server, "stream", slowly)
    async with AsyncExitStack() as lines, asyncio.timeout(PATIENCE):
        async with serve(server) as endpoint:
            line = await lines.enter_async_context(line_to(endpoint))
            line.write("GET", f"{MAPS}?watch=true")
            await asked.wait()
            # Once the server has begun to stop.
            asyncio.get_running_loop().call_soon(opened.set)
        assert (await line.read()).all("transfer-encoding") == ["chunked"]
        assert await line.reader.read() == b"0\r\n\r\n"


async def test_a_reader_who_does_not_read_keeps_nobody_waiting() -> None:
    server = InMemoryApiServer()
    async with serve(server) as endpoint, line_to(endpoint) as line, line_to(endpoint) as other:
        line.write("GET", f"{MAPS}?watch=true")
        await line.read()
        # More than any buffer between the two takes.
        large = "x" * 500_000
        for number in range(30):
            told = await asyncio.wait_for(
                other.ask("POST", MAPS, config_map(f"m{number}", data={"a": large})), PATIENCE
            )
            assert told.status == 201
        seen = [json.loads(await line.chunk())["object"]["metadata"]["name"] for _ in range(30)]
    assert seen == [f"m{number}" for number in range(30)]


async def test_a_client_that_goes_away_ends_its_watch() -> None:
    server = InMemoryApiServer()
    async with serve(server) as endpoint:
        async with line_to(endpoint) as line:
            line.write("GET", f"{MAPS}?watch=true")
            await line.read()
        async with asyncio.timeout(PATIENCE):
            while server.break_watches():
                await asyncio.sleep(0.01)


async def test_faults_that_a_test_asks_for_reach_the_socket() -> None:
    server = InMemoryApiServer()
    server.fail_next(matching("GET", "/configmaps"), 429)
    server.fail_next(matching("GET", "/configmaps"), ConnectionFailed("cut"))
    async with dialled(server) as line:
        assert (await line.ask("GET", MAPS)).status == 429
        line.write("GET", MAPS)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await line.read()


async def test_a_bearer_token_says_who_asks() -> None:
    server = InMemoryApiServer()
    server.reviews.users["secret"] = {"username": "ann"}
    async with dialled(server) as line:
        told = await line.ask("GET", MAPS, Authorization="Bearer secret")
        assert (told.status, told.json["reason"]) == (403, "Forbidden")
        assert 'User "ann" cannot list' in told.json["message"]
        assert (await line.ask("GET", MAPS, Authorization="Bearer other")).status == 401
        assert (await line.ask("GET", MAPS, Authorization="Basic YTpi")).status == 401


async def test_who_has_a_token_acts_as_whom_the_roles_allow() -> None:
    server = InMemoryApiServer()
    server.reviews.users["secret"] = {"username": "ann"}
    rule = {"apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"]}
    server.grant(
        "ann", {"kind": "ClusterRole", "apiVersion": f"{RBAC}/v1", "metadata": {"name": "r"}, "rules": [rule]}
    )
    async with dialled(server) as line:
        told = await line.ask("POST", WHOAMI, REVIEW, Authorization="Bearer secret", Impersonate_User="bob")
        assert told.json["status"]["userInfo"]["username"] == "bob"
        told = await line.ask("GET", MAPS, Authorization="Bearer secret", Impersonate_User="bob")
        assert 'User "bob" cannot list' in told.json["message"]
        told = await line.ask("GET", MAPS, Authorization="Bearer secret", Impersonate_User="eve")
        assert (told.status, told.json["reason"]) == (403, "Forbidden")
        assert 'User "ann" cannot impersonate resource "users"' in told.json["message"]


async def test_an_administrator_acts_as_somebody_else() -> None:
    headers: dict[str, Values] = {
        "Impersonate-User": "ann",
        "Impersonate-Uid": "7",
        "Impersonate-Group": ("sea", "harbour, and more"),
        "Impersonate-Extra-Example.com%2fship": "sloop",
    }
    async with dialled(InMemoryApiServer()) as line:
        told = await line.ask("POST", WHOAMI, REVIEW, **headers)
        assert told.json["status"]["userInfo"] == {
            "username": "ann",
            "uid": "7",
            "groups": ["sea", "harbour, and more", "system:authenticated"],
            "extra": {"example.com/ship": ["sloop"]},
        }
        told = await line.ask("POST", WHOAMI, REVIEW)
        assert told.json["status"]["userInfo"]["username"] == "kubernetes-admin"
        told = await line.ask("POST", WHOAMI, REVIEW, Impersonate_Group="sea")
        assert told.status == 500
        assert "without impersonating a user" in told.json["message"]


def warning(*texts: str) -> InMemoryApiServer:
    """A server whose webhook warns whoever creates a ConfigMap."""
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
    async with dialled(warning(*texts)) as line:
        told = await line.ask("POST", MAPS, config_map("a"))
    assert (told.status, told.all("warning")) == (201, headers)


async def test_our_client_reads_these_warnings(tmp_path: Path) -> None:
    async with serve(warning('say "no"')) as endpoint, connected(endpoint, tmp_path) as transport:
        response = await transport.request(HttpRequest(method="POST", path=MAPS, body=config_map("a")))
    assert response.warnings == ('say "no"',)


async def test_who_names_no_field_manager_has_that_of_the_program() -> None:
    async with dialled(InMemoryApiServer()) as line:
        told = await line.ask("POST", MAPS, config_map("a", data={"k": "v"}), User_Agent="kubectl/v1.36 (linux)")
        assert [m["manager"] for m in told.json["metadata"]["managedFields"]] == ["kubectl"]
        told = await line.ask("POST", f"{MAPS}?fieldManager=me", config_map("b", data={"k": "v"}), User_Agent="x/1")
        assert [m["manager"] for m in told.json["metadata"]["managedFields"]] == ["me"]


async def test_of_parameters_that_come_twice_the_first_counts() -> None:
    async with dialled(InMemoryApiServer()) as line:
        for name in ("a", "b"):
            await line.ask("POST", MAPS, config_map(name))
        path = f"{MAPS}?fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db"
        assert [i["metadata"]["name"] for i in (await line.ask("GET", path)).json["items"]] == ["a"]


async def test_what_is_not_imitated_is_refused_and_named() -> None:
    server = InMemoryApiServer()
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    server.load({**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    async with dialled(server) as line:
        path = "/api/v1/namespaces/default/pods/p/exec?command=ls"
        told = await line.ask("GET", path, Connection="Upgrade", Upgrade="websocket")
    assert (told.status, told.json["reason"]) == (501, "NotImplemented")
    assert "pods/exec" in told.json["message"]


async def test_a_bug_of_ours_is_an_answer_and_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    server = InMemoryApiServer()

    async def broken(_: HttpRequest) -> None:
        raise LookupError("oh")

    monkeypatch.setattr(server, "request", broken)
    async with dialled(server) as line:
        told = await line.ask("GET", MAPS)
    assert (told.status, told.body) == (500, b"LookupError: oh\n")


async def test_a_port_that_is_taken_is_said() -> None:
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
    # By TLS, kubectl asks people without credentials for a name.
    assert found["users"][0]["user"]["token"]
    assert found["contexts"][0]["name"] == found["current-context"]


@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("/readyz", "*/*", "text/plain; charset=utf-8"),
        ("/nowhere", "*/*", "text/plain; charset=utf-8"),
        (MAPS, "application/json", "application/json"),
        (
            "/apis",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
        ("/apis", "application/json", "application/json"),
    ],
)
async def test_an_answer_says_what_it_is(path: str, accept: str, kind: str) -> None:
    async with dialled(InMemoryApiServer()) as line:
        assert (await line.ask("GET", path, Accept=accept)).all("content-type") == [kind]
