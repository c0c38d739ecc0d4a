"""The plan of a restore in place of MySQL."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from database_support.unit.binlog_events import UUID, Transaction, session
from database_support.unit.memory_archive import STORE, MemoryArchive
from steersman_instance.backup.mysql_base import MysqlArchive
from steersman_instance.backup.mysql_catalog import MysqlBackup
from steersman_instance.backup.restic import Restic
from steersman_instance.gtids import NO_GTIDS, GtidSet
from steersman_instance.paths import InstancePaths
from steersman_instance.recovery.gtid_plan import BeforeGtid, GtidTarget, ThroughGtid
from steersman_instance.recovery.mysql_preview import preview
from steersman_instance.recovery.target import AtTime, Latest

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EVENTS = 3  # of each transaction


def at(second: float) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=second)


@pytest.fixture
def archive(tmp_path: Path) -> MysqlArchive:
    """A backup after the second of nine transactions. Chunks end within the fifth and after the seventh."""
    made = MemoryArchive()
    chunks, catalog = made.chunks(), made.catalog()
    transactions = [Transaction(n, committed_at=n * 1_000_000) for n in range(1, 10)]
    for chunk in session("19700101T000000Z-a", NO_GTIDS, transactions, (4 * EVENTS + 1, 7 * EVENTS)):
        chunks.put(chunk)
    gtids = GtidSet.parse(f"{UUID}:1-2")
    catalog.add(
        MysqlBackup(id="b", snapshot="0", start=at(2), stop=at(2.5), gtids=gtids, size=10, stored=5, version="9.7.4")
    )
    return MysqlArchive(restic=Restic(STORE, paths=InstancePaths(run=tmp_path)), catalog=catalog, chunks=chunks)


@pytest.mark.parametrize(
    ("target", "restores_to", "lost"),
    [
        (AtTime(at(2.7)), 2.5, 7),
        (AtTime(at(5.5)), 5, 4),
        (AtTime(at(8)), 8, 1),
        (BeforeGtid(NO_GTIDS.add(UUID, 5)), 4, 5),
        (ThroughGtid(NO_GTIDS.add(UUID, 7)), 7, 2),
        (Latest(), 9, 0),
    ],
)
def test_plan_counts_what_is_lost(archive: MysqlArchive, target: GtidTarget, restores_to: float, lost: int) -> None:
    found = preview(archive, target, "9.7")
    time = datetime.datetime.fromisoformat(str(found["restoresTo"]))
    assert (found["backup"], time, found["lostTransactions"], found["sizeBytes"]) == ("b", at(restores_to), lost, 10)
    assert found["overwrites"]
