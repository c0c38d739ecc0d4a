"""Conditions and status of backups, from the catalog and ``Backup`` objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from steersman_databases.api import Backup
from steersman_databases.api.backups.backup import (
    BackupPhase,
    BackupStatus,
    BackupTrigger,
    MySQLBackupStatus,
    PostgreSQLBackupStatus,
)
from steersman_databases.api.backups.backup_common import (
    BackupSchedule,
    BackupSummary,
    BackupType,
    ClusterBackupStatus,
)
from steersman_databases.api.group import GROUP
from steersman_databases.features.backup import schedules
from steersman_databases.features.backup.catalog import Catalog, CatalogBackup

TRIGGER_LABEL = f"{GROUP}/backup-trigger"
"""On ``Backup`` objects of the operator: their trigger. Those of users have none."""
SCHEDULE_LABEL = f"{GROUP}/backup-schedule"
"""On scheduled ``Backup`` objects: the name of the schedule."""
SCHEDULED_AT_ANNOTATION = f"{GROUP}/scheduled-at"
"""On scheduled ``Backup`` objects: when the backup was due, as RFC 3339."""
BACKUP_ID_ANNOTATION = f"{GROUP}/backup-id"
"""On discovered ``Backup`` objects: the ID of the backup in the store."""
UPGRADE_TO_LABEL = f"{GROUP}/upgrade-to"
"""On ``Backup`` objects of a major upgrade: the new version."""
CLUSTER_UID_LABEL = f"{GROUP}/cluster-uid"
"""On ``Backup`` objects of the operator: the UID of their cluster."""

ARCHIVE_REASONS = frozenset(
    {
        "ArchiveDamaged",
        "ArchiveLagging",
        "BinaryLogMissing",
        "BucketNotFound",
        "CertificateNotTrusted",
        "CredentialsRejected",
        "ObjectLocked",
        "PathBelongsToAnotherCluster",
        "SegmentsDropped",
        "StoreFull",
        "StoreUnreachable",
        "StoreUnresponsive",
        "WALMissing",
        "WrongEncryptionKey",
    }
)
"""Reasons of ``ContinuousArchiving`` that the agent reports."""
ARCHIVING = "Archiving"
_SUSPICIOUS_SHARE = 3
"""Fraction of the previous size below which a backup is suspicious."""
_CATALOG_LAG = timedelta(minutes=30)
"""Age of a catalog that has every existing backup.

The agent reads the store every 10 minutes.
"""
FAILED_BACKUPS_KEPT = 10
"""Failed scheduled ``Backup`` objects that stay for a cluster."""

Condition = tuple[bool | None, str, str]
"""Status, reason and message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBackup:
    """A completed backup, as the catalog or its object reports it."""

    id: str
    type: BackupType
    start: datetime
    stop: datetime
    size: int | None = None
    stored: int | None = None
    name: str = ""


def trigger_of(backup: Backup) -> BackupTrigger:
    """Cause of a backup, by its label. ``OnDemand`` for those of users."""
    match backup.metadata.labels.get(TRIGGER_LABEL):
        case "Schedule" | "BeforeUpgrade" | "AfterUpgrade" | "Final" | "Discovered" as trigger:
            return trigger
        case _:
            return "OnDemand"


def is_finished(backup: Backup) -> bool:
    """Return True if the backup has completed or failed."""
    return backup.status.phase in ("Completed", "Failed")


def needs_job(backup: Backup) -> bool:
    """Return True if the backup needs a Job that has not ended."""
    trigger = trigger_of(backup)
    is_made_elsewhere = trigger == "Discovered" or (trigger == "Final" and backup.spec.database_ref is None)
    return not is_made_elsewhere and not is_finished(backup) and backup.metadata.deletion_timestamp is None


def first_in_queue(backups: Iterable[Backup]) -> Backup | None:
    """The backup whose Job may run now.

    It is the running one, otherwise the oldest that waits.
    """
    waiting = [b for b in backups if needs_job(b)]
    return min(waiting, key=lambda b: (b.status.phase != "Running", _created(b), b.metadata.name), default=None)


def age_of(backup: Backup, now: datetime) -> timedelta:
    """Time since the object was created."""
    return now - _created(backup)


def scheduled_at(backup: Backup) -> datetime | None:
    """When a scheduled backup was due; None for others."""
    try:
        time = datetime.fromisoformat(backup.metadata.annotations.get(SCHEDULED_AT_ANNOTATION, ""))
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def last_scheduled(backups: Iterable[Backup]) -> dict[str, datetime]:
    """By the schedule's name, the newest time for which a ``Backup`` exists."""
    last: dict[str, datetime] = {}
    for backup in backups:
        name, time = backup.metadata.labels.get(SCHEDULE_LABEL), scheduled_at(backup)
        if name is not None and time is not None:
            last[name] = max(last.get(name, time), time)
    return last


def completed_backups(catalog: Catalog | None, backups: Iterable[Backup], path: str) -> Sequence[FinishedBackup]:
    """All completed backups at ``path``, the oldest first.

    They are in the catalog, or in objects that it does not have yet.
    """
    objects = {b.status.backup_id: b for b in backups if b.status.path == path and b.status.phase == "Completed"}
    found = {} if catalog is None else {b.id: _from_catalog(b, objects.get(b.id)) for b in catalog.backups}
    for backup_id, backup in objects.items():
        if backup_id is not None and backup_id not in found and not is_expired(backup, catalog):
            finished = _from_object(backup_id, backup)
            if finished is not None:
                found[backup_id] = finished
    return sorted(found.values(), key=lambda b: b.stop)


def is_expired(backup: Backup, catalog: Catalog | None) -> bool:
    """Return True if the store no longer has this backup.

    An empty catalog expires nothing: a store that lost everything must not erase its history as well.
    """
    stop, backup_id = backup.status.stop_time, backup.status.backup_id
    if catalog is None or not catalog.backups or stop is None or backup_id is None:
        return False
    return catalog.find(backup_id) is None and catalog.at - stop > _CATALOG_LAG


def lacks_version(catalog: Catalog | None, version: str) -> bool:
    """Return True if all backups have another major version of PostgreSQL.

    Args:
        version: major version of the cluster's data.
    """
    versions = {backup.version for backup in catalog.backups if backup.version} if catalog is not None else set[str]()
    return bool(versions) and version not in versions


def archiving_condition(catalog: Catalog | None) -> Condition:
    """The condition ``ContinuousArchiving``."""
    if catalog is None or catalog.archive is None:
        return None, "Waiting", "the primary has not reported its archive yet"
    report = catalog.archive
    # The next step is appended to the message.
    message = report.message.rstrip(".")
    if report.state == ARCHIVING:
        return True, ARCHIVING, message or "WAL and binary logs reach the object store"
    reason = report.state if report.state in ARCHIVE_REASONS else "ArchivingFailed"
    return False, reason, message or f"the primary reports {report.state}"


def backed_up_condition(
    completed: Sequence[FinishedBackup],
    backups: Iterable[Backup],
    declared: Iterable[BackupSchedule],
    now: datetime,
) -> Condition:
    """The condition ``BackedUp``.

    Args:
        completed: of `completed_backups`.
        backups: all objects of the cluster.

    Raises:
        InvalidSchedule: a schedule or a time zone is not valid.
    """
    failed = _last_failure(backups, completed)
    if not completed:
        detail = f": {_describe_failure(failed)}" if failed is not None else ""
        return False, "NoBackup", f"no backup has completed yet{detail}"
    if failed is not None:
        return False, "LastBackupFailed", _describe_failure(failed)
    last = completed[-1]
    late = schedules.overdue(declared, last.start, now)
    if late is not None:
        since = f"{last.stop:%Y-%m-%d %H:%M} UTC"
        return False, "Overdue", f"schedule {late.name} has had no completed backup since {since}"
    full = [b for b in completed if b.type == "Full" and b.size]
    if len(full) > 1 and (full[-1].size or 0) * _SUSPICIOUS_SHARE < (full[-2].size or 0):
        message = f"full backup {full[-1].id} has {full[-1].size} bytes, and the previous one {full[-2].size} bytes"
        return False, "SuspiciousSize", message
    return True, "UpToDate", f"the last backup completed at {last.stop:%Y-%m-%d %H:%M} UTC"


def backup_status(
    catalog: Catalog | None, completed: Sequence[FinishedBackup], path: str, next_backup: datetime | None
) -> ClusterBackupStatus:
    """``status.backup`` of a cluster."""
    recovery = None if catalog is None else catalog.recovery
    full = [b for b in completed if b.type == "Full"]
    stored = [b.stored for b in completed if b.stored is not None]
    return ClusterBackupStatus(
        first_recovery_point=None if recovery is None else recovery.first,
        last_recovery_point=None if recovery is None else recovery.last,
        last_backup=_summary(completed),
        last_full_backup=_summary(full),
        next_backup=next_backup,
        stored_bytes=sum(stored) if stored else None,
        path=path,
    )


def status_from(
    finished: CatalogBackup, previous: BackupStatus, phase: BackupPhase = "Completed"
) -> dict[str, object]:
    """Fields of ``Backup.status`` from the catalog or a Job's result."""
    fields: dict[str, object] = {
        "phase": phase,
        "backup_id": finished.id,
        "start_time": finished.start,
        "stop_time": finished.stop,
        "size_bytes": finished.size,
        "stored_bytes": finished.stored,
        "depends_on": finished.depends_on,
        "instance": finished.instance or previous.instance,
        "version": finished.version or previous.version,
    }
    if finished.gtid is not None:
        fields["mysql"] = MySQLBackupStatus(gtid_executed=finished.gtid)
    elif finished.stop_lsn is not None:
        fields["postgresql"] = PostgreSQLBackupStatus(
            timeline=finished.timeline, start_lsn=finished.start_lsn, stop_lsn=finished.stop_lsn
        )
    return fields


def undiscovered(catalog: Catalog | None, backups: Sequence[Backup], path: str) -> Sequence[CatalogBackup]:
    """Backups in the store that no object describes. None while a backup runs, whose object has no ID yet."""
    if catalog is None or any(b.status.phase == "Running" for b in backups):
        return ()
    known = {b.status.backup_id for b in backups if b.status.path == path}
    known |= {b.metadata.annotations.get(BACKUP_ID_ANNOTATION) for b in backups}
    names = {b.metadata.name for b in backups if not is_finished(b)}
    return [b for b in catalog.backups if b.id not in known and b.name not in names]


def superseded_failures(backups: Iterable[Backup]) -> Sequence[Backup]:
    """Failed scheduled backups beyond the newest `FAILED_BACKUPS_KEPT`."""
    failed = [b for b in backups if b.status.phase == "Failed" and trigger_of(b) == "Schedule"]
    return sorted(failed, key=_created, reverse=True)[FAILED_BACKUPS_KEPT:]


def _last_failure(backups: Iterable[Backup], completed: Sequence[FinishedBackup]) -> Backup | None:
    """The newest failed backup, if none has completed since it was created."""
    failed = max((b for b in backups if b.status.phase == "Failed"), key=_created, default=None)
    if failed is None or (completed and completed[-1].stop > _created(failed)):
        return None
    return failed


def _describe_failure(failed: Backup) -> str:
    return f"Backup {failed.metadata.name} failed: {(failed.status.message or '').rstrip('.')}"


def _created(backup: Backup) -> datetime:
    return backup.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)


def _from_catalog(backup: CatalogBackup, obj: Backup | None) -> FinishedBackup:
    return FinishedBackup(
        id=backup.id,
        type=backup.type,
        start=backup.start,
        stop=backup.stop,
        size=backup.size,
        stored=backup.stored,
        name="" if obj is None else obj.metadata.name,
    )


def _from_object(backup_id: str, backup: Backup) -> FinishedBackup | None:
    status = backup.status
    if status.start_time is None or status.stop_time is None:
        return None
    return FinishedBackup(
        id=backup_id,
        type=backup.spec.type,
        start=status.start_time,
        stop=status.stop_time,
        size=status.size_bytes,
        stored=status.stored_bytes,
        name=backup.metadata.name,
    )


def _summary(completed: Sequence[FinishedBackup]) -> BackupSummary | None:
    if not completed or not completed[-1].name:
        return None
    last = completed[-1]
    return BackupSummary(name=last.name, time=last.stop, type=last.type)
