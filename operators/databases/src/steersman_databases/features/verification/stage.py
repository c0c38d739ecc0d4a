"""Scheduled verifications as a part of a cluster's reconcile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from steersman.client import MergePatch
from steersman.meta import find_condition
from steersman_databases.api import Backup, Cluster
from steersman_databases.api.backups.backup_common import VerificationSummary
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.features.backup.schedules import InvalidSchedule
from steersman_databases.features.verification import model


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """State of verifications for the status and the metrics of a cluster."""

    last: VerificationSummary | None = None
    success: VerificationSummary | None = None
    next: datetime | None = None


async def ensure_verification(
    context: ClusterContext,
    cluster: Cluster,
    backups: Sequence[Backup],
    path: str,
    conditions: ConditionSet,
) -> VerificationReport:
    """Request the verification that is due, and report the last one.

    Args:
        backups: all objects of the cluster.
        path: of its archive.
    """
    previous, declared = cluster.status.backup, cluster.spec.backup
    settings = None if declared is None else declared.verification
    last, now = model.summary(backups, previous, path), context.clock.now()
    success = model.last_success(backups, last)
    if settings is None:
        conditions.remove(model.CONDITION)
        return VerificationReport(last, success)
    condition = find_condition(cluster.status.conditions, model.CONDITION)
    try:
        conditions.set(model.CONDITION, *model.cluster_condition(settings, last, success, condition, now))
        announced = None if previous is None else previous.next_verification
        due = model.due_time(settings, backups, announced, now)
        is_requested = due is None or await _request(context, backups, path, due)
        following = model.next_time(settings, now) if is_requested else announced
    except InvalidSchedule as error:
        conditions.set(model.CONDITION, False, "InvalidSchedule", str(error))
        return VerificationReport(last, success)
    return VerificationReport(last, success, following)


async def _request(context: ClusterContext, backups: Sequence[Backup], path: str, due: datetime) -> bool:
    """Annotate the last completed backup. False if there is none, and the time stays due.

    A pending request counts as this one: missed times do not accumulate.
    """
    if any(model.pending_request(backup) for backup in backups):
        return True
    backup = model.candidate(backups, path)
    if backup is None:
        return False
    with context.deferred:
        patch = MergePatch({"metadata": {"annotations": {model.VERIFY_ANNOTATION: due.isoformat()}}})
        await context.client.patch(Backup, backup.key, patch)
        return True
    return False
