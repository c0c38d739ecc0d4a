"""The page over TLS, with certificates that change."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Generator
from pathlib import Path

import pytest

from database_support.servers.process import certify
from steersman_instance.metrics.catalog import Metric
from steersman_instance.metrics.server import MetricsServer
from steersman_instance.metrics.snapshot import Snapshot


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    create_certificate(tmp_path)
    return tmp_path


def create_certificate(directory: Path) -> None:
    certify(directory)
    for source, name in (("cert.pem", "tls.crt"), ("key.pem", "tls.key")):
        (directory / source).replace(directory / name)


@pytest.fixture
def server(certificates: Path) -> Generator[MetricsServer]:
    snapshot = Snapshot([], up={"server": Metric("steersman_test_up", "Up.")}, labels={"dbcluster": "orders"})
    started = MetricsServer(snapshot, certificates, "127.0.0.1", 0)
    started.start()
    yield started
    started.stop()


def get(server: MetricsServer, path: str, certificates: Path) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(certificates / "tls.crt"))
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=10, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_server_serves_page_over_tls(server: MetricsServer, certificates: Path) -> None:
    status, text = get(server, "/metrics", certificates)
    assert status == 200
    assert 'steersman_exporter_dropped_series{dbcluster="orders"} 0.0' in text


def test_server_other_path_is_not_found(server: MetricsServer, certificates: Path) -> None:
    assert get(server, "/", certificates)[0] == 404


def test_server_new_certificate_used_for_new_connections(server: MetricsServer, certificates: Path) -> None:
    get(server, "/metrics", certificates)
    create_certificate(certificates)
    assert get(server, "/metrics", certificates)[0] == 200


def test_server_without_certificate_serves_later(server: MetricsServer, certificates: Path) -> None:
    (certificates / "tls.crt").rename(certificates / "absent")
    with pytest.raises(OSError):
        get(server, "/metrics", certificates.parent / "none")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        assert client.recv(1) == b"", "it closes the connection"
    (certificates / "absent").rename(certificates / "tls.crt")
    assert get(server, "/metrics", certificates)[0] == 200


def test_server_silent_clients_do_not_block(server: MetricsServer, certificates: Path) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    assert get(server, "/metrics", certificates)[0] == 200
    for one in silent:
        one.close()
