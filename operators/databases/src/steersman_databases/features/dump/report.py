"""Report of dumps and restore in the status of a ``Database``. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from steersman.meta import Condition as StatusCondition
from steersman.meta import find_condition, set_condition
from steersman_databases.api import Database, DatabaseStatus
from steersman_databases.api.database import DumpStatus
from steersman_databases.core.outcome import DatabaseOutcome, truncated
from steersman_databases.features.backup.model import Condition

BACKED_UP = "BackedUp"
RECOVERED = "Recovered"
_RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpReport:
    """State of the dumps of a database. All are None without ``spec.backup``.

    Args:
        retry_after: seconds until the next reconcile.
    """

    backed_up: Condition | None = None
    status: DumpStatus | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """State of restore and dumps of a database.

    Args:
        outcome: replaces that of the database while the restore is not complete.
    """

    recovered: Condition | None = None
    dumps: DumpReport = field(default_factory=DumpReport)
    outcome: DatabaseOutcome | None = None

    def applied_to(self, status: DatabaseStatus, generation: int | None, now: datetime) -> DatabaseStatus:
        """Return a status with this report."""
        if self.recovered is not None:
            status = _with_condition(status, RECOVERED, self.recovered, generation, now)
        backed_up = self.dumps.backed_up
        if backed_up is None:
            kept = tuple(each for each in status.conditions if each.type != BACKED_UP)
            return msgspec.structs.replace(status, conditions=kept, backup=None)
        status = _with_condition(status, BACKED_UP, backed_up, generation, now)
        return msgspec.structs.replace(status, backup=self.dumps.status)


def not_recovered(recovered: Condition) -> DatabaseOutcome:
    """Return the outcome of a database whose restore is not complete."""
    holds, reason, message = recovered
    if holds is None:
        return DatabaseOutcome(phase="Provisioning", reason="Recovering", message=message, retry_after=_RETRY_SECONDS)
    text = f"{reason}: {message}" if reason != "RecoveryFailed" else message
    return DatabaseOutcome(phase="Failed", reason="RecoveryFailed", message=text, retry_after=_RETRY_SECONDS)


def is_restored(database: Database) -> bool:
    """Return True if the first data are complete, or none are declared."""
    if not database.restores_dump:
        return True
    found = find_condition(database.status.conditions, RECOVERED)
    return found is not None and found.status == "True"


def _with_condition(
    status: DatabaseStatus, type_: str, found: Condition, generation: int | None, now: datetime
) -> DatabaseStatus:
    """Return the status of a ``Database`` with a condition."""
    holds, reason, message = found
    condition = StatusCondition(
        type=type_,
        status="Unknown" if holds is None else "True" if holds else "False",
        reason=reason,
        message=truncated(message),
        observed_generation=generation,
    )
    return msgspec.structs.replace(status, conditions=set_condition(status.conditions, condition, now))
