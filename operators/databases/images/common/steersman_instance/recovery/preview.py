"""Plan of a restore in place. It only reads the archive."""

from __future__ import annotations

import datetime
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..backup.repository import Repository
from ..jobs import JobFields, JobRefused, Result, require_store
from ..paths import InstancePaths
from ..restore.request import reached
from .evidence import Commit, WalReader
from .plan import Archive, RecoveryPlan, RecoveryRefused, plan_recovery, segments_of
from .postgresql import RecoveryJob, database_of
from .target import AtLsn, AtTime, Latest, format_time
from .timelines import Lineage
from .wal import MAX_LSN, Segment

_LOST_BYTES = 1 << 30
_LOST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Lost:
    """Archived commits that a plan does not restore.

    Args:
        is_minimum: True if not all WAL was counted, because it is long or missing.
    """

    commits: int
    is_minimum: bool


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Choose backup and timeline of a target. Return them with the last commit.

    Raises:
        JobRefused: the archive has no way to the target.
        ArchiveError: the object store cannot be read.
    """
    given = RecoveryJob.parse(job)
    store = require_store(paths.store_file)
    if store.engine != "postgresql":
        raise JobRefused("WrongEngine", f"The archive at {store.root} is of {store.engine}, not of PostgreSQL.")
    repository = Repository(store, replace(paths, run=paths.run / "source"))
    try:
        return {"plan": reached(lambda: _preview(given, repository), given.target)}
    except RecoveryRefused as refused:
        raise JobRefused(refused.reason, refused.message) from None


def _preview(job: RecoveryJob, repository: Repository) -> Result:
    repository.check_ownership()
    catalog = repository.catalog()
    database = database_of(catalog, job, repository.store)
    backups = catalog.backups.get(database.id, ())
    wal = repository.wal(database, backups)
    archive = Archive(backups=backups, timelines=wal.timelines, segments=wal.ranges, size=wal.size)
    with tempfile.TemporaryDirectory() as directory:
        reader = WalReader(repository, wal, Path(directory))
        plan = plan_recovery(archive, reader, job.target, timeline=job.timeline, backup_id=job.backup_id)
        last = _last_commit(archive, reader, plan)
        end = time.monotonic() + _LOST_SECONDS
        first = _first_lost(archive, reader, plan)
        lost = count_lost(archive, reader.commits, plan, first, lambda: time.monotonic() > end)
    return {
        "backup": plan.backup.id,
        "timeline": plan.timeline,
        "newestTimeline": archive.timelines.newest or plan.timeline,
        "restoresTo": format_time(last or plan.backup.stop),
        "lostTransactions": lost.commits,
        "lostIsMinimum": lost.is_minimum,
        "sizeBytes": plan.backup.size,
        "overwrites": True,
    }


def count_lost(
    archive: Archive,
    commits: Callable[[Segment], Sequence[Commit]],
    plan: RecoveryPlan,
    first: int,
    is_late: Callable[[], bool],
) -> Lost:
    """Count the commits that a plan does not restore.

    They are those of the newest history.

    Args:
        commits: reads a segment.
        first: number of a segment that begins before the target.
        is_late: returns True when counting should end.
    """
    size = archive.size
    present = archive.timelines.lineage(archive.timelines.newest or plan.timeline)
    fork = _fork(present, archive.timelines.lineage(plan.timeline))
    if isinstance(plan.target, Latest) and fork == MAX_LSN:
        return Lost(0, is_minimum=False)
    walk = present.walk(archive.segments, size, present.spans[0].timeline, min(first, size.number(fork)))
    segments = [Segment(run.timeline, n) for run, last in walk.segments for n in range(run.number, last + 1)]
    found, is_behind = 0, False
    for segment in segments[: _LOST_BYTES // size.bytes]:
        if is_late():
            return Lost(found, is_minimum=True)
        for commit in commits(segment):
            is_behind = is_behind or commit.lsn >= fork or _is_behind(commit, plan.target)
            found += is_behind
    # The last WAL of a timeline may be in the parent's copy of a segment alone.
    has_more = any(Segment(span.timeline, walk.ends_in.number) in archive.segments for span in present.spans)
    is_long = len(segments) > _LOST_BYTES // size.bytes
    return Lost(found, is_minimum=walk.missing is not None or has_more or is_long)


def _is_behind(commit: Commit, target: Latest | AtTime | AtLsn) -> bool:
    """Return True for a commit after the target.

    Replay ends at the first one, whatever the time of others.
    """
    match target:
        case AtTime(moment):
            return commit.time > moment
        case AtLsn(lsn):
            return commit.lsn > lsn
        case Latest():
            return False


def _fork(one: Lineage, other: Lineage) -> int:
    """Return the position at which two lineages part. MAX_LSN if none."""
    for first, second in zip(one.spans, other.spans, strict=False):
        if first != second:
            return first.start if first.timeline != second.timeline else min(first.end, second.end)
    return MAX_LSN


def _first_lost(archive: Archive, reader: WalReader, plan: RecoveryPlan) -> int:
    """Return the number of a segment that begins before the target."""
    match plan.target:
        case AtTime(moment):
            segments = segments_of(archive, plan)
            # Segments without commits may follow the one with the target.
            before = segments[_first_reaching(reader, segments, moment) :]
            numbers = (each.number for each in before if reader.first_commit(iter([each])) is not None)
            return next(numbers, archive.size.number(plan.backup.start_lsn))
        case AtLsn(lsn):
            return archive.size.number(lsn)
        case Latest():
            return archive.size.number(MAX_LSN)


def _last_commit(archive: Archive, reader: WalReader, plan: RecoveryPlan) -> datetime.datetime | None:
    """Return the last commit at or before the target.

    For a position it may be a later one of the same segment.
    """
    segments = segments_of(archive, plan)
    match plan.target:
        case AtTime(moment):
            return reader.last_commit(iter(segments[_first_reaching(reader, segments, moment) :]), until=moment)
        case AtLsn(lsn):
            number = archive.size.number(lsn)
            return reader.last_commit(segment for segment in segments if segment.number <= number)
        case _:
            return reader.last_commit(iter(segments))


def _first_reaching(reader: WalReader, segments: Sequence[Segment], moment: datetime.datetime) -> int:
    """Return the index of the newest segment that begins before a time. Each probe reads a segment.

    Args:
        segments: newest first.
    """
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        first = reader.first_commit(iter(segments[middle:]))
        if first is None or first <= moment:
            high = middle
        else:
            low = middle + 1
    return low
