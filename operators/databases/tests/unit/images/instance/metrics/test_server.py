"""The page over TLS, with certificates that change."""

from __future__ import annotations

import http.client
import itertools
import json
import math
import socket
import ssl
from collections.abc import Generator
from pathlib import Path

import pytest

from database_support.servers.process import certify
from steersman_instance.metrics import local_request
from steersman_instance.metrics.catalog import Metric
from steersman_instance.metrics.history import program
from steersman_instance.metrics.history.recorder import STEP_SECONDS, History
from steersman_instance.metrics.history.sources import Readings, Series
from steersman_instance.metrics.local_request import RESPONSE_LIMIT_BYTES
from steersman_instance.metrics.server import MetricsServer
from steersman_instance.metrics.snapshot import Snapshot
from steersman_instance.paths import InstancePaths

POINTS = 360


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
    clock = itertools.count(step=STEP_SECONDS)
    series = [Series(f"series_{number}", "count", Constant()) for number in range(25)]
    history = History(series, dict, lambda: next(clock))
    for _ in range(POINTS):
        history.record()
    started = MetricsServer(snapshot, history, certificates, "127.0.0.1", 0)
    started.start()
    yield started
    started.stop()


class Constant:
    """A value with many digits, and at last none."""

    def __init__(self) -> None:
        self._left = POINTS - 1

    def value(self, readings: Readings) -> float:
        self._left -= 1
        return 1e15 / 3 if self._left >= 0 else math.nan


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


@pytest.mark.parametrize(("query", "seconds", "points"), [("", 10, 360), ("?resolution=5m", 300, 12)])
def test_server_history_is_bounded_json(
    server: MetricsServer, certificates: Path, query: str, seconds: int, points: int
) -> None:
    status, text = get(server, f"/history{query}", certificates)
    found = json.loads(text)
    assert (status, found["resolutionSeconds"], len(found["series"])) == (200, seconds, 25)
    assert {len(one["values"]) for one in found["series"]} == {points}
    assert found["series"][0]["values"][0] == pytest.approx(1e15 / 3, rel=1e-5)
    assert "NaN" not in text and len(text) <= RESPONSE_LIMIT_BYTES / 4


@pytest.mark.parametrize("query", ["?resolution=1s", "?resolution=10s&resolution=x"])
def test_server_unknown_resolution_is_refused(server: MetricsServer, certificates: Path, query: str) -> None:
    assert get(server, f"/history{query}", certificates)[0] == 400


def test_server_local_request_checks_authority(server: MetricsServer, certificates: Path, tmp_path: Path) -> None:
    assert local_request.get(server.port, "/history", certificates / "tls.crt")[0] == 200
    (tmp_path / "other").mkdir()
    certify(tmp_path / "other")
    with pytest.raises(local_request.RequestFailed, match="certificate"):
        local_request.get(server.port, "/history", tmp_path / "other/cert.pem")


def test_history_program_prints_response(
    server: MetricsServer, certificates: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "PATHS", InstancePaths(tls=certificates))
    monkeypatch.setattr(program, "PORT", server.port)
    assert program.main(["5m"]) == 1, "there is no authority"
    assert "does not respond" in capsys.readouterr().err
    (certificates / "ca.crt").write_bytes((certificates / "tls.crt").read_bytes())
    assert program.main(["5m"]) == 0
    assert json.loads(capsys.readouterr().out)["resolutionSeconds"] == 300
    assert program.main(["1s"]) == program.main([]) == 2


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
