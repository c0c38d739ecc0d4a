"""Removal of expired backups and WAL from PostgreSQL's archive."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..archive.errors import ArchiveError
from ..jobs import JobFields, JobRefused, log
from ..recovery.target import InvalidTarget, parse_time
from ..recovery.timelines import Lineage
from .catalog import BaseBackup, Catalog
from .repository import Repository
from .retention import RetentionPolicy, expirable, needed, with_dependants

EXPIRE_SECONDS = 3600.0
FOREVER = "Forever"
_MAX_HELD = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention as job.json declares it.

    Args:
        held: by backup, when its ``retainUntil`` ends; None is forever.
    """

    policy: RetentionPolicy
    held: Mapping[str, datetime.datetime | None] = field(default_factory=dict[str, datetime.datetime | None])

    @classmethod
    def parse(cls, job: JobFields) -> Retention | None:
        """Return the retention of job.json, or None if it has none. Raises JobRefused."""
        fields = job.part("retention")
        if fields is None:
            return None
        policy = RetentionPolicy(
            window=datetime.timedelta(seconds=fields.number("window_seconds", 0, 10**10)),
            minimum_full=fields.number("minimum_full_backups", 1, 10_000, 1),
        )
        held: dict[str, datetime.datetime | None] = {}
        listed = job.part("retain_until")
        for backup_id in listed.fields if listed else ():
            assert listed is not None
            text = listed.text(backup_id)
            try:
                held[backup_id] = None if text == FOREVER else parse_time(text)
            except InvalidTarget:
                raise JobRefused("InvalidJob", "job.json: retain_until must be RFC 3339 or Forever.") from None
        if len(held) > _MAX_HELD:
            raise JobRefused("InvalidJob", f"job.json: retain_until has more than {_MAX_HELD} entries.")
        return cls(policy, held)


def expiry_request(job: JobFields) -> tuple[str, Retention]:
    """Return the backup to remove, and the retention of job.json.

    Raises:
        JobRefused: a field is missing or malformed.
    """
    backup_id = job.text("backup_id", "") or job.text("backupId")
    retention = Retention.parse(job)
    if retention is None:
        raise JobRefused("InvalidJob", "job.json: retention must be an object.")
    return backup_id, retention


def expire(repository: Repository, retention: Retention, now: datetime.datetime) -> list[str]:
    """Remove what retention does not need. Return the ids of removed backups.

    Raises:
        ArchiveError: the store failed. Earlier removals stay in effect.
    """
    catalog = repository.catalog()
    removed = expirable(
        catalog.all_backups,
        retention.policy,
        now,
        lineage=lineage_of(repository, catalog),
        retain_until=retention.held,
    )
    remove(repository, removed, retention, now)
    return list(removed)


def remove(repository: Repository, backup_ids: Sequence[str], retention: Retention, now: datetime.datetime) -> None:
    """Remove backups in this order, then WAL that recovery does not need."""
    for backup_id in backup_ids:
        log(f"removing backup {backup_id}")
        try:
            repository.run("expire", options=[f"--set={backup_id}"], seconds=EXPIRE_SECONDS)
        except ArchiveError:
            # A removed full backup takes its dependants along, and an interrupted run may have got further.
            if repository.catalog().find(backup_id) is not None:
                raise
    catalog = repository.catalog()
    count = full_backups_with_wal(catalog, retention, now, lineage_of(repository, catalog))
    if count:
        options = ["--repo1-retention-archive-type=full", f"--repo1-retention-archive={count}"]
        repository.run("expire", options=options, seconds=EXPIRE_SECONDS)


def full_backups_with_wal(
    catalog: Catalog, retention: Retention, now: datetime.datetime, lineage: Lineage | None
) -> int:
    """Return how many of the newest full backups keep later WAL.

    A backup that is only retained, such as a final one, keeps just the WAL that makes it consistent.
    """
    kept = needed(catalog.all_backups, retention.policy, now, lineage)
    current = [backup for backup in catalog.current_backups() if backup.type == "Full"]
    wanted = [index for index, backup in enumerate(current) if backup.id in kept]
    return len(current) - wanted[0] if wanted else 0


def require_expirable(
    backup_id: str,
    backups: Sequence[BaseBackup],
    retention: Retention,
    now: datetime.datetime,
    lineage: Lineage | None,
) -> Sequence[str]:
    """Return a backup and its dependants for removal on a user's request.

    Raises:
        JobRefused: retention needs one of them, or one is retained.
    """
    wanted = with_dependants(backup_id, backups)
    kept = needed(backups, retention.policy, now, lineage)
    for each in wanted:
        until = retention.held.get(each, now) if each != backup_id else now
        if each in kept or until is None or until > now:
            subject = f"Backup {each}" if each == backup_id else f"Backup {each}, which depends on {backup_id},"
            raise JobRefused(
                "NeededByRetention",
                f"{subject} is needed by the retention of the cluster. It stays until newer backups replace it.",
            )
    return wanted


def lineage_of(repository: Repository, catalog: Catalog) -> Lineage | None:
    """Return the lineage of the newest timeline of the current database."""
    if catalog.current is None:
        return None
    timelines = repository.wal(catalog.current, catalog.current_backups()).timelines
    return timelines.lineage(timelines.newest) if timelines.newest else None
