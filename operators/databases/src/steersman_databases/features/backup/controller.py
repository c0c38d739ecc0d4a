"""Controller of ``Backup``: one Job at a time for each source.

The status follows from the Job's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import cast

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.client import MergePatch
from steersman.controller import (
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
    add_finalizer,
    remove_finalizer,
)
from steersman.errors import ApiError, NotFound
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, Cluster, Database
from steersman_databases.api.group import is_paused
from steersman_databases.cluster.declared import declare, engine_of
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.core.api_errors import is_namespace_terminating, is_rejection
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.database_naming import TRACKING_LABEL, DatabaseNames
from steersman_databases.core.outcome import jittered, truncated
from steersman_databases.engines.cluster_engine import CLUSTER_DOMAIN, DeclaredCluster
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.features.backup import model
from steersman_databases.features.backup.catalog import backup_from, read_catalog
from steersman_databases.features.backup.expiry import FINALIZER, BackupExpiry
from steersman_databases.features.backup.jobs import backup_plan, primary_pod, ready_instances
from steersman_databases.features.backup.progress import Progress, with_progress
from steersman_databases.features.backup.queries import (
    backups_of,
    cluster_key,
    controls,
    job_problem,
    kind_of,
    pods_of,
    running_job,
    source_of,
    start_dump_job,
    start_job,
    store_of,
)
from steersman_databases.features.backup.specs import JobResult, job_state, result_of
from steersman_databases.features.backup_store.pod_identity import present_identity
from steersman_databases.features.dump.connection import connection_of
from steersman_databases.features.dump.model import dump_blocker
from steersman_databases.features.dump.specs import dump_job, dump_labels, dump_plan
from steersman_databases.features.verification.runner import BackupVerification

_START_DEADLINE = timedelta(hours=1)
"""Time after which a backup that cannot start fails.

The next one of its schedule retries.
"""
_WAITING_SECONDS = 10.0
_LOGS_SECONDS = 3600
"""Time that the pods of a failed Job stay for their logs."""
_STORE_WORKS = frozenset({model.ARCHIVING, "ArchiveLagging", "SegmentsDropped", "WALMissing", "BinaryLogMissing"})
"""States of the archive in which a backup can complete.

Its own WAL reaches the store.
"""


class BackupReconciler(RequestReconciler[Backup]):
    """Makes the backups of clusters of both engines.

    Args:
        cluster_domain: DNS domain of the Kubernetes cluster.
    """

    def __init__(self, context: ReconcilerContext, cluster_domain: str = CLUSTER_DOMAIN) -> None:
        super().__init__(context)
        self._cluster_domain = cluster_domain
        clock = self.runtime.clock
        self._expiry = BackupExpiry(self.client, self.events, clock, self._declare)
        self._verification = BackupVerification(self.client, self.events, clock, self.runtime.random, self._declare)

    async def reconcile(self, request: Request) -> Result:
        backup = await self.client.get_or_none(Backup, request)
        if backup is None:
            return Result()
        try:
            return await self._reconcile(backup)
        except ApiError as error:
            if is_namespace_terminating(error):
                return Result()
            if not is_rejection(error) or backup.status.phase not in (None, "Pending"):
                raise
            return await self._wait(backup, f"the API server rejects the Job: {error}")

    async def _reconcile(self, backup: Backup) -> Result:
        if backup.metadata.deletion_timestamp is not None:
            return await self._expiry.finalize(backup)
        if backup.spec.deletion_policy == "Delete":
            backup = await add_finalizer(self.client, backup, FINALIZER)
        elif FINALIZER in backup.metadata.finalizers:
            await remove_finalizer(self.client, backup, FINALIZER)
        if TRACKING_LABEL in backup.metadata.labels and model.trigger_of(backup) == "Final":
            # Earlier versions set it. A GitOps tool that tracks its objects by it would delete the backup.
            untracked = MergePatch({"metadata": {"labels": {TRACKING_LABEL: None}}})
            backup = await self.client.patch(Backup, backup.key, untracked)
        if (
            backup.spec.cluster_ref is not None
            and model.trigger_of(backup) == "Discovered"
            and not model.is_finished(backup)
        ):
            return await self._describe(backup)
        if backup.status.phase == "Completed":
            await self._delete_job(backup)
            return Result() if backup.spec.cluster_ref is None else await self._verification.advance(backup)
        if not model.needs_job(backup) or is_paused(backup):
            return Result()
        return await self._run(backup)

    async def _run(self, backup: Backup) -> Result:
        names = ClusterNames(cluster_key(backup))
        cluster = await source_of(self.client, backup)
        job = await get_cached_or_live(self.client, Job, names.backup_job(backup.metadata.uid))
        if job is not None and controls(backup, job):
            if job_state(job) == "Running" and (cluster is None or _is_ended(backup, cluster)):
                return await self._abort(backup)
            return await self._follow(backup, job)
        if backup.status.phase == "Running":
            await self._report(
                backup,
                Progress("Failed", "JobDeleted", f"Job {names.backup_job(backup.metadata.uid).name} was deleted"),
            )
            return Result()
        if cluster is None:
            return await self._wait(backup, f"{backup.source_kind} {names.key.name} does not exist")
        if _is_ended(backup, cluster):
            return await self._abort(backup)
        if blocker := await self._blocker(backup, cluster):
            return await self._wait(backup, blocker)
        return await self._start(backup, cluster)

    async def _blocker(self, backup: Backup, cluster: Cluster | Database) -> str:
        """Reason why the backup cannot start now, or empty."""
        name = f"{type(cluster).api_resource.kind} {cluster.metadata.name}"
        if cluster.spec.backup is None:
            return f"{name} has no spec.backup. Declare an object store there"
        if is_paused(cluster):
            return f"{name} is paused"
        first = model.first_in_queue(await backups_of(self.client, backup))
        if first is not None and first.metadata.uid != backup.metadata.uid:
            return f"Backup {first.metadata.name} runs first"
        if isinstance(cluster, Database):
            return dump_blocker(cluster)
        if cluster.spec.hibernated:
            return f"{name} is hibernated. Set spec.hibernated to false"
        if primary_pod(await self._instances(cluster.key)) is None:
            return f"{name} has no primary"
        config_map = await self.client.get_or_none(ConfigMap, ClusterNames(cluster.key).backup_catalog)
        catalog = None if config_map is None else read_catalog(config_map.data)
        holds, _, message = model.archiving_condition(catalog)
        if not holds and (catalog is None or catalog.archive is None or catalog.archive.state not in _STORE_WORKS):
            return f"archiving does not work yet: {message}"
        return ""

    async def _abort(self, backup: Backup) -> Result:
        """End a backup of a cluster that is being deleted.

        Its servers stop, and its volumes must go.
        """
        await self._delete_job(backup)
        await self._report(
            backup,
            Progress("Failed", "ClusterDeleted", f"{backup.source_kind} {backup.source_name} is being deleted"),
        )
        return Result()

    async def _wait(self, backup: Backup, blocker: str) -> Result:
        if model.age_of(backup, self.runtime.clock.now()) > _START_DEADLINE:
            await self._report(
                backup, Progress("Failed", "NotStarted", f"it could not start within an hour: {blocker}")
            )
            return Result()
        await self._report(backup, Progress("Pending", "Waiting", blocker))
        return self._requeue()

    async def _start(self, backup: Backup, cluster: Cluster | Database) -> Result:
        settings = cluster.spec.backup
        assert settings is not None
        others = await backups_of(self.client, backup)
        if isinstance(cluster, Database):
            connection = connection_of(cluster)
            plan = dump_plan(cluster, settings, backup, connection, others)
            identity = await present_identity(self.client, DatabaseNames(cluster.key).dump_store)
            job = dump_job(cluster, plan, connection, identity)
            running = await start_dump_job(self.client, backup, plan, job, dump_labels(cluster))
        else:
            declared, pods = self._declare(cluster), await self._instances(cluster.key)
            # A restore reads the store meanwhile: nothing may be removed from it.
            reading = await running_job(self.client, declared, ("verification", "restore"))
            plan = backup_plan(declared, settings, backup, pods, others, retention=not reading)
            running = await start_job(self.client, backup, declared, plan)
        if running:
            return await self._wait(backup, running)
        created = await get_cached_or_live(self.client, Job, plan.key)
        return self._requeue() if created is None else await self._follow(backup, created)

    async def _follow(self, backup: Backup, job: Job) -> Result:
        pods = await pods_of(self.client, job, cluster_key(backup))
        result, state = result_of(job, pods), job_state(job)
        started = await self._started_fields(backup, job)
        if state == "Running":
            message = await job_problem(self.client, job, pods) or f"Job {job.metadata.name} makes the backup"
            await self._report(backup, Progress("Running", "Running", message), **started)
            return self._requeue()
        found = None if result is None else backup_from(result.document.get("backup"))
        if state == "Complete" and result is not None and result.ok and found is not None:
            fields = {**started, **model.status_from(found, backup.status)}
            warning = result.document.get("warning")
            message = warning if isinstance(warning, str) else "the backup is complete"
            if backup.spec.database_ref is not None:
                await self._delete_expired(backup, result)
            await self._report(backup, Progress("Completed", "Completed", message), **fields)
            return Result(requeue_after=1.0)
        await self._expire_job(job)
        await self._report(backup, _failure(job, result), **started, stop_time=self.runtime.clock.now())
        return Result()

    async def _started_fields(self, backup: Backup, job: Job) -> dict[str, object]:
        """Fields of a backup whose Job was created."""
        if backup.status.phase == "Running":
            return {}
        cluster = await source_of(self.client, backup)
        engine = cluster.engine if isinstance(cluster, Database) else engine_of(kind_of(backup))
        path = cluster.status.backup.path if cluster is not None and cluster.status.backup is not None else None
        started = job.metadata.creation_timestamp
        return {"path": path, "engine": engine, "store": store_of(cluster), "start_time": started}

    async def _describe(self, backup: Backup) -> Result:
        """Fill in the status of a discovered backup from the catalog."""
        key = cluster_key(backup)
        config_map = await self.client.get_or_none(ConfigMap, ClusterNames(key).backup_catalog)
        cluster = await self.client.get_or_none(kind_of(backup), key)
        catalog = None if config_map is None else read_catalog(config_map.data)
        backup_id = backup.metadata.annotations.get(model.BACKUP_ID_ANNOTATION, "")
        found = None if catalog is None else catalog.find(backup_id)
        if found is None or cluster is None or cluster.status.backup is None:
            return await self._wait(backup, f"backup {backup_id} is not in the catalog of {key.name}")
        fields = model.status_from(found, backup.status)
        progress = Progress("Completed", "Discovered", "the backup was found in the object store")
        engine = engine_of(type(cluster))
        path, store = cluster.status.backup.path, store_of(cluster)
        await self._report(backup, progress, **fields, path=path, engine=engine, store=store)
        return Result()

    async def _report(self, backup: Backup, progress: Progress, **fields: object) -> None:
        status = with_progress(backup, progress, self.runtime.clock.now(), **fields)
        if status == backup.status:
            return
        await self.client.apply_status(backup, status)
        if backup.status.phase != progress.phase:
            await self._emit(backup, progress, truncated(progress.message))

    async def _emit(self, backup: Backup, progress: Progress, message: str) -> None:
        reason = {"Running": "BackupStarted", "Completed": "BackupCompleted", "Failed": "BackupFailed"}.get(
            progress.phase
        )
        if reason is None or progress.reason == "Discovered":
            return
        emit = self.events.warning if progress.phase == "Failed" else self.events.normal
        emit(backup, reason, message)
        cluster = await source_of(self.client, backup)
        if cluster is not None:
            emit(cluster, reason, f"Backup {backup.metadata.name}: {message}")

    async def _delete_expired(self, backup: Backup, result: JobResult) -> None:
        """Delete the objects of dumps that the Job has removed."""
        found = result.document.get("expired")
        removed = cast("list[object]", found) if isinstance(found, list) else []
        for other in await backups_of(self.client, backup):
            if other.status.path == backup.status.path and other.status.backup_id in removed:
                with suppress(NotFound):
                    await self.client.delete(Backup, other.key, uid=other.metadata.uid)

    async def _expire_job(self, job: Job) -> None:
        """Keep a failed Job for its logs, but not its volumes."""
        if job.spec.ttl_seconds_after_finished is None:
            patch = MergePatch({"spec": {"ttlSecondsAfterFinished": _LOGS_SECONDS}})
            await self.client.patch(Job, job.key, patch)

    async def _delete_job(self, backup: Backup) -> None:
        """Delete the Job of a backup, with its pods."""
        key = ClusterNames(cluster_key(backup)).backup_job(backup.metadata.uid)
        for kind in (Job, ConfigMap):
            present = await self.client.get_or_none(kind, key)
            if present is not None and controls(backup, present) and present.metadata.deletion_timestamp is None:
                await self.client.delete(kind, key, uid=present.metadata.uid, propagation="Background")

    async def _instances(self, cluster: ObjectKey) -> Sequence[Pod]:
        return ready_instances(await self.client.list(Pod, index=(CLUSTER_INDEX, str(cluster))))

    def _declare(self, cluster: Cluster) -> DeclaredCluster:
        return declare(cluster, "", cluster_domain=self._cluster_domain)

    def _requeue(self) -> Result:
        return Result(requeue_after=jittered(_WAITING_SECONDS, self.runtime.random))


def _is_ended(backup: Backup, cluster: Cluster | Database) -> bool:
    """Return True if the deletion of the source ends the backup.

    A final dump is part of that deletion.
    """
    is_final = isinstance(cluster, Database) and model.trigger_of(backup) == "Final"
    return cluster.metadata.deletion_timestamp is not None and not is_final


def _failure(job: Job, result: JobResult | None) -> Progress:
    if result is not None and not result.ok and result.message:
        return Progress("Failed", result.reason or "BackupFailed", result.message)
    failed = next((c for c in job.status.conditions if c.type == "Failed" and c.status == "True"), None)
    if failed is not None:
        detail = failed.message or failed.reason or "no reason is known"
        return Progress("Failed", failed.reason or "BackupFailed", f"Job {job.metadata.name} failed: {detail}")
    return Progress(
        "Failed", "BackupFailed", f"Job {job.metadata.name} ended without a result. See the logs of its pods"
    )
