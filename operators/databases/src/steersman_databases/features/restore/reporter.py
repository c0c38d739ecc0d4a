"""Status and Events of a ``Restore``."""

from __future__ import annotations

from steersman.api.batch_v1 import Job
from steersman.controller import ReconcilerContext
from steersman_databases.api import Cluster, Restore
from steersman_databases.core.outcome import truncated
from steersman_databases.features.backup.progress import Progress
from steersman_databases.features.backup.specs import JobResult
from steersman_databases.features.restore import model

_EVENTS = {
    "Planned": "RestorePlanned",
    "Running": "RestoreStarted",
    "Completed": "RestoreCompleted",
    "Failed": "RestoreFailed",
}
"""Reason of the Event by the new phase."""


class RestoreReporter:
    """Writes statuses, and emits an Event for each new phase."""

    def __init__(self, context: ReconcilerContext) -> None:
        self._context = context

    async def report(self, restore: Restore, cluster: Cluster | None, progress: Progress, **fields: object) -> None:
        """Write the status if it differs.

        Args:
            cluster: receives the Event, too.
            fields: further fields of the status.
        """
        status = model.with_progress(restore, progress, self._context.runtime.clock.now(), **fields)
        if status == restore.status:
            return
        await self._context.client.apply_status(restore, status)
        if restore.status.phase != progress.phase and (reason := _EVENTS.get(progress.phase)):
            self._emit(restore, cluster, reason, status.message or "")

    def _emit(self, restore: Restore, cluster: Cluster | None, reason: str, message: str) -> None:
        events = self._context.events
        emit = events.warning if reason == "RestoreFailed" else events.normal
        emit(restore, reason, message)
        if cluster is not None:
            emit(cluster, reason, truncated(f"Restore {restore.metadata.name}: {message}"))


def failure_of(job: Job, result: JobResult | None) -> tuple[str, str]:
    """Return reason and message of a failed Job."""
    failed = next((c for c in job.status.conditions if c.type == "Failed" and c.status == "True"), None)
    # Before its deadline a Job may have reported an earlier attempt.
    if failed is not None and failed.reason == "DeadlineExceeded":
        return "DeadlineExceeded", f"Job {job.metadata.name} did not end in time"
    if result is not None and not result.ok and result.message:
        return result.reason or "RestoreFailed", result.message
    detail = (failed.message if failed is not None else None) or "it ended without a result"
    return "RestoreFailed", f"Job {job.metadata.name} failed: {detail}. See the logs of its pods"
