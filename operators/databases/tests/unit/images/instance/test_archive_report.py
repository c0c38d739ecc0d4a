"""The report of the primary: states of the archive, recovery points, and how often it is written."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from steersman_instance.archive.assessment import LocalArchive, StoredArchive, archive_state, assess_store
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.archive.record import FileRecord, dropped_file
from steersman_instance.archive.report import Reporter, read_local
from steersman_instance.archive.server_state import ServerState
from steersman_instance.backup.catalog import BaseBackup
from steersman_instance.catalog_object import catalog_path
from steersman_instance.paths import InstancePaths
from steersman_instance.recovery.timelines import Fork, Timelines
from steersman_instance.recovery.wal import Segment, SegmentRanges, SegmentSize

SIZE = SegmentSize()
EPOCH = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
SEGMENT = "000000010000000000000004"


def backup(number: int, start: int, timeline: int = 1) -> BaseBackup:
    """A backup of an hour that begins and ends in one segment."""
    begin = EPOCH + datetime.timedelta(days=number)
    return BaseBackup(
        id=f"2026110{number}-000000F",
        type="Full",
        start=begin,
        stop=begin + datetime.timedelta(hours=1),
        timeline=timeline,
        start_lsn=start * SIZE.bytes + 40,
        stop_lsn=start * SIZE.bytes + 400,
    )


def ranges(timeline: int, *numbers: int) -> SegmentRanges:
    return SegmentRanges.collect(Segment(timeline, number) for number in numbers)


def test_archive_without_gap_is_recoverable_from_oldest_backup() -> None:
    backups = [backup(1, 2), backup(2, 4)]
    found = assess_store(backups, ranges(1, 2, 3, 4, 5), Timelines(known=frozenset({1})), SIZE)
    assert (found.first, found.missing) == (backups[0].stop, "")


def test_gap_moves_first_recovery_point_to_next_backup() -> None:
    backups = [backup(1, 2), backup(2, 4)]
    found = assess_store(backups, ranges(1, 2, 4, 5), Timelines(known=frozenset({1})), SIZE)
    assert (found.first, found.missing) == (backups[1].stop, "")


def test_gap_after_newest_backup_is_reported() -> None:
    found = assess_store([backup(1, 2)], ranges(1, 2, 3, 5), Timelines(known=frozenset({1})), SIZE)
    assert (found.first, found.missing) == (None, SEGMENT)
    assert archive_state(LocalArchive(), found, 0, 60)[0] == "WALMissing"


def test_backup_of_abandoned_timeline_gives_no_recovery_point() -> None:
    timelines = Timelines({2: (Fork(1, 3 * SIZE.bytes),)}, frozenset({1, 2}))
    segments = SegmentRanges({1: ((2, 6),), 2: ((3, 4),)})
    old, abandoned = backup(1, 2), backup(2, 5)
    assert assess_store([abandoned], segments, timelines, SIZE).first is None
    assert assess_store([old, abandoned], segments, timelines, SIZE).first == old.stop


@pytest.mark.parametrize(
    ("local", "state"),
    [
        (LocalArchive(), "Archiving"),
        (LocalArchive(state="StoreFull", message="no room", waiting=3, oldest_waiting=1000), "StoreFull"),
        (LocalArchive(waiting=2, oldest_waiting=1000), "Archiving"),
        (LocalArchive(waiting=2, oldest_waiting=800), "ArchiveLagging"),
        (LocalArchive(dropped_first=SEGMENT), "SegmentsDropped"),
    ],
)
def test_archive_state_names_most_important_problem(local: LocalArchive, state: str) -> None:
    assert archive_state(local, StoredArchive(), 1060, 60)[0] == state


@pytest.fixture
def paths(tmp_path: Path) -> InstancePaths:
    found = InstancePaths(volume=tmp_path / "volume", run=tmp_path / "run", store_file=tmp_path / "store.json")
    (found.postgresql_data / "pg_wal/archive_status").mkdir(parents=True)
    return found


def test_waiting_files_are_counted_with_their_failure(paths: InstancePaths) -> None:
    FileRecord(paths).failed(ArchiveError("StoreUnreachable", "cannot be reached"))
    (paths.postgresql_data / f"pg_wal/archive_status/{SEGMENT}.ready").touch()
    local = read_local(paths)
    assert (local.state, local.waiting) == ("StoreUnreachable", 1)


def test_dropped_segments_outlive_the_pod(paths: InstancePaths) -> None:
    FileRecord(paths).dropped(SEGMENT)
    FileRecord(paths).dropped("000000010000000000000005")
    local = read_local(paths)
    assert local.dropped_first == SEGMENT
    assert dropped_file(paths).parent == paths.volume


class Cluster:
    """A primary and its store, with a clock. Documents are kept with their time."""

    def __init__(self, paths: InstancePaths) -> None:
        self.now = 1_000_000.0
        self.server = ServerState("Running")
        self.written: list[tuple[float, Mapping[str, Any]]] = []
        self.names: frozenset[str] = frozenset()
        self.reads = 0
        self.error: ArchiveError | None = None
        self.paths = paths
        self.reporter = Reporter(
            reader=self, write=self.write, server=lambda: self.server, paths=paths, clock=lambda: self.now
        )

    def prepare(self) -> None:
        pass

    def version(self) -> str:
        if self.error is not None:
            raise self.error
        return str(sorted(self.names))

    def read(self) -> StoredArchive:
        self.reads += 1
        return StoredArchive([backup(1, 2)] if self.names else ())

    def write(self, document: Mapping[str, Any]) -> None:
        self.written.append((self.now, json.loads(json.dumps(document))))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.reporter.step()
            self.now += 5


@pytest.fixture
def cluster(paths: InstancePaths) -> Cluster:
    return Cluster(paths)


def test_replica_reports_nothing(cluster: Cluster) -> None:
    cluster.server = ServerState("Running", replica=True)
    cluster.run(3600)
    assert (cluster.written, cluster.reads) == ([], 0)


def test_idle_primary_writes_once_and_reads_store_rarely(cluster: Cluster) -> None:
    cluster.run(3600)
    assert len(cluster.written) == 1
    assert cluster.reads <= 7


def test_new_backup_is_reported_within_70_seconds(cluster: Cluster) -> None:
    cluster.run(100)
    cluster.names = frozenset({"20261101-000000F"})
    began = cluster.now
    cluster.run(100)
    assert cluster.written[-1][1]["backups"]
    assert cluster.written[-1][0] - began <= 70


def test_busy_archive_is_written_once_a_minute(cluster: Cluster) -> None:
    record = FileRecord(cluster.paths)
    end = cluster.now + 600
    number = 0
    while cluster.now < end:
        number += 1
        record.succeeded(f"0000000100000000000000{number % 256:02X}")
        cluster.run(5)
    assert len(cluster.written) <= 11


def test_failure_is_written_within_ten_seconds(cluster: Cluster) -> None:
    cluster.run(100)
    (cluster.paths.postgresql_data / f"pg_wal/archive_status/{SEGMENT}.ready").touch()
    FileRecord(cluster.paths).failed(ArchiveError("CredentialsRejected", "refused"))
    began = cluster.now
    cluster.run(30)
    assert cluster.written[1][1]["archive"]["state"] == "CredentialsRejected"
    assert cluster.written[1][0] - began <= 10


def test_unreachable_store_is_reported_without_any_wal(cluster: Cluster) -> None:
    cluster.error = ArchiveError("StoreUnreachable", "cannot be reached")
    cluster.run(20)
    assert cluster.written[-1][1]["archive"]["state"] == "StoreUnreachable"
    cluster.error = None
    cluster.run(80)
    assert cluster.written[-1][1]["archive"]["state"] == "Archiving"


def test_catalog_path_is_that_of_the_cluster() -> None:
    path = catalog_path({"POD_NAME": "my-orders-2-0", "POD_NAMESPACE": "shop"})
    assert path == "/api/v1/namespaces/shop/configmaps/my-orders-backup-catalog"
