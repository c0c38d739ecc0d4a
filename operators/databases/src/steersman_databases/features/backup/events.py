"""Events of a cluster about its archive and backups. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.meta import Condition, find_condition

_REPORTED = frozenset({"Overdue", "SuspiciousSize", "InvalidSchedule", "VerificationOverdue"})
"""Reasons of ``BackedUp`` and ``BackupsVerified`` with an Event. Others come with an Event of the ``Backup``."""


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
