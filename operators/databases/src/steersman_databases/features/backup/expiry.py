"""Deletion of a ``Backup`` with ``deletionPolicy: Delete``.

A Job removes its set from the store first.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Namespace, Pod
from steersman.cache import CachedClient
from steersman.controller import EventRecorder, Result, remove_finalizer
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Backup, Cluster
from steersman_databases.api.group import FORCE_DELETE_ANNOTATION, is_deletion_forced
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.outcome import truncated
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.features.backup.catalog import read_catalog
from steersman_databases.features.backup.jobs import expire_plan, primary_pod, ready_instances
from steersman_databases.features.backup.model import is_expired
from steersman_databases.features.backup.queries import (
    backups_of,
    cluster_key,
    controls,
    kind_of,
    pods_of,
    start_job,
)
from steersman_databases.features.backup.specs import job_state, result_of

FINALIZER = "databases.steersman.dev/backup"
_RETRY = timedelta(hours=1)
_WAITING_SECONDS = 10.0
_FORCE = f'To delete only the object, set its annotation {FORCE_DELETE_ANNOTATION} to "true"'


class BackupExpiry:
    """Removes the sets of deleted ``Backup`` objects. One for a controller.

    Args:
        declare: declares a cluster.
    """

    def __init__(
        self,
        client: CachedClient,
        events: EventRecorder,
        clock: Clock,
        declare: Callable[[Cluster], DeclaredCluster],
    ) -> None:
        self._client = client
        self._events = events
        self._clock = clock
        self._declare = declare

    async def finalize(self, backup: Backup) -> Result:
        """One step. The finalizer is removed once the set is gone from the store, or stays there on purpose."""
        if FINALIZER not in backup.metadata.finalizers:
            return Result()
        cluster = await self._client.get_or_none(kind_of(backup), cluster_key(backup))
        if (retained := await self._retained_because(backup, cluster)) is not None:
            if retained:
                message = f"backup {backup.status.backup_id} stays in the object store: {retained}"
                self._events.normal(backup, "BackupRetained", message)
            await remove_finalizer(self._client, backup, FINALIZER)
            return Result()
        assert cluster is not None
        names = ClusterNames(cluster.key)
        job = await get_cached_or_live(self._client, Job, names.expire_job(backup.metadata.uid))
        if job is None or not controls(backup, job):
            return await self._start(backup, cluster)
        return await self._follow(backup, job)

    async def _retained_because(self, backup: Backup, cluster: Cluster | None) -> str | None:
        """Return why the set stays in the store.

        Empty if there is none any more; None if it must be removed.
        """
        if backup.spec.deletion_policy != "Delete" or backup.status.backup_id is None:
            return ""
        if is_deletion_forced(backup):
            return f"{FORCE_DELETE_ANNOTATION} is true"
        namespace = await get_live(self._client, Namespace, ObjectKey("", backup.metadata.namespace))
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return "its namespace is being deleted"
        if cluster is None or cluster.metadata.deletion_timestamp is not None or cluster.spec.backup is None:
            return f"{backup.source_kind} {backup.source_name} is deleted or has no spec.backup"
        if cluster.status.backup is None or cluster.status.backup.path != backup.status.path:
            return f"it belongs to a deleted cluster named {backup.source_name}"
        config_map = await self._client.get_or_none(ConfigMap, ClusterNames(cluster.key).backup_catalog)
        catalog = None if config_map is None else read_catalog(config_map.data)
        return "" if is_expired(backup, catalog) else None

    async def _start(self, backup: Backup, cluster: Cluster) -> Result:
        settings = cluster.spec.backup
        assert settings is not None
        pods = ready_instances(await self._client.list(Pod, index=(CLUSTER_INDEX, str(cluster.key))))
        if primary_pod(pods) is None:
            return await self._report(backup, f"{backup.source_name} has no primary")
        declared = self._declare(cluster)
        plan = expire_plan(declared, settings, backup, pods, await backups_of(self._client, backup))
        blocker = await start_job(self._client, backup, declared, plan, ("backup", "verification", "restore"))
        return await self._report(backup, blocker or f"Job {plan.key.name} removes it from the object store")

    async def _follow(self, backup: Backup, job: Job) -> Result:
        state = job_state(job)
        if state == "Running":
            return await self._report(backup, f"Job {job.metadata.name} removes it from the object store")
        result = result_of(job, await pods_of(self._client, job, cluster_key(backup)))
        if state == "Complete" and result is not None and result.ok:
            self._events.normal(backup, "BackupExpired", f"backup {backup.status.backup_id} was removed")
            await remove_finalizer(self._client, backup, FINALIZER)
            return Result()
        times = (c.last_transition_time for c in job.status.conditions if c.last_transition_time is not None)
        ended = max(times, default=job.metadata.creation_timestamp)
        if ended is not None and self._clock.now() - ended > _RETRY and job.metadata.deletion_timestamp is None:
            await self._client.delete(Job, job.key, uid=job.metadata.uid, propagation="Background")
        message = result.message.rstrip(".") if result is not None else f"Job {job.metadata.name} failed"
        return await self._report(backup, f"{message}. {_FORCE}")

    async def _report(self, backup: Backup, message: str) -> Result:
        text = truncated(f"deletion waits: {message}")
        if backup.status.message != text:
            try:
                await self._client.apply_status(backup, msgspec.structs.replace(backup.status, message=text))
            except NotFound:
                return Result()
        return Result(requeue_after=_WAITING_SECONDS)
