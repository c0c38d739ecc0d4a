"""Collectors that need no database server, and the labels of a pod."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from database_support.servers.process import certify
from steersman_instance.metrics.catalog import CollectFailed, Reading
from steersman_instance.metrics.exporter import instance_labels
from steersman_instance.metrics.host import AgentReport, Certificates, HostSession, Patroni, Volumes


def values(reading: Reading) -> dict[str, float]:
    return {"/".join((one.metric.name, *one.labels)).removeprefix("steersman_"): one.value for one in reading.samples}


def test_volumes_absent_volume_has_no_series(tmp_path: Path) -> None:
    found = values(Volumes({"data": tmp_path, "wal": tmp_path / "absent"}).collect(HostSession()))
    assert 0 < found["volume_available_bytes/data"] <= found["volume_size_bytes/data"]
    assert not any(name.endswith("/wal") for name in found)


def test_certificates_end_of_validity_is_read(tmp_path: Path) -> None:
    certify(tmp_path)
    paths = {"server": tmp_path / "cert.pem", "peer": tmp_path / "absent"}
    found = values(Certificates(paths).collect(HostSession()))
    assert found == {"certificate_not_after_timestamp_seconds/server": pytest.approx(time.time() + 86400, abs=600)}


def test_certificates_damaged_file_fails(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("not a certificate")
    with pytest.raises(CollectFailed, match="certificate server"):
        Certificates({"server": tmp_path / "tls.crt"}).collect(HostSession())


def test_agent_report_shows_state_and_errant(tmp_path: Path) -> None:
    file = tmp_path / "member.json"
    collector = AgentReport(file)
    assert collector.collect(HostSession()).samples == ()
    file.write_text(json.dumps({"state": "Offline", "maybeErrant": True, "errantGtids": None}))
    found = values(collector.collect(HostSession()))
    assert found["mysql_member_state/Offline"] == 1
    assert found["mysql_member_state/Online"] == 0
    assert found["mysql_errant"] == 1


def test_agent_report_of_other_form_fails(tmp_path: Path) -> None:
    (tmp_path / "member.json").write_text("[]")
    with pytest.raises(CollectFailed, match="report of the agent"):
        AgentReport(tmp_path / "member.json").collect(HostSession())


def test_patroni_unreachable_fails(tmp_path: Path) -> None:
    certify(tmp_path)
    with pytest.raises(CollectFailed, match="Patroni"):
        Patroni(tmp_path / "cert.pem", port=1).collect(HostSession())


@pytest.mark.parametrize(("pod", "cluster"), [("orders-0-0", "orders"), ("my-orders-12-0", "my-orders")])
def test_instance_labels_name_cluster(pod: str, cluster: str) -> None:
    assert instance_labels(pod) == {"dbcluster": cluster}
