"""Replacement for the controllers of Deployments, Jobs and Databases."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from steersman import Client, MergePatch, NotFound, ObjectKey
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman_testing import InMemoryApiServer
from steersman_testing.virtual_clock import VirtualClock

from my_operator.api.v1.myapp import Release
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.resources import release_of

POLL_INTERVAL_SECONDS = 1.0
ROLLOUT_SECONDS = 3.0


@dataclass
class ImageRegistry:
    """The images and settings that fail, and the migrations that ran.

    Attributes:
        failing_rollouts: images whose pods never become ready.
        failing_levels: values of the setting LOG_LEVEL with which no pod becomes ready.
        failing_migrations: images whose migration fails.
        failing_migration_levels: values of the setting LOG_LEVEL with which each migration fails.
        endless_migrations: images whose migration does not end.
        migrations: images whose migration ran, in order.
    """

    failing_rollouts: set[str] = field(default_factory=set[str])
    failing_levels: set[str] = field(default_factory=set[str])
    failing_migrations: set[str] = field(default_factory=set[str])
    failing_migration_levels: set[str] = field(default_factory=set[str])
    endless_migrations: set[str] = field(default_factory=set[str])
    migrations: list[str] = field(default_factory=list[str])


class FakeCluster:
    """Replaces the controllers of Deployments and Jobs, kubelet, and database operator."""

    def __init__(self, server: InMemoryApiServer, client: Client, registry: ImageRegistry) -> None:
        self._server = server
        self._client = client
        self._registry = registry
        self._clock = VirtualClock()
        self._rollouts: dict[tuple[str, int], float] = {}
        self._in_progress: set[str] = set()

    async def run(self) -> None:
        """Reconcile after each change and while a rollout is in progress. Never returns."""
        last_version = -1
        while True:
            changes = self._server.change_count()
            if changes != last_version or self._in_progress:
                # An object may be deleted meanwhile. The next reconcile observes that.
                with suppress(NotFound):
                    await self._reconcile_all()
            last_version = changes
            await self._clock.sleep(POLL_INTERVAL_SECONDS)

    async def _reconcile_all(self) -> None:
        for database in self._server.read_all(Database):
            await self._ready_database(database)
        for job in self._server.read_all(Job):
            await self._run_job(job)
        for deployment in self._server.read_all(Deployment):
            await self._roll_out(deployment)

    async def _ready_database(self, database: Database) -> None:
        if database.status is not None:
            return
        ready = {"type": "Ready", "status": "True", "reason": "DatabaseReady", "message": ""}
        ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        status = {"phase": "Ready", "secretName": f"{database.metadata.name}-app", "conditions": [ready]}
        await self._client.patch(Database, database.key, MergePatch({"status": status}), subresource="status")

    async def _run_job(self, job: Job) -> None:
        if job.status.conditions or job.metadata.deletion_timestamp is not None:
            return
        release = release_of(job.spec.template.spec)
        assert release is not None
        if release.image in self._registry.endless_migrations:
            return
        self._registry.migrations.append(release.image)
        failed = (
            release.image in self._registry.failing_migrations
            or self._level(job.metadata.namespace, release) in self._registry.failing_migration_levels
        )
        job_status: dict[str, object] = {"startTime": "2026-01-01T00:00:00Z"}
        if failed:
            kinds, reason = ("FailureTarget", "Failed"), "BackoffLimitExceeded"
        else:
            kinds, reason = ("SuccessCriteriaMet", "Complete"), "CompletionsReached"
            job_status |= {"succeeded": 1, "completionTime": "2026-01-01T00:00:00Z"}
        job_status["conditions"] = [{"type": kind, "status": "True", "reason": reason} for kind in kinds]
        await self._client.patch(Job, job.key, MergePatch({"status": job_status}), subresource="status")

    def _is_broken(self, deployment: Deployment) -> bool:
        """Return True if the pods of a Deployment cannot become ready."""
        release = release_of(deployment.spec.template.spec)
        if release is None or release.image in self._registry.failing_rollouts:
            return True
        return self._level(deployment.metadata.namespace, release) in self._registry.failing_levels

    def _level(self, namespace: str, release: Release) -> str | None:
        """Return the setting LOG_LEVEL of a pod. A pod without its ConfigMap does not start."""
        if not release.config:
            return None
        settings = self._server.read(ConfigMap, ObjectKey(namespace, release.config))
        assert settings is not None, f"{release.config} does not exist"
        return settings.data.get("LOG_LEVEL")

    async def _roll_out(self, deployment: Deployment) -> None:
        spec, previous = deployment.spec, deployment.status
        generation, desired = deployment.metadata.generation or 0, spec.replicas or 0
        broken = self._is_broken(deployment)
        started_at = self._rollouts.setdefault((deployment.metadata.uid, generation), self._clock.monotonic())
        elapsed = self._clock.monotonic() - started_at
        complete = not broken and elapsed >= ROLLOUT_SECONDS
        stuck = broken and elapsed >= (spec.progress_deadline_seconds or 0)
        update_in_progress = self._in_progress.discard if complete or stuck else self._in_progress.add
        update_in_progress(deployment.metadata.uid)
        if previous.observed_generation == generation and not complete and not stuck:
            return
        # A rollout creates one pod of the new image first. The other pods keep running.
        counts = {
            "replicas": desired,
            "readyReplicas": desired,
            "availableReplicas": desired,
            "updatedReplicas": desired,
        }
        if not complete:
            serving = previous.ready_replicas or 0
            counts = {"replicas": serving + 1, "readyReplicas": serving, "availableReplicas": serving}
            counts["updatedReplicas"] = 1
        progress_condition = (
            {"status": "False", "reason": "ProgressDeadlineExceeded"} if stuck else {"status": "True"}
        )
        conditions = [{"type": "Progressing", "reason": "ReplicaSetUpdated", **progress_condition}]
        reported = (previous.observed_generation, previous.updated_replicas, [c.status for c in previous.conditions])
        if reported == (generation, counts["updatedReplicas"], [progress_condition["status"]]):
            return
        status = {"observedGeneration": generation, "conditions": conditions, **counts}
        await self._client.patch(Deployment, deployment.key, MergePatch({"status": status}), subresource="status")
