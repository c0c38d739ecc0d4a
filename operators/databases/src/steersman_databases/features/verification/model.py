"""Requests, verdicts and conditions of verifications. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from steersman.meta import Condition, FrozenStruct, find_condition, set_condition
from steersman_databases.api import Backup
from steersman_databases.api.backups.backup import BackupStatus, BackupVerificationStatus
from steersman_databases.api.backups.backup_common import (
    BackupSchedule,
    ClusterBackupStatus,
    VerificationSettings,
    VerificationSummary,
)
from steersman_databases.api.group import GROUP
from steersman_databases.core.outcome import truncated
from steersman_databases.features.backup import schedules
from steersman_databases.features.backup.model import Condition as ClusterCondition
from steersman_databases.features.backup.specs import JobResult

VERIFY_ANNOTATION = f"{GROUP}/verify"
"""On ``Backup`` objects: requests a verification. Each new value requests another one."""
VERIFIED = "Verified"
"""Type of the condition of a ``Backup``."""
CONDITION = "BackupsVerified"
"""Type of the condition of a cluster."""
DAMAGE_REASONS = frozenset(
    {
        "ArchiveDamaged",
        "BinaryLogMissing",
        "DataDamaged",
        "NoUsableBackup",
        "PathBelongsToAnotherCluster",
        "RecoveryFailed",
        "TargetNotReached",
        "WALMissing",
        "WrongEncryptionKey",
    }
)
"""Failures that show that the backup cannot be restored. All others show nothing about it."""
_OVERDUE = "VerificationOverdue"
_MAX_REQUEST_LENGTH = 128
_EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a verification.

    Args:
        verified: None if it shows nothing about the backup.
        figures: what was measured; None unless verified.
    """

    verified: bool | None
    reason: str
    message: str
    figures: BackupVerificationStatus | None = None


class _Figures(FrozenStruct):
    """The member ``verification`` of a Job's result."""

    backup: str
    recovered_to: datetime
    data_loss_seconds: int
    recovery_seconds: int
    restore_seconds: int
    replay_seconds: int
    check_seconds: int
    tables: int
    rows: int


def pending_request(backup: Backup) -> str:
    """Value of the annotation that was not handled yet, or ""."""
    request = backup.metadata.annotations.get(VERIFY_ANNOTATION, "").strip()[:_MAX_REQUEST_LENGTH]
    handled = None if backup.status.verification is None else backup.status.verification.request
    return "" if request == handled or backup.status.phase != "Completed" else request


def verdict_of(backup: Backup, result: JobResult | None, failure: str = "", reason: str = "") -> Verdict:
    """Return the verdict on a backup.

    Args:
        result: of the Job's program.
        failure: why the Job failed without a result.
        reason: of the failure.
    """
    if result is None:
        return Verdict(None, reason or "VerificationIncomplete", failure or "the Job ended without a result")
    if not result.ok:
        verified = False if result.reason in DAMAGE_REASONS else None
        return Verdict(verified, result.reason or "VerificationIncomplete", result.message.rstrip("."))
    try:
        found = msgspec.convert(result.document.get("verification"), _Figures, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return Verdict(None, "VerificationIncomplete", "the Job reported no figures")
    if found.backup != backup.status.backup_id:
        return Verdict(None, "VerificationIncomplete", f"the Job restored backup {found.backup}")
    fields = {name: getattr(found, name) for name in BackupVerificationStatus.__struct_fields__ if name in _SHARED}
    message = (
        f"{found.tables} tables with {found.rows} rows were restored up to {_text(found.recovered_to)} in"
        f" {found.recovery_seconds} s"
    )
    return Verdict(True, VERIFIED, message, BackupVerificationStatus(**fields))


_SHARED = frozenset(_Figures.__struct_fields__)


def with_verdict(backup: Backup, verdict: Verdict, request: str, now: datetime) -> BackupStatus:
    """Return the status after a verification. Without a verdict the earlier figures stay."""
    figures = backup.status.verification or BackupVerificationStatus()
    if verdict.verified is not None:
        figures = msgspec.structs.replace(verdict.figures or BackupVerificationStatus(), time=now)
    figures = msgspec.structs.replace(figures, request=request)
    status = msgspec.structs.replace(backup.status, verification=figures)
    return with_condition(backup, status, verdict, now)


def with_condition(backup: Backup, status: BackupStatus, verdict: Verdict, now: datetime) -> BackupStatus:
    """Return a status with the condition ``Verified``."""
    holds = {True: "True", False: "False", None: "Unknown"}[verdict.verified]
    fields = {"type": VERIFIED, "status": holds, "reason": verdict.reason, "message": truncated(verdict.message)}
    condition = msgspec.convert(fields, Condition)
    condition = msgspec.structs.replace(condition, observed_generation=backup.metadata.generation)
    return msgspec.structs.replace(status, conditions=set_condition(status.conditions, condition, now))


def never_verified(backup: Backup, status: BackupStatus, now: datetime) -> BackupStatus:
    """Return the status of a backup with ``NeverVerified``, if it is so."""
    if status.phase != "Completed" or find_condition(status.conditions, VERIFIED) is not None:
        return status
    return with_condition(backup, status, Verdict(None, "NeverVerified", "this backup was never restored"), now)


def candidate(backups: Iterable[Backup], path: str) -> Backup | None:
    """The newest completed backup at ``path``."""
    found = [b for b in backups if b.status.phase == "Completed" and b.status.path == path and b.status.stop_time]
    return max(found, key=lambda b: b.status.stop_time or _EARLIEST, default=None)


def due_time(
    settings: VerificationSettings, backups: Iterable[Backup], announced: datetime | None, now: datetime
) -> datetime | None:
    """Scheduled time of the verification that should start now, or None. Missed times do not accumulate.

    Args:
        announced: ``status.backup.nextVerification``.

    Raises:
        InvalidSchedule: the schedule or the time zone is not valid.
    """
    # A time in the future would suspend the schedule.
    requested = [time for b in backups if (time := _requested_at(b)) is not None and time <= now]
    last = {schedules.VERIFICATION: max(requested)} if requested else {}
    due = schedules.due_backups([_schedule(settings)], last, announced, now)
    return due[0].time if due else None


def next_time(settings: VerificationSettings, now: datetime) -> datetime | None:
    """The next scheduled time. Raises InvalidSchedule."""
    return schedules.next_time([_schedule(settings)], now)


def summary(backups: Iterable[Backup], previous: ClusterBackupStatus | None, path: str) -> VerificationSummary | None:
    """The last verification with a result. It outlives its ``Backup``."""
    kept = None if previous is None or previous.path != path else previous.last_verification
    found = [each for b in backups if b.status.path == path and (each := _summary(b)) is not None]
    candidates = [*found, *([] if kept is None else [kept])]
    # Of two with the same time the object is newer than what the status repeats.
    return max(candidates, key=lambda each: each.time, default=None)


def last_success(backups: Iterable[Backup], last: VerificationSummary | None) -> VerificationSummary | None:
    """The last successful verification."""
    found = [each for b in backups if (each := _summary(b)) is not None and each.verified]
    if last is not None and last.verified:
        found.append(last)
    return max(found, key=lambda each: each.time, default=None)


def cluster_condition(
    settings: VerificationSettings,
    last: VerificationSummary | None,
    success: VerificationSummary | None,
    previous: Condition | None,
    now: datetime,
) -> ClusterCondition:
    """The condition ``BackupsVerified``.

    Args:
        last: the last verification with a result.
        success: the last successful one.
        previous: the condition as it is now.

    Raises:
        InvalidSchedule: the schedule or the time zone is not valid.
    """
    if last is not None and not last.verified:
        return False, "VerificationFailed", f"Backup {last.name}: {last.message or 'it cannot be restored'}"
    if success is not None:
        if schedules.overdue([_schedule(settings)], success.time, now) is not None:
            return False, _OVERDUE, f"the last successful verification was at {_text(success.time)}"
        return True, VERIFIED, f"Backup {success.name} was verified at {_text(success.time)}"
    since = None if previous is None or previous.status != "Unknown" else previous.last_transition_time
    is_overdue = since is not None and schedules.overdue([_schedule(settings)], since, now) is not None
    if is_overdue or (previous is not None and previous.reason == _OVERDUE):
        return False, _OVERDUE, "two scheduled verifications had no result, and no backup was ever verified"
    return None, "NeverVerified", "no backup was verified yet"


def figures_of(success: VerificationSummary | None, backups: Iterable[Backup]) -> BackupVerificationStatus | None:
    """The figures of a successful verification, while its ``Backup`` exists."""
    if success is None:
        return None
    return next((b.status.verification for b in backups if b.metadata.name == success.name), None)


def _schedule(settings: VerificationSettings) -> BackupSchedule:
    return BackupSchedule(
        name=schedules.VERIFICATION,
        schedule=settings.schedule,
        time_zone=settings.time_zone,
        suspend=settings.suspend,
    )


def _summary(backup: Backup) -> VerificationSummary | None:
    condition, figures = find_condition(backup.status.conditions, VERIFIED), backup.status.verification
    if condition is None or figures is None or figures.time is None:
        return None
    # An unknown condition is a later attempt without a result: the earlier result counts, by its figures.
    verified = condition.status == "True" if condition.status != "Unknown" else figures.recovered_to is not None
    return VerificationSummary(
        name=backup.metadata.name,
        time=figures.time,
        verified=verified,
        message=condition.message if condition.status == "False" else None,
        recovered_to=figures.recovered_to,
        recovery_seconds=figures.recovery_seconds,
        data_loss_seconds=figures.data_loss_seconds,
    )


def _requested_at(backup: Backup) -> datetime | None:
    try:
        time = datetime.fromisoformat(backup.metadata.annotations.get(VERIFY_ANNOTATION, ""))
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
