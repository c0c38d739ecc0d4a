"""State of an archive, from pod and object store. Pure.

Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backup.catalog import BaseBackup
from ..recovery.target import format_time
from ..recovery.timelines import Timelines
from ..recovery.wal import SegmentRanges, SegmentSize

FORMAT = 1
MAX_BACKUPS = 2000
"""Number of reported backups.

Each needs 350 bytes in a ConfigMap of at most 1 MiB.
"""
MIN_LAG_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalArchive:
    """The archive as the primary's pod sees it. Times are in seconds of the epoch.

    Args:
        state: of the last push: ``Archiving``, or the reason of its failure.
        since: when this state began; 0 before the first push.
        waiting: number of files that wait for the object store.
        oldest_waiting: when the first of them was complete; 0 where none waits.
        last: name of the file that was archived last.
        last_complete: when it was complete, hence before which commits are archived; 0 if unknown.
        dropped_first: first file that was dropped, or an empty text.
        dropped_at: when a file was dropped last.
    """

    state: str = "Archiving"
    message: str = ""
    since: float = 0.0
    waiting: int = 0
    oldest_waiting: float = 0.0
    last: str = ""
    last_complete: float = 0.0
    dropped_first: str = ""
    dropped_at: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredArchive:
    """The archive as the object store lists it.

    Args:
        first: moment from which recovery is possible without a gap, or None.
        missing: the first missing segment that WAL and backups follow, or an empty text.
    """

    backups: Sequence[BaseBackup] = ()
    first: datetime.datetime | None = None
    missing: str = ""


def assess_store(
    backups: Sequence[BaseBackup], ranges: SegmentRanges, timelines: Timelines, size: SegmentSize
) -> StoredArchive:
    """Return from which backup on the WAL has no gap.

    Args:
        backups: of the database that is archived now, oldest first.
    """
    if timelines.newest is None:
        return StoredArchive(backups)
    lineage = timelines.lineage(timelines.newest)
    missing = ""
    for backup in backups:
        if not lineage.contains(backup.timeline, backup.stop_lsn):
            continue  # of an abandoned timeline
        walk = lineage.walk(ranges, size, backup.timeline, size.number(backup.start_lsn))
        if walk.missing is None and walk.ends_in.number > size.number(max(backup.stop_lsn - 1, 0)):
            return StoredArchive(backups, backup.stop, "")
        missing = size.name(walk.missing or walk.ends_in)
    return StoredArchive(backups, None, missing)


def archive_state(local: LocalArchive, stored: StoredArchive, now: float, interval_seconds: float) -> tuple[str, str]:
    """Return the state and one sentence about it. A failure that users can fix comes first."""
    if local.state != "Archiving":
        return local.state, local.message
    if local.dropped_first:
        return "SegmentsDropped", (
            f"WAL from {local.dropped_first} on was dropped, since the volume was full and the object store was not "
            "available. Recovery into this gap is impossible; the next full backup ends it."
        )
    if stored.missing:
        return "WALMissing", f"WAL segment {stored.missing} is missing in the archive. Take a new full backup."
    lag = now - local.oldest_waiting if local.waiting and local.oldest_waiting else 0.0
    if lag > max(2 * interval_seconds, MIN_LAG_SECONDS):
        return "ArchiveLagging", f"{local.waiting} WAL files wait for the object store, the oldest for {lag:.0f} s."
    return "Archiving", "WAL is archived."


def catalog_document(
    local: LocalArchive, stored: StoredArchive, now: float, *, interval_seconds: float, segment_bytes: int
) -> dict[str, Any]:
    """Return the content of ``catalog.json``."""
    state, message = archive_state(local, stored, now, interval_seconds)
    last = local.last_complete if stored.first is not None and local.last_complete else None
    if last is not None and stored.first is not None:
        last = max(last, stored.first.timestamp())
    return {
        "format": FORMAT,
        "at": _time(now),
        "backups": [backup.entry() for backup in stored.backups[-MAX_BACKUPS:]],
        "recovery": {
            "first": None if stored.first is None else format_time(stored.first),
            "last": None if last is None else _time(last),
        },
        "archive": {
            "state": state,
            "message": message[:1000],
            "since": _time(local.since) if local.since else None,
            "waitingBytes": local.waiting * segment_bytes,
            "lastArchived": local.last,
        },
    }


def is_urgent(previous: Mapping[str, Any] | None, document: Mapping[str, Any]) -> bool:
    """Return True if more has changed than the progress of archiving."""
    if previous is None:
        return True
    same_state = previous["archive"]["state"] == document["archive"]["state"]
    return not same_state or any(
        previous[key] != document[key] if key == "backups" else previous[key]["first"] != document[key]["first"]
        for key in ("backups", "recovery")
    )


def _time(seconds: float) -> str:
    return format_time(datetime.datetime.fromtimestamp(seconds, datetime.UTC))
