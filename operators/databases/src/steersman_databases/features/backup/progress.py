"""Phase, condition and Events of backups. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from steersman.meta import Condition, find_condition, set_condition
from steersman_databases.api import Backup, Restore
from steersman_databases.api.backups.backup import BackupPhase, BackupStatus
from steersman_databases.api.backups.restore import RestorePhase
from steersman_databases.api.kstatus import with_kstatus
from steersman_databases.core.outcome import truncated
from steersman_databases.features.backup.model import trigger_of
from steersman_databases.features.verification.model import never_verified

COMPLETE = "Complete"
_REPORTED = frozenset({"Overdue", "SuspiciousSize", "InvalidSchedule", "VerificationOverdue"})
"""Reasons of ``BackedUp`` and ``BackupsVerified`` with an Event. Others come with an Event of the ``Backup``."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Phase of a backup or restore, with its condition ``Complete``."""

    phase: BackupPhase | RestorePhase
    reason: str
    message: str


def progress_conditions(
    obj: Backup | Restore, progress: Progress, message: str, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions of an object with ``Complete``.

    Args:
        message: message of the condition.
    """
    status = {"Completed": "True", "Failed": "False"}.get(progress.phase, "Unknown")
    fields = {"type": COMPLETE, "status": status, "reason": progress.reason, "message": message}
    condition = msgspec.convert(fields, Condition)
    condition = msgspec.structs.replace(condition, observed_generation=obj.metadata.generation)
    return with_kstatus(set_condition(obj.status.conditions, condition, now), now, summary=COMPLETE)


def with_progress(backup: Backup, progress: Progress, now: datetime, **fields: object) -> BackupStatus:
    """Return the status of a backup with its phase and condition.

    Args:
        fields: further fields of the status.
    """
    message = truncated(progress.message)
    status = msgspec.structs.replace(
        backup.status,
        observed_generation=backup.metadata.generation,
        conditions=progress_conditions(backup, progress, message, now),
        trigger=trigger_of(backup),
        message=message,
        **{"phase": progress.phase, **fields},
    )
    return never_verified(backup, status, now)


def archiving_events(previous: Sequence[Condition], conditions: Sequence[Condition]) -> Sequence[tuple[str, str]]:
    """Reason and message of Events for changed conditions of backups."""
    events: list[tuple[str, str]] = []
    before, now = (find_condition(each, "ContinuousArchiving") for each in (previous, conditions))
    if now is not None and (before is None or (before.status, before.reason) != (now.status, now.reason)):
        if now.status == "False":
            events.append(("ArchivingFailed", now.message))
        elif now.status == "True" and before is not None and before.status == "False":
            events.append(("ArchivingResumed", now.message))
    for condition in ("BackedUp", "BackupsVerified"):
        before, now = (find_condition(each, condition) for each in (previous, conditions))
        if now is not None and now.reason in _REPORTED and (before is None or before.reason != now.reason):
            events.append((now.reason, now.message))
    return events
