"""HTTP endpoint of the in-memory API server on the loopback interface."""

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
from steersman.manager.serving.http_connection import (
    HEADER_VALUE_SEPARATOR,
    ConnectionOptions,
    ResponseWriter,
    ServerConnection,
    WireRequest,
)
from steersman.manager.serving.open_connections import OpenConnections
from steersman_testing.apiserver.discovery.documents import content_type
from steersman_testing.apiserver.failures import bad_request, body_too_large, internal, unauthorized
from steersman_testing.apiserver.kubectl.impersonation import ImpersonatedUser
from steersman_testing.apiserver.requests.parameters import bool_parameter
from steersman_testing.apiserver.server import InMemoryApiServer, error_response

# MaxRequestBodyBytes of k8s.io/apiserver.
MAX_BODY_BYTES = 3 * 2**20
CONTEXT_NAME = "steersman-testing"
_LOOPBACK = "127.0.0.1"
_APPLY = "application/apply-patch"
# Not a secret: a request without token also acts as administrator. Without a token, kubectl prompts for a username.
_ADMIN_TOKEN = "administrator"  # noqa: S105
_MAX_FIELD_MANAGER_LENGTH = 128
_MAX_WARNING_LENGTH = 256
_MAX_TOTAL_WARNINGS_LENGTH = 4096
_IMPERSONATE_PREFIX = "impersonate-"
_EXTRA_PREFIX = "extra-"
_NO_CACHE_HEADER = ("Cache-Control", "no-cache, private")


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """Address of the HTTP server.

    Attributes:
        url: URL of the server.
        ca_certificate: PEM of its certificate authority. Empty without TLS.
    """

    url: str
    ca_certificate: str = ""

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig file, as YAML."""
        cluster: dict[str, Any] = {"server": self.url}
        user: dict[str, Any] = {}
        if self.ca_certificate:
            user["token"] = _ADMIN_TOKEN
            cluster["certificate-authority-data"] = base64.b64encode(self.ca_certificate.encode()).decode()
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT_NAME, "cluster": cluster}],
            "users": [{"name": CONTEXT_NAME, "user": user}],
            "contexts": [
                {
                    "name": CONTEXT_NAME,
                    "context": {"cluster": CONTEXT_NAME, "user": CONTEXT_NAME, "namespace": "default"},
                }
            ],
            "current-context": CONTEXT_NAME,
        }
        return yaml.safe_dump(document, sort_keys=False)


@asynccontextmanager
async def serve(server: InMemoryApiServer, *, port: int = 0, tls: bool = False) -> AsyncGenerator[ApiEndpoint]:
    """Serve ``server`` on the loopback interface during the block.

    A request without bearer token acts as administrator. A token authenticates as with a real API server.
    Impersonation headers are honored, for users with a token as RBAC permits.

    At the end, current responses are finished and watches end as after their timeout.

    Args:
        server: server to expose.
        port: port to listen on. 0 selects a free port.
        tls: serve HTTPS with a certificate of a new authority. Clients send tokens by TLS only.

    Raises:
        ConfigurationError: if the port is in use, or ``cryptography`` is missing for TLS.
    """
    context, ca_certificate = _server_tls_context() if tls else (None, "")
    connections = OpenConnections[ServerConnection]()
    options = ConnectionOptions(max_body_bytes=MAX_BODY_BYTES, tls=context)
    loop, dispatcher = asyncio.get_running_loop(), _Dispatcher(server)
    try:
        listener = await loop.create_server(
            lambda: ServerConnection(dispatcher.handle, connections, options), _LOOPBACK, port
        )
    except OSError as error:
        raise ConfigurationError(f"cannot listen on port {port}: {error.strerror}") from error
    scheme, port = "https" if tls else "http", listener.sockets[0].getsockname()[1]
    try:
        yield ApiEndpoint(f"{scheme}://{_LOOPBACK}:{port}", ca_certificate)
    finally:
        listener.close()
        closing = list(connections)
        for connection in closing:
            connection.stop()
        await asyncio.gather(*(c.wait_closed() for c in closing))


def _server_tls_context() -> tuple[ssl.SSLContext, str]:
    try:
        from steersman_testing.envtest.certificates import CertificateAuthority
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is missing: install the dependencies of steersman-testing") from error
    authority = CertificateAuthority()
    pair = authority.issue_server(["localhost", "kubernetes", "kubernetes.default"], [_LOOPBACK])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    # The ssl module loads certificates from files only.
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "server.pem"
        file.touch(mode=0o600)
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
    return context, authority.certificate.decode()


class _Dispatcher:
    """Handles HTTP requests by the in-memory server."""

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server

    async def handle(self, request_message: WireRequest, writer: ResponseWriter) -> None:
        if request_message.error:
            _write_response(writer, "", error_response(_parse_error(request_message)))
            return
        request = _to_http_request(request_message)
        try:
            server = self._authenticate(request_message.headers)
            if _is_stream(request):
                await _write_stream(server, request, writer)
            else:
                response = await server.request(request)
                _write_response(writer, content_type(request, response.body), response)
        except ApiError as error:
            _write_response(writer, "", error_response(error))
        except ConnectionFailed:
            # The test injected a connection failure.
            writer.abort()

    def _authenticate(self, headers: Mapping[str, str]) -> Transport:
        """Return the server as the authenticated user."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        impersonated = _parse_impersonation(headers)
        if not scheme or token.strip() == _ADMIN_TOKEN:
            return self._server if impersonated is None else self._server.as_identity(impersonated.to_user())
        if scheme.lower() != "bearer":
            raise unauthorized()
        return self._server.as_bearer(token.strip(), impersonated)


def _parse_impersonation(headers: Mapping[str, str]) -> ImpersonatedUser | None:
    """Parse the impersonation headers.

    Source: "Authenticating", "User impersonation".
    """
    named = {n.removeprefix(_IMPERSONATE_PREFIX): v for n, v in headers.items() if n.startswith(_IMPERSONATE_PREFIX)}
    if not named:
        return None
    name = named.get("user", "")
    if not name:
        raise internal(f"requested {sorted(named)} without impersonating a user")
    extra = {
        unquote(n.removeprefix(_EXTRA_PREFIX)): _header_values(v)
        for n, v in named.items()
        if n.startswith(_EXTRA_PREFIX)
    }
    return ImpersonatedUser(name, _header_values(named.get("group", "")), extra, named.get("uid", ""))


def _header_values(values: str) -> tuple[str, ...]:
    """Split the values of a repeated header."""
    return tuple(v for v in values.split(HEADER_VALUE_SEPARATOR) if v)


async def _write_stream(server: Transport, request: HttpRequest, writer: ResponseWriter) -> None:
    async with server.stream(request) as lines:
        writer.start_stream(200, (("Content-Type", content_type(request, b"{")), _NO_CACHE_HEADER))
        async for line in lines:
            await writer.write_chunk(line + b"\n")
        writer.end_stream()


def _write_response(writer: ResponseWriter, media_type: str, response: HttpResponse) -> None:
    headers = [("Content-Type", media_type or _guess_media_type(response.body)), _NO_CACHE_HEADER]
    headers += [("Warning", w) for w in _warning_headers(response.warnings)]
    if response.retry_after is not None:
        headers.append(("Retry-After", str(math.ceil(response.retry_after))))
    writer.send(response.status, headers, response.body)


def _warning_headers(texts: Sequence[str]) -> Iterator[str]:
    """Warning headers, without unprintable texts and truncated like kube-apiserver's.

    Source: ``k8s.io/apiserver/pkg/endpoints/filters/warning.go``.
    """
    texts = [t for t in texts if t.isprintable()]
    remaining = _MAX_TOTAL_WARNINGS_LENGTH
    max_length = remaining if sum(map(len, texts)) <= remaining else _MAX_WARNING_LENGTH
    for text in texts:
        if remaining <= 0:
            return
        truncated = text[:max_length]
        remaining -= len(truncated)
        yield '299 - "{}"'.format(truncated.replace("\\", r"\\").replace('"', r"\""))


def _guess_media_type(body: bytes) -> str:
    return "application/json" if body.startswith(b"{") else "text/plain; charset=utf-8"


def _parse_error(message: WireRequest) -> ApiError:
    if message.error == "body too large":
        return body_too_large(MAX_BODY_BYTES)
    return bad_request("malformed HTTP/1.1 request, or its header is too long")


def _to_http_request(message: WireRequest) -> HttpRequest:
    path, _, text = message.target.decode("latin-1").partition("?")
    # The first of several values is effective.
    query = dict(reversed(parse_qsl(text, keep_blank_values=True)))
    method = "GET" if message.method == "HEAD" else message.method
    headers = message.headers
    media_type = headers.get("content-type", "application/json")
    if method in ("POST", "PUT", "PATCH") and not query.get("fieldManager") and not media_type.startswith(_APPLY):
        query["fieldManager"] = _default_field_manager(headers)
    return HttpRequest(
        method=method,
        path=path,
        query=query,
        body=message.body or None,
        content_type=media_type,
        accept=headers.get("accept", "*/*"),
        timeout=math.inf,
    )


def _default_field_manager(headers: Mapping[str, str]) -> str:
    """Default field manager from the User-Agent, as in kube-apiserver."""
    product = headers.get("user-agent", "").partition("/")[0]
    return "".join(c for c in product if c.isprintable())[:_MAX_FIELD_MANAGER_LENGTH]


def _is_stream(request: HttpRequest) -> bool:
    if request.method != "GET":
        return False
    if request.path.endswith("/log"):
        return bool_parameter(request.query, "follow")
    return bool_parameter(request.query, "watch")
