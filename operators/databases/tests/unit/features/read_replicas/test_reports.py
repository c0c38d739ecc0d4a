"""The report of a read replica, from the program to the operator over TLS."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from database_support.archive.authority import Authority
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.read_replicas.model import ReadReplicaReport
from steersman_databases.features.read_replicas.reports import get_report, parse_report
from steersman_instance.read_replica.report import Report, handler
from steersman_instance.tls_server import TlsServer


def test_report_reaches_the_operator(tmp_path: Path) -> None:
    authority = Authority.create("server")
    certificate, key = authority.issue("localhost")
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    now = time.monotonic()
    report = Report(at=now, state="Streaming", lag_seconds=0.5, max_lag_seconds=1, connections=7, cpu_cores=0.25)
    server = TlsServer(handler(lambda: report, lambda: now), tmp_path, "127.0.0.1")
    server.start("report")
    endpoint = ServerEndpoint("127.0.0.1", server.port)
    try:
        found = asyncio.run(get_report(endpoint, authority.certificate.decode()))
        assert found == ReadReplicaReport(state="Streaming", cpu_cores=0.25, connections=7)
        with pytest.raises(ServerUnreachable):
            asyncio.run(get_report(endpoint, Authority.create("server").certificate.decode()))
    finally:
        server.stop()
    with pytest.raises(ServerUnreachable):
        asyncio.run(get_report(endpoint, authority.certificate.decode()))


@pytest.mark.parametrize("body", [b"", b"[]", b"{"])
def test_malformed_report_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_report(body)
