"""Requests to Patroni's REST API whose certificate is of an authority that nobody has any more."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from database_support.unit.declared_clusters import declared_cluster
from steersman.meta import ObjectKey
from steersman_databases.engines.errors import CertificateRefused, ServerUnreachable
from steersman_databases.engines.postgresql.ha import rest_client
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.certificates.model import CertificateRequest, build_certificate_set

Secrets = Mapping[ObjectKey, Mapping[str, bytes]]
NAMES = declared_cluster().names


def secrets() -> Secrets:
    """A cluster's, with authorities of their own."""
    return build_certificate_set(declared_cluster(), CertificateRequest(), {}, None, datetime.now(UTC)).data


def serving(own: Secrets, directory: Path) -> ssl.SSLContext:
    """What Patroni does with them: it wants a certificate for changes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for file in ("tls.crt", "tls.key"):
        (directory / file).write_bytes(own[NAMES.server_certificate][file])
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    context.load_verify_locations(cadata=own[NAMES.peer_certificate]["ca.crt"].decode())
    context.verify_mode = ssl.CERT_REQUIRED
    return context


class Handler(BaseHTTPRequestHandler):
    """Answers as Patroni does, which is a server of threads as well."""

    def setup(self) -> None:
        self.request.do_handshake()
        super().setup()

    def do_POST(self) -> None:
        self.send_response(202)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """One of whose handshakes fail some."""

    def handle_error(self, request: object, client_address: object) -> None:
        """They are meant to."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[ServerEndpoint, Secrets]]:
    """A server with Secrets of its own, which goes before they do."""
    own = secrets()
    with Server(("127.0.0.1", 0), Handler) as server:
        context = serving(own, tmp_path)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield ServerEndpoint("127.0.0.1", server.server_port), own
        server.shutdown()
        thread.join()


async def reload(endpoint: ServerEndpoint, own: Secrets, theirs: Secrets) -> None:
    context = rest_client.client_ssl_context(own[NAMES.operator_certificate], theirs[NAMES.server_certificate])
    await rest_client.post(endpoint, "/reload", {}, context)


# The other way round it is luck: a server's reset may be faster than its word that it does not trust us.
async def test_certificate_error_is_distinguished(served: tuple[ServerEndpoint, Secrets]) -> None:
    (endpoint, present), lost = served, secrets()
    await reload(endpoint, present, present)
    with pytest.raises(CertificateRefused, match="certificate verify failed"):
        await reload(endpoint, present, lost)
    with pytest.raises(ServerUnreachable) as silent:
        await reload(ServerEndpoint("127.0.0.1", 1), present, present)
    assert not isinstance(silent.value, CertificateRefused)
