"""Plan of a restore in place. It only reads the archive."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..backup.repository import Repository
from ..jobs import JobFields, JobRefused, Result, require_store
from ..paths import InstancePaths
from ..restore.request import reached
from .evidence import WalReader
from .plan import Archive, RecoveryPlan, RecoveryRefused, plan_recovery, segments_of
from .postgresql import RecoveryJob, database_of
from .target import AtLsn, AtTime, format_time
from .wal import Segment


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
    return {
        "backup": plan.backup.id,
        "timeline": plan.timeline,
        "newestTimeline": archive.timelines.newest or plan.timeline,
        "restoresTo": format_time(last or plan.backup.stop),
        "sizeBytes": plan.backup.size,
    }


def _last_commit(archive: Archive, reader: WalReader, plan: RecoveryPlan) -> datetime.datetime | None:
    """Return the last commit at or before the target.

    For a position it may be a later one of the same segment.
    """
    segments = segments_of(archive, plan)
    match plan.target:
        case AtTime(time):
            return reader.last_commit(iter(segments[_first_reaching(reader, segments, time) :]), until=time)
        case AtLsn(lsn):
            number = archive.size.number(lsn)
            return reader.last_commit(segment for segment in segments if segment.number <= number)
        case _:
            return reader.last_commit(iter(segments))


def _first_reaching(reader: WalReader, segments: Sequence[Segment], time: datetime.datetime) -> int:
    """Return the index of the newest segment that begins before a time. Each probe reads a segment.

    Args:
        segments: newest first.
    """
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        first = reader.first_commit(iter(segments[middle:]))
        if first is None or first <= time:
            high = middle
        else:
            low = middle + 1
    return low
