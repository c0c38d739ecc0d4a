"""Verification of ``Backup`` objects: one Job at a time for each cluster.

Everything follows from the annotation, the Job and the status. So an interruption at any API call is harmless.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.controller import EventRecorder, Result
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Backup, Cluster
from steersman_databases.api.group import is_paused
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.outcome import jittered, truncated
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.features.backup.catalog import read_catalog
from steersman_databases.features.backup.jobs import primary_pod, ready_instances, verification_plan
from steersman_databases.features.backup.model import first_in_queue
from steersman_databases.features.backup.queries import (
    backups_of,
    cluster_key,
    controls,
    job_problem,
    kind_of,
    pods_of,
    start_job,
    store_of,
)
from steersman_databases.features.backup.specs import job_state, result_of
from steersman_databases.features.verification import model
from steersman_databases.features.verification.model import Verdict

_WAITING_SECONDS = 10.0
_LOGS_SECONDS = 3600
"""Time that the pods of a failed Job stay for their logs."""


@dataclass(frozen=True, slots=True)
class BackupVerification:
    """Verifies backups on request. One for a controller.

    Args:
        declare: declares a cluster.
        random: spreads the polling of many backups.
    """

    client: CachedClient
    events: EventRecorder
    clock: Clock
    random: random.Random
    declare: Callable[[Cluster], DeclaredCluster]

    async def advance(self, backup: Backup) -> Result:
        """One step for a completed backup."""
        if is_paused(backup):
            return Result()
        request = model.pending_request(backup)
        if not request:
            status = model.never_verified(backup, backup.status, self.clock.now())
            if status != backup.status:
                await self.client.apply_status(backup, status)
            await self._clean_up(backup)
            return Result()
        key = ClusterNames(cluster_key(backup)).verification_job(backup.metadata.uid, request)
        cluster = await self.client.get_or_none(kind_of(backup), cluster_key(backup))
        job = await get_cached_or_live(self.client, Job, key)
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            # The Job of a deleted cluster must not use its Secrets and volumes.
            if job is not None and controls(backup, job):
                await self._delete(job.key)
            name = f"{backup.source_kind} {cluster_key(backup).name}"
            return await self._finish(backup, request, Verdict(None, "ClusterDeleted", f"{name} is deleted"))
        if job is not None and controls(backup, job):
            return await self._follow(backup, request, job)
        if obstacle := _obstacle(backup, cluster):
            return await self._finish(backup, request, Verdict(None, "ArchiveNotInUse", obstacle))
        if blocker := await self._blocker(backup, cluster):
            return await self._wait(backup, blocker)
        return await self._start(backup, request, cluster)

    async def _blocker(self, backup: Backup, cluster: Cluster) -> str:
        """Reason why the verification cannot start now, or empty."""
        name = f"{type(cluster).api_resource.kind} {cluster.metadata.name}"
        if is_paused(cluster):
            return f"{name} is paused"
        if primary_pod(ready_instances(await self._pods(cluster))) is None:
            return f"{name} has no primary"
        first = first_in_queue(await backups_of(self.client, backup))
        return "" if first is None else f"Backup {first.metadata.name} runs first"

    async def _start(self, backup: Backup, request: str, cluster: Cluster) -> Result:
        settings = cluster.spec.backup
        assert settings is not None
        declared, names = self.declare(cluster), ClusterNames(cluster.key)
        config_map = await self.client.get_or_none(ConfigMap, names.backup_catalog)
        catalog = None if config_map is None else read_catalog(config_map.data)
        archived = (
            (catalog.archive.last_archived or "") if catalog is not None and catalog.archive is not None else ""
        )
        key = names.verification_job(backup.metadata.uid, request)
        pods = ready_instances(await self._pods(cluster))
        plan = verification_plan(declared, settings, backup, pods, key, archived)
        blocker = await start_job(self.client, backup, declared, plan, ("backup", "verification"))
        return await self._wait(backup, blocker or f"Job {key.name} restores the backup")

    async def _follow(self, backup: Backup, request: str, job: Job) -> Result:
        pods = await pods_of(self.client, job, cluster_key(backup))
        state, result = job_state(job), result_of(job, pods)
        if state == "Running":
            problem = await job_problem(self.client, job, pods)
            return await self._wait(backup, problem or f"Job {job.metadata.name} restores the backup")
        if state == "Complete":
            await self._finish(backup, request, model.verdict_of(backup, result))
            await self._delete(job.key)
            return Result()
        if job.spec.ttl_seconds_after_finished is None:
            patch = MergePatch({"spec": {"ttlSecondsAfterFinished": _LOGS_SECONDS}})
            await self.client.patch(Job, job.key, patch)
        failed = next((c for c in job.status.conditions if c.type == "Failed" and c.status == "True"), None)
        reason = (failed.reason if failed is not None else None) or "VerificationIncomplete"
        detail = (failed.message if failed is not None else None) or "see the logs of its pods"
        # Before its deadline a Job may have reported an earlier attempt.
        known = None if result is None or result.ok or reason == "DeadlineExceeded" else result
        verdict = model.verdict_of(backup, known, f"Job {job.metadata.name} failed: {detail}", reason)
        return await self._finish(backup, request, verdict)

    async def _wait(self, backup: Backup, message: str) -> Result:
        verdict = Verdict(None, "Verifying", message)
        status = model.with_condition(backup, backup.status, verdict, self.clock.now())
        if status != backup.status:
            await self.client.apply_status(backup, status)
        return Result(requeue_after=jittered(_WAITING_SECONDS, self.random))

    async def _finish(self, backup: Backup, request: str, verdict: Verdict) -> Result:
        status = model.with_verdict(backup, verdict, request, self.clock.now())
        await self.client.apply_status(backup, status)
        message = truncated(verdict.message)
        cluster = await self.client.get_or_none(kind_of(backup), cluster_key(backup))
        emit = self.events.normal if verdict.verified else self.events.warning
        reason = {True: "BackupVerified", False: "BackupDamaged", None: "VerificationIncomplete"}[verdict.verified]
        emit(backup, reason, message)
        if cluster is not None:
            emit(cluster, reason, f"Backup {backup.metadata.name}: {message}")
        return Result()

    async def _clean_up(self, backup: Backup) -> None:
        """Delete what a handled request left. A failed Job stays for its logs."""
        handled = None if backup.status.verification is None else backup.status.verification.request
        if not handled:
            return
        key = ClusterNames(cluster_key(backup)).verification_job(backup.metadata.uid, handled)
        job = await self.client.get_or_none(Job, key)
        if job is None or (controls(backup, job) and job_state(job) == "Complete"):
            await self._delete(key)

    async def _delete(self, key: ObjectKey) -> None:
        """Delete a Job, with its pods and their volumes, and its ConfigMap."""
        for kind in (Job, ConfigMap):
            present = await self.client.get_or_none(kind, key)
            if present is not None and present.metadata.deletion_timestamp is None:
                await self.client.delete(kind, key, uid=present.metadata.uid, propagation="Background")

    async def _pods(self, cluster: Cluster) -> list[Pod]:
        return list(await self.client.list(Pod, index=(CLUSTER_INDEX, str(cluster.key))))


def _obstacle(backup: Backup, cluster: Cluster) -> str:
    """Reason why the cluster cannot read the backup, or empty."""
    name = f"{type(cluster).api_resource.kind} {cluster.metadata.name}"
    if cluster.spec.backup is None:
        return f"{name} has no spec.backup. Declare the object store there"
    observed = cluster.status.backup
    if observed is None or observed.path != backup.status.path or store_of(cluster) != backup.status.store:
        return f"{name} archives to another path than that of the backup"
    return ""
