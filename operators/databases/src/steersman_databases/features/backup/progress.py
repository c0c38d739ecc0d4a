"""Phase and condition of a ``Backup``. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from steersman.meta import Condition, set_condition
from steersman_databases.api import Backup
from steersman_databases.api.backup import BackupPhase, BackupStatus
from steersman_databases.core.outcome import truncated
from steersman_databases.features.backup.model import trigger_of
from steersman_databases.features.verification.model import never_verified

COMPLETE = "Complete"


@dataclass(frozen=True, slots=True)
class Progress:
    """Phase of a backup or restore, with its condition ``Complete``."""

    phase: BackupPhase
    reason: str
    message: str


def complete_condition(progress: Progress, message: str, generation: int | None) -> Condition:
    """Return the condition ``Complete``.

    Args:
        message: message of the condition.
        generation: of the object.
    """
    status = {"Completed": "True", "Failed": "False"}.get(progress.phase, "Unknown")
    fields = {"type": COMPLETE, "status": status, "reason": progress.reason, "message": message}
    return msgspec.structs.replace(msgspec.convert(fields, Condition), observed_generation=generation)


def with_progress(backup: Backup, progress: Progress, now: datetime, **fields: object) -> BackupStatus:
    """Return the status of a backup with its phase and condition.

    Args:
        fields: further fields of the status.
    """
    message, generation = truncated(progress.message), backup.metadata.generation
    condition = complete_condition(progress, message, generation)
    status = msgspec.structs.replace(
        backup.status,
        observed_generation=generation,
        conditions=set_condition(backup.status.conditions, condition, now),
        trigger=trigger_of(backup),
        message=message,
        **{"phase": progress.phase, **fields},
    )
    return never_verified(backup, status, now)
