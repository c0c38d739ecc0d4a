"""Binary log chunks that are missing in the store, in the report and in a recovery."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from database_support.unit.binlog_events import UUID, Transaction, session
from database_support.unit.memory_archive import STORE, MemoryArchive
from steersman_instance.backup.mysql_base import MysqlArchive
from steersman_instance.backup.mysql_catalog import MysqlBackup
from steersman_instance.backup.restic import Restic
from steersman_instance.binlog.report import ContentReader, Reporter
from steersman_instance.gtids import NO_GTIDS, GtidSet
from steersman_instance.paths import InstancePaths
from steersman_instance.recovery.mysql_restore import plan
from steersman_instance.recovery.plan import RecoveryRefused
from steersman_instance.recovery.target import Latest

SESSIONS = ["s0", "s1", "s2", "s3", "s4"]
"""Four transactions each, a chunk for each event; a transaction has three."""
LAST = 4 * len(SESSIONS)
BACKUP = 2


def up_to(last: int) -> GtidSet:
    return GtidSet.parse(f"{UUID}:1-{last}") if last else NO_GTIDS


def filled() -> MemoryArchive:
    archive = MemoryArchive()
    chunks = archive.chunks()
    for index, name in enumerate(SESSIONS):
        first = 4 * index + 1
        made = [Transaction(n, committed_at=n * 1_000_000) for n in range(first, first + 4)]
        for chunk in session(name, up_to(first - 1), made, range(1, 12)):
            chunks.put(chunk)
    at = datetime.datetime.fromtimestamp(BACKUP, datetime.UTC)
    backup = MysqlBackup(
        id="b", snapshot="0", start=at, stop=at, gtids=up_to(BACKUP), size=10, stored=5, version="9.7.4"
    )
    archive.catalog().add(backup)
    return archive


class Report:
    """The report of the primary, a minute after the last."""

    def __init__(self, archive: MemoryArchive) -> None:
        self.clock = 1000.0
        self._written: list[dict[str, Any]] = []
        reader = ContentReader(archive.catalog(), archive.chunks())
        self._reporter = Reporter(
            reader.read,
            lambda text: self._written.append(json.loads(text)),
            5.0,
            clock=lambda: self.clock,
            now=lambda: 100.0,
        )

    def next(self) -> dict[str, Any]:
        self.clock += 61.0
        state = {"reason": "Archiving", "stored": str(up_to(LAST)), "coveredAt": 100.0, "lastCommit": LAST * 1e6}
        self._reporter.step(state)
        return self._written[-1]


def refusal(archive: MemoryArchive, tmp_path: Path) -> str:
    """Return why a recovery of everything is refused."""
    restic = Restic(STORE, paths=InstancePaths(run=tmp_path))
    try:
        plan(MysqlArchive(restic=restic, catalog=archive.catalog(), chunks=archive.chunks()), Latest(), "9.7")
    except RecoveryRefused as error:
        return f"{error.reason}: {error.message}"
    return ""


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("number", range(12))
def test_missing_chunk_is_reported_as_a_recovery_sees_it(name: str, number: int, tmp_path: Path) -> None:
    archive = filled()
    report = Report(archive)
    assert report.next()["archive"]["state"] == "Archiving"
    assert not refusal(archive, tmp_path)
    archive.objects("mysql/binlog").delete([f"{name}/{number:08d}"])
    found = report.next()
    transaction = 4 * SESSIONS.index(name) + number // 3 + 1
    if transaction <= BACKUP:
        assert found["archive"]["state"] == "Archiving"
        assert not refusal(archive, tmp_path)
    else:
        assert found["archive"]["state"] == "BinaryLogMissing"
        assert f"lacks transactions {UUID}:{transaction}." in found["archive"]["message"]
        assert found["recovery"] == {"first": None, "last": None}
        if (name, number) != (SESSIONS[-1], 11):  # a recovery cannot know that there was another
            assert "BinaryLogMissing" in (refused := refusal(archive, tmp_path)), refused
            assert f"{UUID}:{transaction}." in refused


def test_missing_session_is_reported(tmp_path: Path) -> None:
    archive = filled()
    report = Report(archive)
    report.next()
    archive.objects("mysql/binlog").delete([f"s1/{number:08d}" for number in range(12)])
    assert f"lacks transactions {UUID}:5-8." in report.next()["archive"]["message"]
    assert "BinaryLogMissing" in refusal(archive, tmp_path)


def test_complete_sessions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = filled()
    chunks = archive.chunks()
    reader = ContentReader(archive.catalog(), chunks)
    first = reader.read()
    read: list[str] = []
    original = chunks.header

    def header(name: str, number: int) -> Any:
        read.append(name)
        return original(name, number)

    monkeypatch.setattr(chunks, "header", header)
    assert reader.read() == first
    assert set(read) <= set(SESSIONS[-4:]), "only the newest chunk is searched for"
    assert len(read) == 4
