"""Decisions about transaction ID wraparound. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from steersman_databases.api.autopilot.automation import AutomationMode
from steersman_databases.engines.transaction_ids import TransactionIds, XminHolder

REPORTED_AGE = 500_000_000
ACTION_AGE = 1_000_000_000
"""Ages in transactions. The server refuses writes at 2.1 billion."""
_MARGIN = 100_000_000
"""Transactions beyond autovacuum's own age until an old database is reported."""
_USEFUL_AGE = 50_000_000
"""Least difference in age between tables and holder for a useful vacuum."""

Reason = Literal[
    "WraparoundApproaching", "CleanupPrevented", "VacuumRecommended", "EmergencyVacuum", "TransactionEnded"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WraparoundDecision:
    """Decision about old transaction IDs.

    Attributes:
        vacuum: vacuum the oldest tables that are at least this old.
        end: end the session that holds back the cleanup.
    """

    reason: Reason
    message: str
    evidence: str
    vacuum: int | None = None
    end: XminHolder | None = None


def reported_age(ids: TransactionIds) -> int:
    """Return the age from which on a database is reported."""
    return max(REPORTED_AGE, ids.autovacuum_age + _MARGIN)


def decide(ids: TransactionIds, mode: AutomationMode, end_after: float | None = None) -> WraparoundDecision | None:
    """Return the decision, or None if no database is old.

    Args:
        mode: effective mode, Recommend or Automatic.
        end_after: seconds after which a transaction may be ended.
    """
    if ids.age < reported_age(ids):
        return None
    action_age = max(ACTION_AGE, reported_age(ids))
    holder = ids.holders[0] if ids.holders and ids.holders[0].age >= reported_age(ids) else None
    evidence = f"the oldest transaction ID of database {ids.database} is {_format_age(ids.age)} transactions old"
    cause = "autovacuum does not keep up" if holder is None else f"{_describe(holder)} prevents the cleanup"
    message = f"{evidence}; {cause}"

    def decision(reason: Reason, note: str = "") -> WraparoundDecision:
        return WraparoundDecision(reason=reason, message=f"{message}{note}", evidence=evidence)

    if ids.vacuuming:
        return decision("EmergencyVacuum", f"; vacuuming {ids.vacuuming}")
    if ids.age < action_age:
        return decision("WraparoundApproaching")
    prevented = holder is not None and holder.age + _USEFUL_AGE >= ids.age
    if mode == "Recommend":
        return decision("CleanupPrevented" if prevented else "VacuumRecommended")
    if holder is not None and holder.age >= action_age and _may_end(holder, end_after):
        return replace(decision("TransactionEnded", "; its session is ended"), end=holder)
    if prevented:
        return decision("CleanupPrevented")
    return replace(decision("EmergencyVacuum"), vacuum=action_age)


def _may_end(holder: XminHolder, end_after: float | None) -> bool:
    is_session = holder.kind == "session" and holder.seconds is not None
    return is_session and end_after is not None and (holder.seconds or 0.0) >= end_after


def _describe(holder: XminHolder) -> str:
    words = f"{holder.kind} {holder.name}"
    detail = f" ({holder.detail})" if holder.detail else ""
    duration = "" if holder.seconds is None else f" with a transaction of {holder.seconds / 3600:.1f} h"
    return f"{words}{detail}{duration}"


def _format_age(age: int) -> str:
    return f"{age / 1e9:.2f} billion" if age >= 1_000_000_000 else f"{age // 1_000_000} million"
