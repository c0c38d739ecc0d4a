"""The report of MySQL's archive."""

from __future__ import annotations

import datetime
import json
from typing import Any

from database_support.unit.binlog_events import UUID, Transaction, session
from database_support.unit.memory_archive import MemoryArchive
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.backup.mysql_catalog import MysqlBackup
from steersman_instance.binlog.report import ArchiveContent, ContentReader, Reporter, document
from steersman_instance.gtids import NO_GTIDS, GtidSet


def at(second: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(second, datetime.UTC)


def up_to(last: int) -> GtidSet:
    return GtidSet.parse(f"{UUID}:1-{last}") if last else NO_GTIDS


def content(backups: list[int], sessions: list[tuple[int, int]]) -> ArchiveContent:
    """Return an archive whose transactions were committed at the second of their number."""
    archive = MemoryArchive()
    chunks, catalog = archive.chunks(), archive.catalog()
    for index, (first, last) in enumerate(sessions):
        made = [Transaction(n, committed_at=n * 1_000_000) for n in range(first, last + 1)]
        for chunk in session(f"s{index}", up_to(first - 1), made):
            chunks.put(chunk)
    for last in backups:
        catalog.add(
            MysqlBackup(
                id=f"b{last}",
                snapshot="0",
                start=at(last),
                stop=at(last + 0.5),
                gtids=up_to(last),
                size=10,
                stored=5,
                version="9.7.4",
            )
        )
    return ContentReader(catalog, chunks).read()


def state(last: int, **others: Any) -> dict[str, Any]:
    return {"reason": "Archiving", "stored": str(up_to(last)), "coveredAt": 100.0, "lastCommit": last * 1e6, **others}


def test_window_reaches_from_the_oldest_backup_without_a_gap() -> None:
    found = document(content([2, 5, 9], [(1, 3), (5, 12)]), state(12), 5.0, 101.0)
    assert found["recovery"] == {"first": "1970-01-01T00:00:05.500000Z", "last": "1970-01-01T00:01:40Z"}
    assert found["archive"]["state"] == "Archiving"
    assert [each["id"] for each in found["backups"]] == ["b2", "b5", "b9"]


def test_gap_after_the_newest_backup_is_reported() -> None:
    found = document(content([2], [(1, 3), (6, 8)]), state(8), 5.0, 101.0)
    assert found["recovery"] == {"first": None, "last": None}
    assert found["archive"]["state"] == "BinaryLogMissing"
    assert "new backup" in found["archive"]["message"]
    dropped = document(content([2], [(1, 3), (6, 8)]), state(8, lost=f"{UUID}:4-5"), 5.0, 101.0)
    assert dropped["archive"]["state"] == "SegmentsDropped"


def test_archive_that_falls_behind_is_reported() -> None:
    assert document(content([2], [(1, 8)]), state(8), 5.0, 171.0)["archive"]["state"] == "ArchiveLagging"


def test_report_is_written_when_it_changes() -> None:
    found = content([2], [(1, 8)])
    written: list[dict[str, Any]] = []
    failing = False

    def read() -> ArchiveContent:
        if failing:
            raise ArchiveError("StoreUnreachable", "It cannot be reached.")
        return found

    clock = 1000.0
    reporter = Reporter(
        read, lambda text: written.append(json.loads(text)), 5.0, clock=lambda: clock, now=lambda: clock - 900.0
    )
    reporter.step(state(8))
    reporter.step(state(8))
    assert len(written) == 1
    assert written[0]["archive"]["since"] == written[0]["at"] == "1970-01-01T00:01:40Z"
    failing, clock = True, 1065.0
    reporter.step(state(8))
    assert [each["archive"]["state"] for each in written] == ["Archiving", "StoreUnreachable"]
    assert written[1]["backups"] == written[0]["backups"], "the last catalog stays"
