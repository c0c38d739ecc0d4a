"""Controller of a ``Restore`` of the whole cluster: plan, confirmation and status.

The controller of the cluster carries it out, see ``features/restore_in_place``. Everything is derived from the Jobs,
the PVCs and the status, so an interruption at any API call is harmless.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from steersman.api.apps_v1 import StatefulSet
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod
from steersman.controller import ReconcilerContext, Result
from steersman.meta import FrozenStruct, ObjectKey, Quantity, to_builtins
from steersman_databases.api import Cluster, Restore
from steersman_databases.api.backups.restore import RestorePlan
from steersman_databases.api.group import is_paused
from steersman_databases.cluster.declared import declare
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.cluster.state import LINEAGE, OVERWRITING, RESTORING, is_retired, ordinal_of, requested_image
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.outcome import jittered
from steersman_databases.core.sizes import format_bytes
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.features.backup.jobs import ready_instances
from steersman_databases.features.backup.progress import Progress
from steersman_databases.features.backup.queries import controls, job_problem, pods_of, start_job
from steersman_databases.features.backup.specs import JobResult, job_state, result_of
from steersman_databases.features.restore import model
from steersman_databases.features.restore.reporter import RestoreReporter, failure_of
from steersman_databases.features.restore.specs import preview_plan
from steersman_databases.features.restore.undo import UndoNotReady, UndoRefused, missing_volume, undo_plan
from steersman_databases.features.restore_in_place.model import active, has_timed_out, is_confirmed, overwrites
from steersman_databases.features.storage.growth_stage import grown_size
from steersman_databases.features.storage.specs import RESTORED_BY

_WAITING_SECONDS = 5.0
_ID_LENGTH = 12
_PLAN_MAX_AGE = timedelta(minutes=10)
_REQUEST_TIME = timedelta(minutes=1)
"""Time for requests that the controller of the cluster began earlier."""
_NO_UNDO = "no-undo-"
"""Prefix of IDs of plans that overwrite the data.

With it each confirmation names the loss.
"""


class PlanReport(FrozenStruct):
    """The member ``plan`` of a Job's result."""

    backup: str
    timeline: int | None = None
    newest_timeline: int | None = None
    restores_to: datetime | None = None
    lost_transactions: int | None = None
    lost_is_minimum: bool = False
    size_bytes: int | None = None
    overwrites: bool = False
    """True if the image can restore over present data. An older one refuses that after they were given up."""


class InPlaceRestores:
    """Plans restores of whole clusters, and reports them.

    Args:
        starting: held while a Job is created, see `start_job`.
        cluster_domain: DNS domain of the Kubernetes cluster.
    """

    def __init__(
        self, context: ReconcilerContext, reporter: RestoreReporter, starting: asyncio.Lock, cluster_domain: str
    ) -> None:
        self._client, self._runtime = context.client, context.runtime
        self._reporter = reporter
        self._starting = starting
        self._cluster_domain = cluster_domain

    async def reconcile(self, restore: Restore, cluster: Cluster | None) -> Result:
        """Advance by one step. ``cluster`` is None if it does not exist."""
        if restore.metadata.deletion_timestamp is not None:
            # The cluster discards what is not complete.
            return Result()
        if model.is_finished(restore):
            await self._delete_plan_job(restore)
            return Result()
        if is_paused(restore):
            return Result()
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            if restore.status.phase in (None, "Pending") and cluster is None:
                return await self._wait(restore, None, f"{_name(restore)} does not exist")
            return await self._fail(restore, cluster, "ClusterDeleted", f"{_name(restore)} is deleted")
        if restore.status.phase == "Running":
            return await self._follow(restore, cluster)
        if restore.status.phase == "Planned":
            return await self._confirm(restore, cluster)
        return await self._plan(restore, cluster)

    async def _plan(self, restore: Restore, cluster: Cluster) -> Result:
        if blocker := _blocker(restore, cluster):
            return await self._wait(restore, cluster, blocker)
        if restore.spec.undo is not None:
            return await self._plan_undo(restore, cluster)
        declared = self._declare(cluster)
        key = declared.names.restore_plan_job(restore.metadata.uid)
        job = await get_cached_or_live(self._client, Job, key)
        if job is None or not controls(restore, job):
            return await self._start_plan(restore, cluster, declared)
        pods = await pods_of(self._client, job, cluster.key)
        state, result = job_state(job), result_of(job, pods)
        report = _report_of(result)
        if state == "Complete" and report is not None and overwrites(restore) and not report.overwrites:
            old = "the image of the instances cannot restore over present volumes. Update it"
            return await self._fail(restore, cluster, "NotSupported", old)
        if state == "Complete" and report is not None:
            pvcs = await self._pvcs(cluster)
            plan = _described(report, cluster, _volume_size(cluster, declared, pvcs))
            if missing := _missing_space(plan):
                return await self._fail(restore, cluster, "NotEnoughSpace", missing)
            return await self._report_plan(restore, cluster, plan, pvcs)
        if state == "Running":
            message = await job_problem(self._client, job, pods) or f"Job {key.name} reads the archive"
            return await self._wait(restore, cluster, message)
        return await self._fail(restore, cluster, *failure_of(job, result))

    async def _start_plan(self, restore: Restore, cluster: Cluster, declared: DeclaredCluster) -> Result:
        settings = cluster.spec.backup
        assert settings is not None
        pods = ready_instances(await self._client.list(Pod, index=(CLUSTER_INDEX, str(cluster.key))))
        declared = replace(declared, image=declared.image or await self._instance_image(cluster))
        async with self._starting:
            blocker = await start_job(
                self._client, restore, declared, preview_plan(declared, settings, restore, pods), ()
            )
        return await self._wait(restore, cluster, blocker or "a Job reads the archive")

    async def _instance_image(self, cluster: Cluster) -> str:
        """Return the image of the instances, which may be stopped."""
        found = await self._client.list(StatefulSet, index=(CLUSTER_INDEX, str(cluster.key)))
        return next((image for each in found if (image := requested_image(each.spec.template))), "")

    async def _plan_undo(self, restore: Restore, cluster: Cluster) -> Result:
        pvcs = await self._pvcs(cluster)
        try:
            plan = await undo_plan(self._client, restore, cluster, pvcs)
        except UndoNotReady as waiting:
            return await self._wait(restore, cluster, str(waiting))
        except UndoRefused as refused:
            return await self._fail(restore, cluster, refused.reason, str(refused))
        return await self._report_plan(restore, cluster, plan, pvcs)

    async def _report_plan(
        self, restore: Restore, cluster: Cluster, plan: RestorePlan, pvcs: Sequence[PersistentVolumeClaim]
    ) -> Result:
        plan = msgspec.structs.replace(plan, id=plan_id(restore, plan, cluster, pvcs))
        await self._reporter.report(restore, cluster, _planned(restore, plan), plan=plan)
        return self._requeue()

    async def _confirm(self, restore: Restore, cluster: Cluster) -> Result:
        plan, pvcs = restore.status.plan, await self._pvcs(cluster)
        lost = restore.spec.undo is not None and missing_volume(restore, cluster, pvcs)
        if plan is None or plan.id != plan_id(restore, plan, cluster, pvcs) or lost:
            # Another restore has replaced the data, or a volume is not kept any more.
            return await self._replan(restore, cluster, "the data have changed")
        if not is_confirmed(restore):
            await self._reporter.report(restore, cluster, _planned(restore, plan))
            return self._requeue()
        if blocker := _blocker(restore, cluster) or await self._other(restore):
            waiting = Progress("Planned", "Waiting", f"it is confirmed and waits: {blocker}")
            await self._reporter.report(restore, cluster, waiting)
            return self._requeue()
        if overwrites(restore) and await self._is_plan_old(restore, cluster):
            # Its backup may have expired, and the previous data are given up before the archive is read.
            return await self._replan(restore, cluster, "its plan is older than ten minutes")
        start = self._runtime.clock.now()
        await self._reporter.report(restore, cluster, Progress("Running", "Running", "it starts"), start_time=start)
        return self._requeue()

    async def _replan(self, restore: Restore, cluster: Cluster, cause: str) -> Result:
        await self._delete_plan_job(restore)
        waiting = Progress("Pending", "Waiting", f"{cause}: it is planned again")
        await self._reporter.report(restore, cluster, waiting, plan=None)
        return self._requeue()

    async def _is_plan_old(self, restore: Restore, cluster: Cluster) -> bool:
        key = self._declare(cluster).names.restore_plan_job(restore.metadata.uid)
        job = await get_cached_or_live(self._client, Job, key)
        completed = None if job is None else job.status.completion_time
        return completed is None or self._runtime.clock.now() - completed > _PLAN_MAX_AGE

    async def _follow(self, restore: Restore, cluster: Cluster) -> Result:
        names = self._declare(cluster).names
        pvcs = await self._pvcs(cluster)
        pvc = next((p for p in pvcs if _restored_by(p) == restore.metadata.uid), None)
        if pvc is not None and OVERWRITING in pvc.metadata.annotations:
            return await self._follow_overwrite(restore, cluster, names.restore_job(restore.metadata.uid))
        if pvc is not None and RESTORING not in pvc.metadata.annotations:
            return await self._follow_cut(restore, cluster, names.instance(ordinal_of(pvc) or 0))
        if not is_confirmed(restore):
            return await self._fail(restore, cluster, "Withdrawn", "spec.confirm was changed")
        if restore.spec.undo is not None:
            if missing := missing_volume(restore, cluster, pvcs):
                return await self._fail(restore, cluster, "PreviousVolumesMissing", missing)
            return await self._progress(restore, cluster, "the instances stop")
        if overwrites(restore):
            if has_timed_out(restore, self._runtime.clock.now() - _REQUEST_TIME):
                return await self._replan(restore, cluster, "the instances did not stop within ten minutes")
            return await self._progress(restore, cluster, "the instances stop")
        key = names.restore_job(restore.metadata.uid)
        job = await get_cached_or_live(self._client, Job, key)
        if job is None:
            return await self._progress(restore, cluster, "waiting for the volume of a new instance")
        pods = await pods_of(self._client, job, cluster.key)
        match job_state(job):
            case "Failed":
                reason, message = failure_of(job, result_of(job, pods))
                return await self._fail(restore, cluster, reason, f"{message.rstrip('.')}. Nothing was stopped")
            case "Complete":
                return await self._progress(restore, cluster, "the instances stop")
            case _:
                message = await job_problem(self._client, job, pods)
                return await self._progress(restore, cluster, message or f"Job {key.name} restores")

    async def _follow_overwrite(self, restore: Restore, cluster: Cluster, key: ObjectKey) -> Result:
        """Report the Job after the previous data were given up. It is repeated until it succeeds."""
        job = await get_cached_or_live(self._client, Job, key)
        if job is None:
            return await self._progress(restore, cluster, "waiting for a Job")
        pods = await pods_of(self._client, job, cluster.key)
        if job_state(job) == "Failed":
            reason, message = failure_of(job, result_of(job, pods))
            repeated = f"{message.rstrip('.')}. It is repeated, and the cluster is stopped until it succeeds"
            await self._reporter.report(restore, cluster, Progress("Running", reason, repeated))
            return self._requeue()
        problem = await job_problem(self._client, job, pods)
        return await self._progress(restore, cluster, problem or f"Job {key.name} restores")

    async def _follow_cut(self, restore: Restore, cluster: Cluster, instance: str) -> Result:
        available = next((c for c in cluster.status.conditions if c.type == "Available"), None)
        if cluster.status.primary != instance or available is None or available.status != "True":
            return await self._progress(restore, cluster, f"instance {instance} starts with the restored data")
        plan = restore.status.plan
        message = f"{_name(restore)} serves the data{_as_of(plan)}. Its replicas are copied from {instance}"
        await self._reporter.report(
            restore,
            cluster,
            Progress("Completed", "Completed", message),
            completion_time=self._runtime.clock.now(),
            backup_id=None if plan is None else plan.backup_id,
            recovered_to=None if plan is None else plan.restores_to,
        )
        return Result(requeue_after=1.0)

    async def _other(self, restore: Restore) -> str:
        """Return the restore of the cluster that runs first, or ""."""
        found = await self._client.list(Restore, namespace=restore.metadata.namespace)
        same = [r for r in found if r.spec.cluster_ref == restore.spec.cluster_ref and r.key != restore.key]
        other = active(same)
        return "" if other is None else f"Restore {other.metadata.name} runs first"

    async def _pvcs(self, cluster: Cluster) -> Sequence[PersistentVolumeClaim]:
        return await self._client.list(PersistentVolumeClaim, index=(CLUSTER_INDEX, str(cluster.key)))

    async def _delete_plan_job(self, restore: Restore) -> None:
        cluster = ObjectKey(restore.metadata.namespace, restore.spec.cluster_ref.name)
        key = ClusterNames(cluster).restore_plan_job(restore.metadata.uid)
        for kind in (ConfigMap, Job):
            present = await get_cached_or_live(self._client, kind, key)
            if present is not None and controls(restore, present) and present.metadata.deletion_timestamp is None:
                await self._client.delete(kind, key, uid=present.metadata.uid, propagation="Background")

    async def _progress(self, restore: Restore, cluster: Cluster, message: str) -> Result:
        await self._reporter.report(restore, cluster, Progress("Running", "Running", message))
        return self._requeue()

    async def _wait(self, restore: Restore, cluster: Cluster | None, message: str) -> Result:
        await self._reporter.report(restore, cluster, Progress("Pending", "Waiting", message))
        return self._requeue()

    async def _fail(self, restore: Restore, cluster: Cluster | None, reason: str, message: str) -> Result:
        ended = self._runtime.clock.now()
        await self._reporter.report(restore, cluster, Progress("Failed", reason, message), completion_time=ended)
        return Result(requeue_after=1.0)

    def _declare(self, cluster: Cluster) -> DeclaredCluster:
        return declare(cluster, "", cluster_domain=self._cluster_domain)

    def _requeue(self) -> Result:
        return Result(requeue_after=jittered(_WAITING_SECONDS, self._runtime.random))


def plan_id(restore: Restore, plan: RestorePlan, cluster: Cluster, pvcs: Sequence[PersistentVolumeClaim]) -> str:
    """Return the ID of a plan: a hash of what decides.

    Args:
        pvcs: of the cluster. Their lineage identifies the data that would be replaced.
    """
    if restore.spec.undo is not None:
        volume = next((p.metadata.uid for p in pvcs if p.metadata.name == plan.volume), "")
        source: Sequence[object] = ["undo", volume]
    else:
        source = [plan.backup_id, plan.timeline, to_builtins(restore.spec.target)]
    lineages = [p.metadata.annotations.get(LINEAGE, "0") for p in pvcs if not is_retired(p)]
    lineage = max((int(text) for text in lineages if text.isascii() and text.isdecimal()), default=0)
    decides = [cluster.metadata.uid, lineage, *source]
    digest = hashlib.sha256(msgspec.json.encode(decides, order="deterministic")).hexdigest()[:_ID_LENGTH]
    return f"{_NO_UNDO}{digest}" if overwrites(restore) else digest


def _planned(restore: Restore, plan: RestorePlan) -> Progress:
    """Return the outcome of the plan, and the next step."""
    source = f"PVC {plan.volume}" if plan.backup_id is None else plan.backup_id
    lost = f"all later transactions are lost{plan.lost_in_archive}"
    duration = "" if plan.estimated_seconds is None else f". It takes about {plan.estimated_seconds} s"
    no_undo = ""
    if overwrites(restore):
        no_undo = (
            ". The cluster is stopped during the restore, all present volumes are given up first, and no undo exists"
        )
    went = f"the cluster goes back to {source}{_as_of(plan)}, and {lost}{duration}{no_undo}"
    message = f"{went}. The ID of the plan is {plan.id}"
    if restore.spec.confirm is not None and restore.spec.confirm != plan.id:
        wrong = f"spec.confirm is {restore.spec.confirm}, and the ID of the plan is {plan.id}: nothing is restored"
        return Progress("Planned", "ConfirmMismatch", wrong)
    return Progress("Planned", "Planned", message)


def _volume_size(cluster: Cluster, declared: DeclaredCluster, pvcs: Sequence[PersistentVolumeClaim]) -> Quantity:
    """Return the size of a new volume. Volumes that grew automatically keep their size."""
    ordinals = ((p, ordinal_of(p)) for p in pvcs if not is_retired(p))
    data = [p for p, ordinal in ordinals if ordinal is not None and p.key == declared.names.data_pvc(ordinal)]
    return grown_size(declared.storage_size, cluster, "data", data) or declared.storage_size


def _described(report: PlanReport, cluster: Cluster, volume_size: Quantity) -> RestorePlan:
    """Return the plan of a Job's report, without its ID."""
    verified = None if cluster.status.backup is None else cluster.status.backup.last_verification
    return RestorePlan(
        id="",
        backup_id=report.backup,
        timeline=report.timeline,
        restores_to=report.restores_to,
        lost_transactions=report.lost_transactions,
        lost_is_minimum=report.lost_is_minimum or None,
        size_bytes=report.size_bytes,
        volume_bytes=int(volume_size),
        estimated_seconds=None if verified is None else verified.recovery_seconds,
        newest_timeline=report.newest_timeline,
    )


def _missing_space(plan: RestorePlan) -> str:
    """Return why the data do not fit into a new volume, or "". The Job of the restore needs room for WAL, too."""
    if plan.size_bytes is None or plan.volume_bytes is None or plan.size_bytes < plan.volume_bytes:
        return ""
    sizes = f"{format_bytes(plan.size_bytes)}, and a new volume has {format_bytes(plan.volume_bytes)}"
    return f"the restored data have {sizes}"


def _as_of(plan: RestorePlan | None) -> str:
    if plan is None or plan.restores_to is None:
        return ""
    return f" as of {plan.restores_to.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _blocker(restore: Restore, cluster: Cluster) -> str:
    """Return why the restore cannot start now, or "". An undo needs no archive."""
    name = f"{type(cluster).api_resource.kind} {cluster.metadata.name}"
    has_archive = cluster.spec.backup is not None and cluster.status.backup and cluster.status.backup.path
    if restore.spec.undo is None and not has_archive:
        return f"{name} has no archive. Declare spec.backup there"
    if is_paused(cluster):
        return f"{name} is paused"
    if cluster.spec.hibernated:
        return f"{name} is hibernated. Set spec.hibernated to false"
    upgrading = next((c for c in cluster.status.conditions if (c.type, c.reason) == ("UpToDate", "Upgrading")), None)
    return f"{name} is being upgraded" if upgrading is not None else ""


def _name(restore: Restore) -> str:
    return f"{restore.spec.cluster_ref.kind} {restore.spec.cluster_ref.name}"


def _restored_by(pvc: PersistentVolumeClaim) -> str:
    return "" if is_retired(pvc) else pvc.metadata.annotations.get(RESTORED_BY, "")


def _report_of(result: JobResult | None) -> PlanReport | None:
    """Return the report of a Job that succeeded."""
    if result is None or not result.ok:
        return None
    try:
        return msgspec.convert(result.document.get("plan"), PlanReport, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return None
