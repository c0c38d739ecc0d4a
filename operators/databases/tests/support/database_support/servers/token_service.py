"""A token service like that of AWS, over TLS, and a proxy that leads all hosts to it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_WR, create_connection, socket
from typing import Any
from urllib.parse import parse_qs, urlsplit

from devcluster.store import Credentials
from framework_support.certificates import CertificateAuthority

_RESPONSE = """<?xml version="1.0"?>
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{key}</SecretAccessKey><SessionToken></SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""
_CHUNK = 65536


@dataclass
class TokenService:
    """Exchanges the token of one ServiceAccount for credentials.

    Attributes:
        token: the only one that is accepted.
        credentials: returned for it, without a session token: versitygw rejects those.
        ca: PEM of the authority of its certificate.
        port: on loopback.
        proxy_port: of an HTTP proxy whose hosts are all this service.
        roles: role of each accepted request.
        refused: number of refused requests.
    """

    token: str
    credentials: Credentials
    ca: bytes
    port: int = 0
    proxy_port: int = 0
    roles: list[str] = field(default_factory=list[str])
    refused: int = 0

    def respond(self, fields: dict[str, str]) -> tuple[int, str]:
        """Return status and body for a request."""
        if fields.get("Action") != "AssumeRoleWithWebIdentity" or fields.get("WebIdentityToken") != self.token:
            self.refused += 1
            return 400, "<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>"
        self.roles.append(fields["RoleArn"])
        given = self.credentials
        return 200, _RESPONSE.format(id=given.access_key_id, key=given.secret_access_key)


@contextmanager
def token_service(
    directory: Path, token: str, credentials: Credentials, names: tuple[str, ...]
) -> Generator[TokenService]:
    """Run a token service and its proxy during the block.

    Args:
        names: further host names of its certificate.
    """
    authority = CertificateAuthority()
    certificate, key = authority.issue("sts", names=["localhost", *names])
    pem = directory / "sts.pem"
    pem.write_bytes(certificate + key)
    service = TokenService(token, credentials, authority.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _proxy_to(server.server_port))
    service.port, service.proxy_port = server.server_port, proxy.server_port
    threads = [threading.Thread(target=each.serve_forever, args=(0.01,), daemon=True) for each in (server, proxy)]
    for thread in threads:
        thread.start()
    try:
        yield service
    finally:
        for each in (server, proxy):
            each.shutdown()
            each.server_close()


def _handler(service: TokenService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            query = "&".join(part for part in (urlsplit(self.path).query, body) if part)
            status, content = service.respond({name: values[0] for name, values in parse_qs(query).items()})
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: requests have tokens."""

    return Handler


def _proxy_to(port: int) -> type[BaseHTTPRequestHandler]:
    class Proxy(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            with create_connection(("127.0.0.1", port)) as target:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=_copy, args=(target, self.connection), daemon=True)
                back.start()
                _copy(self.connection, target)
                back.join()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return Proxy


def _copy(source: socket, target: socket) -> None:
    try:
        while content := source.recv(_CHUNK):
            target.sendall(content)
        target.shutdown(SHUT_WR)
    except OSError:
        return
