"""Requests to a debug endpoint with TLS and a token."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from framework_support.certificates import CertificateAuthority
from steersman.errors import ConfigurationError
from steersman_cli.debug_endpoint import DebugEndpoint, fetch_json


class Handler(BaseHTTPRequestHandler):
    """Requires a token."""

    def do_GET(self) -> None:
        is_allowed = self.headers["Authorization"] == "Bearer secret"
        self.send_response(200 if is_allowed else 401)
        self.end_headers()
        self.wfile.write(b"<html>" if self.path == "/html" else b"[1]")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint(tmp_path: Path) -> Generator[DebugEndpoint]:
    """An endpoint behind a forwarded port."""
    authority = CertificateAuthority()
    certificate, key = authority.issue("operator", names=["operator.shop.svc"])
    for name, content in (("ca.crt", authority.certificate), ("pair.pem", certificate + key), ("token", b"secret\n")):
        (tmp_path / name).write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pair.pem")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"https://127.0.0.1:{server.server_port}"
        yield DebugEndpoint(url, tmp_path / "token", tmp_path / "ca.crt", "operator.shop.svc")
        server.shutdown()
        thread.join()


def test_endpoint_with_token_and_authority_is_read(endpoint: DebugEndpoint) -> None:
    assert fetch_json(endpoint, "/debug/controllers", "") == [1]


def test_endpoint_of_another_program_is_named(endpoint: DebugEndpoint) -> None:
    with pytest.raises(ConfigurationError, match="did not respond with JSON, so another program listens there"):
        fetch_json(endpoint, "/html", "")


def test_endpoint_unreachable_names_port_of_dev() -> None:
    with pytest.raises(ConfigurationError, match="--url if `steersman dev` or `steersman run` printed another port"):
        fetch_json(DebugEndpoint("http://127.0.0.1:1"), "/debug/controllers", "")


def test_endpoint_without_token_names_the_option(endpoint: DebugEndpoint) -> None:
    with pytest.raises(ConfigurationError, match="401: set --token-file to a token"):
        fetch_json(endpoint._replace(token_file=None), "/debug/controllers", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tls_server_name": ""}, "CERTIFICATE_VERIFY_FAILED"),
        ({"certificate_authority": None}, "CERTIFICATE_VERIFY_FAILED"),
        ({"certificate_authority": Path("/absent")}, "--certificate-authority /absent cannot be read"),
        ({"token_file": Path("/absent")}, "--token-file /absent cannot be read"),
        ({"url": "http://127.0.0.1:1"}, "--token-file needs a --url with https://"),
    ],
)
def test_endpoint_with_wrong_option_is_rejected(
    endpoint: DebugEndpoint, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        fetch_json(endpoint._replace(**change), "/debug/controllers", "")
