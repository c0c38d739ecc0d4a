"""Restore over the volume of one instance. The previous data were given up before.

The PVC has the UID of the `Restore` until the Job is complete, and no server starts before that. A failed Job is
repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman_databases.api import Cluster, Restore
from steersman_databases.cluster.actions import Wait
from steersman_databases.cluster.state import Instance
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.features.backup.instance_jobs import create_job, instance_job, observe_job
from steersman_databases.features.backup.specs import JobResult
from steersman_databases.features.restore_in_place.specs import in_place_plan
from steersman_databases.features.restore_in_place.volumes import LineageVolumes
from steersman_databases.features.storage.specs import RESTORED_TIMELINE

_RETRY_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Fills the volume of an instance, which then is the primary."""

    context: ClusterContext
    cluster: Cluster
    engine: ClusterEngine

    async def advance(self, instance: Instance, restore: Restore | None, conditions: ConditionSet) -> Wait:
        """Advance by one step.

        Args:
            instance: the one whose data are overwritten.
            restore: the object that its PVC names, or None if it was deleted.
        """
        assert instance.data is not None
        pvc, key = instance.data.metadata.name, self.context.declared.names.restore_job(instance.overwriting)
        job = await get_cached_or_live(self.context.client, Job, key)
        if job is None:
            return await self._start(instance, restore, conditions)
        job = await self.context.require_control(Job, job)
        observed = await observe_job(self.context, job)
        if observed.state == "Complete":
            await LineageVolumes(self.context).end_overwriting(instance)
            return _wait(conditions, "the restored data are served next")
        if observed.state == "Failed":
            return await self._retry(job, observed.result, conditions)
        problem = "" if observed.problem is None else f": {observed.problem.message}"
        return _wait(conditions, f"Job {key.name} restores over PVC {pvc}{problem}")

    async def _start(self, instance: Instance, restore: Restore | None, conditions: ConditionSet) -> Wait:
        assert instance.data is not None
        settings, pvc = self.cluster.spec.backup, instance.data.metadata.name
        if restore is None or restore.status.plan is None:
            message = f"the Restore that overwrites PVC {pvc} was deleted before it was complete"
            return _fail(conditions, f"{message}. Create another Restore of the cluster")
        if settings is None:
            return _fail(conditions, "spec.backup was removed before the restore was complete. Declare it again")
        declared, text = self.context.declared, instance.data.metadata.annotations.get(RESTORED_TIMELINE, "")
        timeline = int(text) if text.isascii() and text.isdecimal() else None
        plan = in_place_plan(declared, settings, restore, timeline)
        parts = self.engine.pod_contribution(declared, instance.ordinal, fenced=True)
        # Before it is tried: the API server may refuse the Job.
        wait = _wait(conditions, f"Job {plan.key.name} restores over PVC {pvc}")
        await create_job(self.context, plan, instance_job(declared, plan, instance.ordinal, parts))
        return wait

    async def _retry(self, job: Job, result: JobResult | None, conditions: ConditionSet) -> Wait:
        """Repeat a failed Job after a time."""
        failed = next((c.last_transition_time for c in job.status.conditions if c.type == "Failed"), None)
        ended = failed or job.metadata.creation_timestamp
        if ended is None or self.context.clock.now() - ended >= _RETRY_AFTER:
            await self.context.delete_if_controlled(Job, job.key)
            await self.context.delete_if_controlled(ConfigMap, job.key)
        cause = "see the logs of its pods" if result is None or not result.message else result.message.rstrip(".")
        message = f"Job {job.metadata.name} failed, and no instance has complete data: {cause}"
        return _fail(
            conditions, f"{message}. It is repeated every {round(_RETRY_AFTER.total_seconds() / 60)} minutes"
        )


def _wait(conditions: ConditionSet, message: str) -> Wait:
    conditions.set("Available", False, "Restoring", message)
    return Wait("Restoring", message)


def _fail(conditions: ConditionSet, message: str) -> Wait:
    conditions.set("Available", False, "RestoreFailed", message)
    return Wait("RestoreFailed", message)
