"""Plan of a restore in place of MySQL. It only reads the archive."""

from __future__ import annotations

from dataclasses import replace

from ..backup.mysql_base import MysqlArchive, open_archive
from ..binlog import events
from ..binlog.relay_logs import is_beyond
from ..gtids import NO_GTIDS, GtidSet
from ..jobs import JobFields, JobRefused, Result, require_store
from ..paths import InstancePaths
from ..restore.request import reached
from .gtid_plan import GtidPlan, GtidTarget, commit_time
from .mysql import parse_target_fields
from .mysql_restore import chunk_contents, plan
from .plan import RecoveryRefused
from .target import format_time


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Choose the backup of a target. Return it with the last commit and the number of lost transactions.

    Raises:
        JobRefused: the archive has no way to the target.
        ArchiveError: the object store cannot be read.
    """
    store = require_store(paths.store_file)
    if store.engine != "mysql":
        raise JobRefused("WrongEngine", f"The archive at {store.root} is of {store.engine}, not of MySQL.")
    target, _ = parse_target_fields(job)
    version = job.text("version")
    archive = open_archive(store, replace(paths, run=paths.run / "source"), read_only=True)
    try:
        return {"plan": reached(lambda: preview(archive, target, version), target)}
    except RecoveryRefused as refused:
        raise JobRefused(refused.reason, refused.message) from None


def preview(archive: MysqlArchive, target: GtidTarget, version: str) -> Result:
    """Return the member ``plan`` of the Job's result.

    Raises:
        RecoveryRefused: the archive has no way to the target.
        ArchiveError: the object store cannot be read.
    """
    chosen = plan(archive, target, version)
    restored, last_commit = _outcome(chosen, archive)
    newest = archive.chunks.newest()
    present = NO_GTIDS if newest is None else newest.after
    backup = next(each for each in archive.catalog.backups() if each.id == chosen.backup.id)
    return {
        "backup": backup.id,
        "restoresTo": format_time(commit_time(last_commit) if last_commit else backup.stop),
        "lostTransactions": len(present - restored),
        "sizeBytes": backup.size,
        "overwrites": True,
    }


def _outcome(chosen: GtidPlan, archive: MysqlArchive) -> tuple[GtidSet, int]:
    """Return the restored transactions, and the last commit in microseconds.

    It is 0 if nothing follows the backup.
    """
    restored, last_commit = chosen.backup.gtids, 0
    for header in chosen.chunks[:-1]:
        restored |= header.after & chosen.history
        last_commit = max(last_commit, header.last)
    # Only the last chunk may have transactions beyond the target.
    for chunk in chunk_contents(archive, chosen.chunks[-1:]):
        for event in events.split_events(chunk.content):
            if event.kind not in (events.GTID, events.TAGGED_GTID):
                continue
            start = events.transaction_start(event)
            if restored.has(start.origin, start.number) or not chosen.reached.has(start.origin, start.number):
                continue
            if is_beyond(chosen.target, start, restored):
                return restored, last_commit
            restored = restored.add(start.origin, start.number)
            last_commit = max(last_commit, start.committed_at)
    return restored, last_commit
