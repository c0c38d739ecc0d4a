"""Where the API server in memory listens, and what a client must know to find it."""

from __future__ import annotations

import asyncio
import base64
import math
import ssl
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import yaml

from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.errors import ApiError, ConfigurationError, ConnectionFailed
from steersman_testing.apiserver.access.impersonation import Impersonated
from steersman_testing.apiserver.discovery.documents import content_type
from steersman_testing.apiserver.failures import bad_request, body_too_large, internal, unauthorized
from steersman_testing.apiserver.requests.parameters import flag
from steersman_testing.apiserver.server import InMemoryApiServer, refusal
from steersman_testing.serving.connection import BETWEEN, LONGEST_BODY, Connection, Message, Reply

NAME = "steersman-testing"
_LOOPBACK = "127.0.0.1"
_APPLY = "application/apply-patch"
# No secret: whoever shows no token is the administrator, too. But by TLS, kubectl asks who has none for a name.
_ADMINISTRATOR = "administrator"
_LONGEST_MANAGER = 128
_LONGEST_WARNING = 256
_MOST_OF_WARNINGS = 4096
_IMPERSONATE = "impersonate-"
_EXTRA = "extra-"
_UNCACHED = ("Cache-Control", "no-cache, private")


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """Where it listens.

    Attributes:
        url: the server's URL.
        authority: the certificate (PEM) that its own is signed by; empty without TLS.
    """

    url: str
    authority: str = ""

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig file, as YAML."""
        cluster: dict[str, Any] = {"server": self.url}
        user: dict[str, Any] = {}
        if self.authority:
            user["token"] = _ADMINISTRATOR
            cluster["certificate-authority-data"] = base64.b64encode(self.authority.encode()).decode()
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": NAME, "cluster": cluster}],
            "users": [{"name": NAME, "user": user}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
            "current-context": NAME,
        }
        return yaml.safe_dump(document, sort_keys=False)


@asynccontextmanager
async def serve(server: InMemoryApiServer, *, port: int = 0, tls: bool = False) -> AsyncGenerator[ApiEndpoint]:
    """Listens on the loopback interface while the block runs, and answers by ``server``.

    Who shows no bearer token is an administrator; with one, it is whom ``server`` knows by it. Headers of
    impersonation are heeded, from users with a token as far as RBAC lets them.

    At the end, what is being answered is finished, and watches are ended as if their time were over.

    Args:
        port: 0 takes a free one.
        tls: with a certificate of an authority made for this endpoint alone. Clients send tokens by TLS only.

    Raises:
        ConfigurationError: the port is in use, or TLS is asked for without ``steersman[testing]`` installed.
    """
    context, authority = _certificates() if tls else (None, "")
    connections: set[Connection] = set()
    loop, front = asyncio.get_running_loop(), _Front(server)
    try:
        listener = await loop.create_server(
            lambda: Connection(front.answer, connections), _LOOPBACK, port, ssl=context
        )
    except OSError as error:
        raise ConfigurationError(f"cannot listen on port {port}: {error.strerror}") from error
    scheme, port = "https" if tls else "http", listener.sockets[0].getsockname()[1]
    try:
        yield ApiEndpoint(f"{scheme}://{_LOOPBACK}:{port}", authority)
    finally:
        listener.close()
        ending = list(connections)
        for connection in ending:
            connection.stop()
        await asyncio.gather(*(c.wait_closed() for c in ending))


def _certificates() -> tuple[ssl.SSLContext, str]:
    try:
        from steersman_testing.envtest.certificates import Authority
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is missing: install steersman[testing]") from error
    authority = Authority()
    pair = authority.server(["localhost", "kubernetes", "kubernetes.default"], [_LOOPBACK])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    # OpenSSL reads files only.
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "server.pem"
        file.touch(mode=0o600)
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
    return context, authority.certificate.decode()


class _Front:
    """Turns messages into requests of the server, and its answers into replies."""

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server

    async def answer(self, message: Message, reply: Reply) -> None:
        if message.fault:
            _send(reply, "", refusal(_unread(message)))
            return
        request = _request(message)
        try:
            server = self._known(message.headers)
            if _is_stream(request):
                await _stream(server, request, reply)
            else:
                response = await server.request(request)
                _send(reply, content_type(request, response.body), response)
        except ApiError as error:
            _send(reply, "", refusal(error))
        except ConnectionFailed:
            # A test asked for it.
            reply.abort()

    def _known(self, headers: Mapping[str, str]) -> Transport:
        """The server as whoever asks meets it."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        acting = _impersonated(headers)
        if not scheme or token.strip() == _ADMINISTRATOR:
            return self._server if acting is None else self._server.as_identity(acting.user())
        if scheme.lower() != "bearer":
            raise unauthorized()
        return self._server.as_bearer(token.strip(), acting)


def _impersonated(headers: Mapping[str, str]) -> Impersonated | None:
    """Whom the headers name to act as. Source: "Authenticating", "User impersonation"."""
    named = {n.removeprefix(_IMPERSONATE): v for n, v in headers.items() if n.startswith(_IMPERSONATE)}
    if not named:
        return None
    name = named.get("user", "")
    if not name:
        raise internal(f"requested {sorted(named)} without impersonating a user")
    extra = {unquote(n.removeprefix(_EXTRA)): _each(v) for n, v in named.items() if n.startswith(_EXTRA)}
    return Impersonated(name, _each(named.get("group", "")), extra, named.get("uid", ""))


def _each(values: str) -> tuple[str, ...]:
    """The values of a header."""
    return tuple(v for v in values.split(BETWEEN) if v)


async def _stream(server: Transport, request: HttpRequest, reply: Reply) -> None:
    async with server.stream(request) as lines:
        reply.begin(200, (("Content-Type", content_type(request, b"{")), _UNCACHED))
        async for line in lines:
            await reply.part(line + b"\n")
        reply.end()


def _send(reply: Reply, kind: str, response: HttpResponse) -> None:
    fields = [("Content-Type", kind or _plain_or_json(response.body)), _UNCACHED]
    fields += [("Warning", w) for w in _warnings(response.warnings)]
    if response.retry_after is not None:
        fields.append(("Retry-After", str(math.ceil(response.retry_after))))
    reply.send(response.status, fields, response.body)


def _warnings(texts: Sequence[str]) -> Iterator[str]:
    """Headers. What cannot be one is left out, and what is too much is cut, as the real server does.

    Source: ``k8s.io/apiserver/pkg/endpoints/filters/warning.go``.
    """
    texts = [t for t in texts if t.isprintable()]
    left = _MOST_OF_WARNINGS
    longest = left if sum(map(len, texts)) <= left else _LONGEST_WARNING
    for text in texts:
        if left <= 0:
            return
        told = text[:longest]
        left -= len(told)
        yield '299 - "{}"'.format(told.replace("\\", r"\\").replace('"', r"\""))


def _plain_or_json(body: bytes) -> str:
    return "application/json" if body.startswith(b"{") else "text/plain; charset=utf-8"


def _unread(message: Message) -> ApiError:
    if message.fault == "too large":
        return body_too_large(LONGEST_BODY)
    return bad_request("this is not HTTP/1.1, or its header is too long")


def _request(message: Message) -> HttpRequest:
    path, _, text = message.target.decode("latin-1").partition("?")
    # Of several values the first counts.
    query = dict(reversed(parse_qsl(text, keep_blank_values=True)))
    method = "GET" if message.method == "HEAD" else message.method
    headers = message.headers
    kind = headers.get("content-type", "application/json")
    if method in ("POST", "PUT", "PATCH") and not query.get("fieldManager") and not kind.startswith(_APPLY):
        query["fieldManager"] = _manager(headers)
    return HttpRequest(
        method=method,
        path=path,
        query=query,
        body=message.body or None,
        content_type=kind,
        accept=headers.get("accept", "*/*"),
        timeout=math.inf,
    )


def _manager(headers: Mapping[str, str]) -> str:
    """The real server takes what a client does not name from its User-Agent."""
    named = headers.get("user-agent", "").partition("/")[0]
    return "".join(c for c in named if c.isprintable())[:_LONGEST_MANAGER]


def _is_stream(request: HttpRequest) -> bool:
    if request.method != "GET":
        return False
    if request.path.endswith("/log"):
        return flag(request.query, "follow")
    return flag(request.query, "watch")
