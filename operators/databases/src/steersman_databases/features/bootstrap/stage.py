"""First database of a cluster: database, owner, and SQL that runs once.

Database and owner are reconciled as those of a `Database`. A marker in the database, written in the transaction of
the SQL, shows if the SQL was applied. Job and condition may be lost at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Namespace, Pod, Secret
from steersman.cache import CachedClient
from steersman.controller import Builder
from steersman.errors import AlreadyExists
from steersman.meta import Object, ObjectKey
from steersman_databases.api import Cluster
from steersman_databases.api.reasons import CLUSTER_REASONS
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.cluster.status.pod_problems import PodProblem
from steersman_databases.cluster.status.pod_rejections import find_pod_rejection
from steersman_databases.core.cached_reads import get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.outcome import reason_of
from steersman_databases.engines import EngineError, SqlCredentials
from steersman_databases.engines.cluster_engine import ClusterEngine, PostInitRunner
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.sql_plan import SqlChange
from steersman_databases.features.bootstrap.model import JobProgress, progress_of
from steersman_databases.features.bootstrap.specs import SOURCES_HASH_ANNOTATION, post_init_job, post_init_labels
from steersman_databases.features.major_upgrade.model import has_ended
from steersman_databases.specs.job_hash import spec_changed
from steersman_databases.sql.desired import desired_bootstrap
from steersman_databases.sql.inspector.server_inspector import NoSlotFree, ServerInspector
from steersman_databases.sql.name_ownership import NameOwnership
from steersman_databases.sql.object_marks import ObjectMarks
from steersman_databases.sql.server_resolver import ServerNotResolved, ServerResolver

T = TypeVar("T", bound=Object)


class BootstrapReconciler:
    """Reconciles the first databases of all clusters.

    There is one for each controller.

    Args:
        client: of the controller.
        kind: of the clusters.
        engine: provides the container of the Job.
        resolver: finds the servers.
        inspector: shared with the controllers of databases and users.
    """

    def __init__(
        self,
        client: CachedClient,
        kind: type[Cluster],
        engine: ClusterEngine,
        resolver: ServerResolver,
        inspector: ServerInspector,
    ) -> None:
        self._kind = kind.api_resource.kind
        self._engine = engine
        self._resolver = resolver
        self._inspector = inspector
        self._marks = ObjectMarks(client)
        self._name_ownership = NameOwnership(client, resolver, inspector, self._marks)

    async def ensure(
        self, context: ClusterContext, cluster: Cluster, owner: SqlCredentials, conditions: ConditionSet
    ) -> None:
        """Ensure database and owner, then run the SQL.

        This requires a primary that accepts writes.
        """
        # Before the inspection, so that the inspection sees all effects of this Job.
        job = await context.client.get_or_none(Job, context.declared.names.post_init_job)
        try:
            sql_applied = await self._ensure_database(context, cluster, owner)
        except ServerNotResolved as reason:
            conditions.set("BootstrapDatabaseReady", False, reason.reason, str(reason))
        except NoSlotFree:
            conditions.set("BootstrapDatabaseReady", None, "ServerUnreachable", "the server has not responded yet")
        except EngineError as error:
            self._emit_changes(context, error.changes)
            reason = reason_of(error, CLUSTER_REASONS["BootstrapDatabaseReady"])
            conditions.set("BootstrapDatabaseReady", False, reason, str(error))
        else:
            initial = context.declared.bootstrap
            reported = f"database {initial.database} and its owner {initial.owner} are as declared"
            conditions.set("BootstrapDatabaseReady", True, "DatabaseReady", reported)
            if initial.sql:
                await self._run_post_init_sql(context, job, conditions, sql_applied=sql_applied)

    def forget(self, cluster: ObjectKey) -> None:
        """Drop the state of a deleted cluster."""
        self._inspector.forget(self._kind, cluster)

    async def _ensure_database(self, context: ClusterContext, cluster: Cluster, owner: SqlCredentials) -> bool:
        """Ensure the database. Return True if the SQL was applied to it."""
        declared = context.declared
        resolved = await self._resolver.resolve_own(declared)
        await self._name_ownership.require_oldest(cluster, resolved)
        desired = desired_bootstrap(declared.bootstrap, owner.password, await self._marks.mark_of(cluster))
        for desired_object in desired:
            resolved.sql_engine.check(desired_object, resolved.server.login.username)
        self._emit_changes(context, await self._inspector.reconcile(resolved, self._kind, declared.key, desired))
        if not declared.bootstrap.sql:
            return True
        database, marker = declared.bootstrap.database, self._engine.post_init_runner(declared).marker
        contents = {database: frozenset({marker.schema or ""})}
        scope = InspectionScope(databases=frozenset(contents), contents=contents)
        inspection = await self._inspector.inspect(resolved, self._kind, declared.key, scope)
        return database in inspection.contents and marker in inspection.contents[database].objects

    async def _run_post_init_sql(
        self, context: ClusterContext, job: Job | None, conditions: ConditionSet, *, sql_applied: bool
    ) -> None:
        declared, key = context.declared, context.declared.names.post_init_job
        if sql_applied:
            # The Job is complete, and the condition has its result.
            await context.delete_if_controlled(Job, key)
            reported = f"the SQL was applied to database {declared.bootstrap.database}"
            conditions.set("PostInitSQLApplied", True, "Applied", reported)
            return
        sources, missing = await self._hash_sources(context)
        if missing:
            conditions.set("PostInitSQLApplied", None, "Waiting", f"missing: {', '.join(missing)}")
            return
        runner = self._engine.post_init_runner(declared)
        if job is None:
            await self._create(context, runner, sources)
            conditions.set("PostInitSQLApplied", None, "Running", f"Job {key.name} runs the SQL")
            return
        pods = await self._pods(context, job)
        progress = progress_of(job, pods)
        is_outdated = job.metadata.annotations.get(SOURCES_HASH_ANNOTATION) != sources
        if (problem := await self._job_problem(context, job, progress)) is not None:
            job_differs = is_outdated or spec_changed(job, post_init_job(declared, runner, sources))
            if job_differs and await self._never_started(context, job, pods):
                # The present declaration may fix the problem of its pod.
                await self._recreate(context, job)
            conditions.set("PostInitSQLApplied", False, problem.reason, problem.message)
            return
        reported = f"Job {key.name} runs the SQL" + (f": {progress.message}" if progress.message else "")
        if is_outdated and (progress.has_ended or runner.single_transaction):
            await self._recreate(context, job)
        elif progress.has_ended:
            conditions.set("PostInitSQLApplied", False, "Failed", progress.message)
            return
        elif is_outdated:
            # The progress of an interrupted run is unknown.
            reported += ". Later changes of its ConfigMaps and Secrets run only if it fails"
        conditions.set("PostInitSQLApplied", None, "Running", reported)

    async def _job_problem(self, context: ClusterContext, job: Job, progress: JobProgress) -> PodProblem | None:
        """Return a problem that prevents pods and needs a user's action."""
        if progress.has_ended or not progress.is_idle:
            return progress.problem
        rejection = await find_pod_rejection(context.client.live, job)
        return None if rejection is None else rejection.problem

    async def _never_started(self, context: ClusterContext, job: Job, cached_pods: Sequence[Pod]) -> bool:
        """Return True if no pod has started the SQL.

        The cache may lag behind, so the check reads the API server. Finished pods of `cached_pods` do not count.
        """
        finished = {pod.metadata.uid for pod in cached_pods if has_ended(pod)}
        labels = ",".join(f"{k}={v}" for k, v in post_init_labels(context.declared).items())
        found = await context.client.live.list(Pod, namespace=job.metadata.namespace, label_selector=labels)
        since = [pod for pod in _pods_of_job(job, found.items) if pod.metadata.uid not in finished]
        if any(has_ended(pod) for pod in since):
            return False
        return not since or progress_of(job, since).problem is not None

    async def _recreate(self, context: ClusterContext, job: Job) -> None:
        """Delete the Job, which is immutable. The next reconcile creates another."""
        if job.metadata.deletion_timestamp is None:
            await context.delete(Job, job)

    async def _create(self, context: ClusterContext, runner: PostInitRunner, sources: str) -> None:
        job = post_init_job(context.declared, runner, sources)
        try:
            # Created and not applied, because a Job is immutable.
            await context.client.create(job, owner=context.cluster)
        except AlreadyExists:
            # It is foreign, or so new that the cache lacks it.
            await context.require_control(Job, await context.client.live.get(Job, job.key))
        else:
            context.emit_created(Job, job.key)

    async def _hash_sources(self, context: ClusterContext) -> tuple[str, Sequence[str]]:
        """Return a hash of the SQL's state, and missing sources.

        The hash reveals no content.
        """
        hashed: list[str] = []
        missing: list[str] = []
        for source in context.declared.bootstrap.sql:
            key = ObjectKey(context.declared.key.namespace, source.name)
            found = await get_live(context.client, Secret if source.kind == "Secret" else ConfigMap, key)
            if found is None:
                missing.append(f"{source.kind} {source.name}")
            elif source.key not in found.data:
                missing.append(f"key {source.key} in {source.kind} {source.name}")
            else:
                hashed.append(f"{source} {_source_version(found, source.key)}")
        return hashlib.sha256("\n".join(hashed).encode()).hexdigest()[:16], list(dict.fromkeys(missing))

    async def _pods(self, context: ClusterContext, job: Job) -> Sequence[Pod]:
        found = await context.client.list(Pod, index=(CLUSTER_INDEX, str(context.declared.key)))
        return _pods_of_job(job, found)

    def _emit_changes(self, context: ClusterContext, changes: Sequence[SqlChange]) -> None:
        for change in changes:
            context.events.normal(context.cluster, change.reason, change.message)


def _pods_of_job(job: Job, pods: Iterable[Pod]) -> Sequence[Pod]:
    return [p for p in pods if (o := p.controller_reference) is not None and o.uid == job.metadata.uid]


def _source_version(source: ConfigMap | Secret, key: str) -> str:
    # A hash of a Secret's content would allow to verify guesses.
    if isinstance(source, Secret):
        return f"{source.metadata.uid} {source.metadata.resource_version}"
    return source.data[key]


def permit(builder: Builder[T]) -> Builder[T]:
    """Declare the necessary permissions at the API server."""
    return builder.needs(Job, "delete").needs(ConfigMap, "get").needs(Secret, "get").needs(Namespace, "get")
