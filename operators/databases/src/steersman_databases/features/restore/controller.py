"""Controller of ``Restore``: one Job at a time for each cluster.

Everything follows from the Job, the account on the server and the status. So an interruption at any API call is
harmless. The finalizer stays as long as the server may have the account or an unfinished copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Namespace, Pod, Secret
from steersman.client import MergePatch
from steersman.controller import (
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
    add_finalizer,
    remove_finalizer,
)
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman_databases.api import CLUSTER_KINDS, Backup, Cluster, Restore
from steersman_databases.api.group import is_deletion_forced, is_paused
from steersman_databases.cluster.declared import declare
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.core.api_errors import is_namespace_terminating, is_rejection
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.outcome import jittered, truncated
from steersman_databases.engines import EngineError
from steersman_databases.engines.cluster_engine import CLUSTER_DOMAIN, DeclaredCluster
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.server import DatabaseServer, SqlCredentials
from steersman_databases.engines.sql.restore_account import CopyDatabaseMissing, CopyNameTaken, CopyServer
from steersman_databases.features.backup.jobs import primary_pod, ready_instances
from steersman_databases.features.backup.progress import Progress
from steersman_databases.features.backup.queries import (
    BACKUP_INDEX,
    cluster_index,
    controls,
    job_problem,
    pods_of,
    running_job,
    start_job,
)
from steersman_databases.features.backup.specs import job_state, result_of
from steersman_databases.features.certificates.model import generate_password
from steersman_databases.features.restore import model
from steersman_databases.features.restore.in_place import InPlaceRestores
from steersman_databases.features.restore.reporter import RestoreReporter, failure_of
from steersman_databases.features.restore.specs import account_secret, restore_plan
from steersman_databases.features.restore_in_place.model import is_in_place
from steersman_databases.sql.server_resolver import ServerNotResolved, ServerResolver

FINALIZER = "databases.steersman.dev/restore"
_WAITING_SECONDS = 10.0
_LOGS_SECONDS = 600
"""Time that the pods of a failed Job stay for their logs."""
_CLEAN_UP_TIMEOUT = timedelta(minutes=10)
"""Longest time that a deletion waits for the server."""


class RestoreReconciler(RequestReconciler[Restore]):
    """Restores tables and databases of clusters of both engines.

    Args:
        resolver: connects to primaries.
        servers: operations on primaries, by engine.
        cluster_domain: DNS domain of the Kubernetes cluster.
    """

    def __init__(
        self,
        context: ReconcilerContext,
        resolver: ServerResolver,
        servers: Mapping[str, CopyServer],
        cluster_domain: str = CLUSTER_DOMAIN,
    ) -> None:
        super().__init__(context)
        self._resolver = resolver
        self._servers = servers
        self._cluster_domain = cluster_domain
        # No other Job may be created between check and creation, see `start_job`.
        self._starting = asyncio.Lock()
        self._reporter = RestoreReporter(context)
        self._in_place = InPlaceRestores(context, self._reporter, self._starting, cluster_domain)

    async def reconcile(self, request: Request) -> Result:
        restore = await self.client.get_or_none(Restore, request)
        if restore is None:
            return Result()
        try:
            return await self._reconcile(restore)
        except ApiError as error:
            if is_namespace_terminating(error):
                return Result(requeue_after=_WAITING_SECONDS)
            if not is_rejection(error) or restore.status.phase not in (None, "Pending"):
                raise
            return await self._wait(restore, f"the API server rejects the Job: {error}")

    async def _reconcile(self, restore: Restore) -> Result:
        if is_in_place(restore):
            return await self._in_place.reconcile(restore, await self._cluster(restore))
        if restore.metadata.deletion_timestamp is not None:
            return await self._finalize(restore)
        if model.is_finished(restore):
            await self._delete_objects(restore, keep_job=restore.status.phase == "Failed")
            await remove_finalizer(self.client, restore, FINALIZER)
            return Result()
        if is_paused(restore):
            return Result()
        cluster = await self._cluster(restore)
        job = await get_cached_or_live(self.client, Job, self._key(restore))
        is_own = job is not None and controls(restore, job)
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            if cluster is None and not is_own and restore.status.phase != "Running":
                return await self._wait(restore, f"{self._name(restore)} does not exist")
            return await self._fail(restore, "ClusterDeleted", f"{self._name(restore)} is deleted")
        if job is not None and is_own:
            return await self._follow(restore, cluster, job)
        if restore.status.phase == "Running":
            return await self._discard_and_fail(restore, cluster, "JobDeleted", "its Job was deleted")
        return await self._start(restore, cluster)

    async def _start(self, restore: Restore, cluster: Cluster) -> Result:
        if invalid := model.invalid_name(restore):
            return await self._fail(restore, "NameConflict", invalid)
        pods = ready_instances(await self._pods(cluster))
        if blocker := self._blocker(restore, cluster, pods):
            return await self._wait(restore, blocker)
        declared = self._declare(cluster)
        if running := await running_job(self.client, declared, ("restore",), self._key(restore)):
            return await self._queue(restore, f"Job {running} runs first")
        restore = await add_finalizer(self.client, restore, FINALIZER)
        target = model.copy_target(restore, await self._password(restore, declared))
        try:
            await self._copies(restore).prepare(await self._server(cluster), target)
        except CopyNameTaken as error:
            return await self._discard_and_fail(restore, cluster, "NameConflict", str(error))
        except CopyDatabaseMissing as error:
            return await self._discard_and_fail(restore, cluster, "DatabaseNotFound", str(error))
        except (EngineError, ServerNotResolved) as error:
            return await self._wait(restore, str(error))
        settings = cluster.spec.backup
        assert settings is not None
        index = cluster_index(restore.spec.cluster_ref.kind, cluster.key)
        backups = await self.client.list(Backup, index=(BACKUP_INDEX, index))
        plan = restore_plan(declared, settings, restore, pods, backups)
        # It does not wait for backups, which may take hours: their retention removes nothing that a target within
        # the window needs.
        async with self._starting:
            blocker = await start_job(self.client, restore, declared, plan, ("restore",))
        if blocker:
            return await self._queue(restore, blocker)
        created = await get_cached_or_live(self.client, Job, plan.key)
        return self._requeue() if created is None else await self._follow(restore, cluster, created)

    def _blocker(self, restore: Restore, cluster: Cluster, pods: Sequence[Pod]) -> str:
        """Reason why the restore cannot start now, or empty."""
        name = self._name(restore)
        if cluster.spec.backup is None or cluster.status.backup is None or not cluster.status.backup.path:
            return f"{name} has no archive. Declare spec.backup there"
        if is_paused(cluster):
            return f"{name} is paused"
        if cluster.spec.hibernated:
            return f"{name} is hibernated. Set spec.hibernated to false"
        return f"{name} has no primary" if primary_pod(pods) is None else ""

    async def _follow(self, restore: Restore, cluster: Cluster, job: Job) -> Result:
        pods = await pods_of(self.client, job, cluster.key)
        state, result = job_state(job), result_of(job, pods)
        if state == "Running":
            message = await job_problem(self.client, job, pods) or f"Job {job.metadata.name} restores the data"
            await self._report(
                restore, Progress("Running", "Running", message), start_time=job.metadata.creation_timestamp
            )
            return self._requeue()
        report = model.report_of(result)
        if state == "Complete" and report is not None:
            return await self._complete(restore, cluster, report)
        if job.spec.ttl_seconds_after_finished is None:
            patch = MergePatch({"spec": {"ttlSecondsAfterFinished": _LOGS_SECONDS}})
            await self.client.patch(Job, job.key, patch)
        return await self._discard_and_fail(restore, cluster, *failure_of(job, result))

    async def _complete(self, restore: Restore, cluster: Cluster, report: model.RestoreReport) -> Result:
        target = model.copy_target(restore, "")
        try:
            outcome = await self._copies(restore).finish(await self._server(cluster), target, report.owner)
        except (EngineError, ServerNotResolved) as error:
            await self._report(restore, Progress("Running", "Running", f"giving the copy to its owner: {error}"))
            return self._requeue()
        fields = model.completed_fields(restore, report, outcome, self.runtime.clock.now())
        progress = Progress("Completed", "Completed", model.completed_message(restore, report))
        await self._report(restore, progress, **fields)
        return Result(requeue_after=1.0)

    async def _discard_and_fail(self, restore: Restore, cluster: Cluster, reason: str, message: str) -> Result:
        try:
            await self._copies(restore).discard(await self._server(cluster), model.copy_target(restore, ""))
        except (EngineError, ServerNotResolved) as error:
            waiting = f"it failed ({message.rstrip('.')}), and its account is not dropped yet: {error}"
            await self._report(restore, Progress("Running", "Running", waiting))
            return self._requeue()
        return await self._fail(restore, reason, message)

    async def _fail(self, restore: Restore, reason: str, message: str) -> Result:
        await self._report(restore, Progress("Failed", reason, message), completion_time=self.runtime.clock.now())
        return Result(requeue_after=1.0)

    async def _wait(self, restore: Restore, blocker: str) -> Result:
        if model.age_of(restore, self.runtime.clock.now()) > model.START_DEADLINE:
            cluster = await self._cluster(restore)
            message = f"it could not start within an hour: {blocker}"
            if cluster is None or cluster.metadata.deletion_timestamp is not None:
                return await self._fail(restore, "NotStarted", message)
            return await self._discard_and_fail(restore, cluster, "NotStarted", message)
        return await self._queue(restore, blocker)

    async def _queue(self, restore: Restore, blocker: str) -> Result:
        """Wait without a deadline."""
        await self._report(restore, Progress("Pending", "Waiting", blocker))
        return self._requeue()

    async def _finalize(self, restore: Restore) -> Result:
        """Remove the Job, then the account and the unfinished copy. A completed copy stays."""
        if FINALIZER not in restore.metadata.finalizers:
            return Result()
        await self._delete_objects(restore)
        cluster = await self._cluster(restore)
        is_present = cluster is not None and cluster.metadata.deletion_timestamp is None
        if is_present and not model.is_finished(restore) and not await self._is_abandoned(restore):
            assert cluster is not None
            try:
                await self._copies(restore).discard(await self._server(cluster), model.copy_target(restore, ""))
            except (EngineError, ServerNotResolved) as error:
                since = restore.metadata.deletion_timestamp
                if since is None or self.runtime.clock.now() - since < _CLEAN_UP_TIMEOUT:
                    return self._requeue()
                message = f"role {model.account_name(restore)} and its copy may remain on the server: {error}"
                self.events.warning(cluster, "RestoreNotRemoved", truncated(f"{restore.key.name}: {message}"))
        await remove_finalizer(self.client, restore, FINALIZER)
        return Result()

    async def _is_abandoned(self, restore: Restore) -> bool:
        """Return True if the deletion must not wait for the server."""
        if is_deletion_forced(restore):
            return True
        namespace = await get_live(self.client, Namespace, ObjectKey("", restore.metadata.namespace))
        return namespace is not None and namespace.metadata.deletion_timestamp is not None

    async def _password(self, restore: Restore, declared: DeclaredCluster) -> str:
        """Return the password of the account, from its Secret. It is created once."""
        key = self._key(restore)
        present = await get_cached_or_live(self.client, Secret, key)
        if present is not None and controls(restore, present) and "password" in present.data:
            return present.data["password"].decode()
        credentials = SqlCredentials(model.account_name(restore), generate_password())
        await self.client.apply(account_secret(declared, key, credentials), owner=restore)
        return credentials.password

    async def _delete_objects(self, restore: Restore, *, keep_job: bool = False) -> None:
        """Delete Secret, ConfigMap and Job, with its pods and their volumes.

        Args:
            keep_job: True to keep a failed Job for its logs, until its time to live ends.
        """
        key = self._key(restore)
        job = await get_cached_or_live(self.client, Job, key)
        is_kept = keep_job and job is not None and job_state(job) == "Failed"
        for kind in (Secret, *(() if is_kept else (ConfigMap, Job))):
            present = await get_cached_or_live(self.client, kind, key)
            if present is not None and controls(restore, present) and present.metadata.deletion_timestamp is None:
                await self.client.delete(kind, key, uid=present.metadata.uid, propagation="Background")

    async def _report(self, restore: Restore, progress: Progress, **fields: object) -> None:
        await self._reporter.report(restore, await self._cluster(restore), progress, **fields)

    async def _cluster(self, restore: Restore) -> Cluster | None:
        reference = restore.spec.cluster_ref
        kind = next(kind for kind in CLUSTER_KINDS if kind.api_resource.kind == reference.kind)
        return await self.client.get_or_none(kind, ObjectKey(restore.metadata.namespace, reference.name))

    async def _server(self, cluster: Cluster) -> DatabaseServer:
        declared = self._declare(cluster)
        return (await self._resolver.resolve_own(declared)).server

    async def _pods(self, cluster: Cluster) -> Sequence[Pod]:
        return await self.client.list(Pod, index=(CLUSTER_INDEX, str(cluster.key)))

    def _copies(self, restore: Restore) -> CopyServer:
        return self._servers[model.engine_of(restore)]

    def _key(self, restore: Restore) -> ObjectKey:
        cluster = ObjectKey(restore.metadata.namespace, restore.spec.cluster_ref.name)
        return ClusterNames(cluster).restore_job(restore.metadata.uid)

    def _name(self, restore: Restore) -> str:
        return f"{restore.spec.cluster_ref.kind} {restore.spec.cluster_ref.name}"

    def _declare(self, cluster: Cluster) -> DeclaredCluster:
        return declare(cluster, "", cluster_domain=self._cluster_domain)

    def _requeue(self) -> Result:
        return Result(requeue_after=jittered(_WAITING_SECONDS, self.runtime.random))
