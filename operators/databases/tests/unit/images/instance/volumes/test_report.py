"""The annotation of volumes: what it has, and when it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from steersman_instance.metrics.catalog import SessionLost
from steersman_instance.paths import InstancePaths
from steersman_instance.volumes.report import REPEAT_SECONDS, VolumeReporter, volume_space
from steersman_instance.volumes.wal_retention import InactiveSlot, Retainer, WalRetention
from steersman_pod.api_client import ApiUnavailable

GIB = 1 << 30


@dataclass
class Pod:
    """A pod with volumes of 10 GiB."""

    used: dict[str, int]
    now: float = 0.0
    written: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    available: bool = True

    def reporter(self, retention: WalRetention | None = None) -> VolumeReporter:
        return VolumeReporter(
            volumes={name: Path(name) for name in ("data", "wal")},
            write=self.write,
            retention=retention,
            space=self.space,
            clock=lambda: self.now,
        )

    def space(self, path: Path) -> tuple[int, int] | None:
        used = self.used.get(path.name)
        return None if used is None else (10 * GIB, 10 * GIB - used)

    def write(self, value: str) -> None:
        if not self.available:
            raise ApiUnavailable("no response")
        self.written.append(json.loads(value))

    def step(self, reporter: VolumeReporter, seconds: float = 1) -> int:
        """Run a step. Returns the number of reports so far."""
        self.now += seconds
        reporter.step()
        return len(self.written)


def test_report_has_mounted_volumes() -> None:
    pod = Pod({"data": 4 * GIB})
    pod.step(pod.reporter())
    assert pod.written == [{"data": {"size": 10 * GIB, "available": 6 * GIB}}]


def test_report_is_written_for_each_percent_and_after_minutes() -> None:
    pod = Pod({"data": GIB})
    reporter = pod.reporter()
    assert pod.step(reporter) == 1
    for _ in range(9):
        pod.used["data"] += 10 * GIB // 1000
        assert pod.step(reporter, 10) == 1
    pod.used["data"] += 10 * GIB // 800
    assert pod.step(reporter, 1) == 2
    pod.used["data"] -= 10 * GIB // 80
    assert pod.step(reporter, 1) == 3
    assert pod.step(reporter, REPEAT_SECONDS - 1) == 3
    assert pod.step(reporter, 1) == 4


def test_report_of_rate_begins_and_ends() -> None:
    pod = Pod({"data": 5 * GIB})
    reporter = pod.reporter()
    for _ in range(10):
        pod.step(reporter)
    for _ in range(10):
        pod.used["data"] += GIB // 5
        pod.step(reporter)
    assert pod.written[-1]["data"]["fillRate"] == pytest.approx(GIB // 5, rel=0.05)
    for _ in range(310):
        pod.step(reporter)
    assert "fillRate" not in pod.written[-1]["data"]


def test_report_is_repeated_after_outage() -> None:
    pod = Pod({"data": GIB}, available=False)
    reporter = pod.reporter()
    with pytest.raises(ApiUnavailable):
        pod.step(reporter)
    pod.available = True
    assert pod.step(reporter) == 1


def test_volume_space_is_that_of_the_server(tmp_path: Path) -> None:
    found = volume_space(tmp_path)
    assert found is not None and 0 <= found[1] <= found[0]
    assert volume_space(tmp_path / "missing") is None


class Session:
    """A server's responses."""

    def __init__(self, rows: Sequence[Mapping[str, object]]) -> None:
        self._rows, self.closed = rows, False

    def rows(self, sql: str) -> Sequence[Mapping[str, object]]:
        assert "pg_replication_slots" in sql
        return self._rows

    def close(self) -> None:
        self.closed = True


def instance(tmp_path: Path, waiting: int = 0) -> InstancePaths:
    """Files of an instance with segments of 1 MiB that wait for the archive."""
    paths = InstancePaths(volume=tmp_path / "data", run=tmp_path / "run")
    status = paths.postgresql_data / "pg_wal/archive_status"
    status.mkdir(parents=True)
    (paths.postgresql_data / "pg_wal" / f"{1:024X}").write_bytes(bytes(1 << 20))
    for number in range(waiting):
        (status / f"{number:024X}.ready").touch()
    return paths


def test_retention_names_larger_cause(tmp_path: Path) -> None:
    session = Session([{"name": "audit", "active": False, "retained": 8 << 20, "position": "0/1"}])
    retention = WalRetention(instance(tmp_path, waiting=4), lambda: session)
    retention.inspect()
    assert session.closed
    slot = retention.largest(20 << 20)
    assert slot is not None and slot == Retainer("replication slot audit", 8 << 20, "no client uses it")
    assert slot.amount == "0.0 GiB WAL (no client uses it)"
    assert retention.largest(100 << 20) is None, "a small part is not the cause"


def test_retention_by_archive_is_known_without_server(tmp_path: Path) -> None:
    def refuse() -> Session:
        raise SessionLost("the server does not run")

    retention = WalRetention(instance(tmp_path, waiting=4), refuse)
    retention.inspect()
    found = retention.largest(10 << 20)
    assert found is not None and (found.name, found.size) == ("the archive", 4 << 20)


def test_retention_is_inspected_from_half_of_volume_on(tmp_path: Path) -> None:
    pod = Pod({"data": GIB, "wal": 4 * GIB})
    session = Session([{"name": "audit", "active": True, "retained": 5 * GIB, "position": "0/1"}])
    retention = WalRetention(instance(tmp_path), lambda: session)
    reporter = pod.reporter(retention)
    pod.step(reporter)
    assert not retention.needed and "retainedBy" not in pod.written[-1]["wal"]
    pod.used["wal"] = 6 * GIB
    pod.step(reporter)
    assert retention.needed
    retention.inspect()
    pod.step(reporter)
    assert pod.written[-1]["wal"]["retainedBy"] == "replication slot audit"
    assert pod.written[-1]["wal"]["retained"] == "5.0 GiB WAL"


def test_retention_without_wal_volume_is_of_data_volume(tmp_path: Path) -> None:
    pod = Pod({"data": 6 * GIB})
    retention = WalRetention(
        instance(tmp_path), lambda: Session([{"name": "a", "active": True, "retained": 2 * GIB, "position": "0/1"}])
    )
    reporter = pod.reporter(retention)
    pod.step(reporter)
    assert retention.needed
    retention.inspect()
    pod.step(reporter)
    assert pod.written[-1]["data"]["retainedBy"] == "replication slot a"


def test_retention_reports_inactive_slot_since_it_was_observed(tmp_path: Path) -> None:
    now = 1000.0
    slots = [
        {"name": "busy", "active": True, "retained": 9 << 20, "position": "0/1"},
        {"name": "audit", "active": False, "retained": 8 << 20, "position": "0/1"},
        {"name": "small", "active": False, "retained": 1 << 20, "position": "0/1"},
    ]
    session = Session(slots)
    retention = WalRetention(instance(tmp_path), lambda: session, lambda: now)
    retention.inspect()
    now = 1500.0
    retention.inspect()
    assert retention.inactive_slot(20 << 20) == InactiveSlot("audit", 8 << 20, 1000)
    assert retention.inactive_slot(100 << 20) is None, "a small part"
    assert retention.largest(20 << 20) == Retainer("replication slot busy", 9 << 20)
    pod = Pod({"data": 8 * GIB})
    reporter = pod.reporter(retention)
    pod.step(reporter)
    assert "inactiveSlot" not in pod.written[-1]["data"]
    slots[1]["retained"] = 4 * GIB
    retention.inspect()
    pod.step(reporter)
    assert pod.written[-1]["data"]["inactiveSlot"] == {"name": "audit", "size": 4 * GIB, "since": 1000}
    slots[1]["active"] = True
    retention.inspect()
    pod.step(reporter)
    assert "inactiveSlot" not in pod.written[-1]["data"]
    slots[1]["active"] = False
    retention.inspect()
    found = retention.inactive_slot(20 << 20)
    assert found is not None and found.since == 1500, "its client was connected meanwhile"


def test_retention_slot_that_advances_has_a_client(tmp_path: Path) -> None:
    """A client that connects for moments only is not seen, but moves its slot."""
    now = 1000.0
    slot = {"name": "audit", "active": False, "retained": 8 << 20, "position": "0/1000"}
    retention = WalRetention(instance(tmp_path), lambda: Session([slot]), lambda: now)
    retention.inspect()
    now, slot["position"] = 1500.0, "0/2000"
    retention.inspect()
    found = retention.inactive_slot(20 << 20)
    assert found is not None and found.since == 1500


def test_report_of_inactive_slot_changes_with_its_time(tmp_path: Path) -> None:
    now = 1000.0
    pod = Pod({"data": 8 * GIB})
    slot = {"name": "audit", "active": False, "retained": 4 * GIB, "position": "0/1000"}
    retention = WalRetention(instance(tmp_path), lambda: Session([slot]), lambda: now)
    reporter = pod.reporter(retention)
    for now in (1000.0, 1500.0):
        slot["position"] = f"0/{now:.0f}"
        retention.inspect()
        pod.step(reporter, 1)
        assert pod.written[-1]["data"]["inactiveSlot"]["since"] == now


def test_inactivity_of_slot_starts_again_after_outage(tmp_path: Path) -> None:
    now = 1000.0
    session = Session([{"name": "audit", "active": False, "retained": 8 << 20, "position": "0/1"}])
    responses = iter([session, None, session])

    def connect() -> Session:
        if (found := next(responses)) is None:
            raise SessionLost("no response")
        return found

    retention = WalRetention(instance(tmp_path), connect, lambda: now)
    retention.inspect()
    now = 1500.0
    retention.inspect()
    assert retention.inactive_slot(8 << 20) is None
    assert retention.largest(8 << 20) is not None, "the last response counts for the message"
    retention.inspect()
    found = retention.inactive_slot(8 << 20)
    assert found is not None and found.since == 1500
