"""What a cluster makes of an application's objects, where there is none: Deployments, Jobs and Databases."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from steersman import Client, MergePatch, NotFound
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job
from steersman_testing import InMemoryApiServer
from steersman_testing.virtual_clock import VirtualClock

from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.resources import CONTAINER, image_of

LOOK_EVERY = 1.0
SECONDS_OF_A_ROLLOUT = 3.0


@dataclass
class Registry:
    """Images, and what becomes of them.

    Attributes:
        broken: whose pods never get ready.
        refused: whose migration fails.
        migrations: those that ran, by their images, in order.
    """

    broken: set[str] = field(default_factory=set[str])
    refused: set[str] = field(default_factory=set[str])
    migrations: list[str] = field(default_factory=list[str])


class Cluster:
    """Stands in for the Deployment and the Job controller, the kubelet and the database operator."""

    def __init__(self, server: InMemoryApiServer, client: Client, registry: Registry) -> None:
        self._server = server
        self._client = client
        self._registry = registry
        self._clock = VirtualClock()
        self._rollouts: dict[tuple[str, int], float] = {}
        self._under_way: set[str] = set()

    async def run(self) -> None:
        """Looks wherever something has changed, or is under way; never returns."""
        seen = -1
        while True:
            changes = self._server.changes()
            if changes != seen or self._under_way:
                # What is deleted meanwhile is not there at the next look.
                with suppress(NotFound):
                    await self._look()
            seen = changes
            await self._clock.sleep(LOOK_EVERY)

    async def _look(self) -> None:
        for database in self._server.read_all(Database):
            await self._serve(database)
        for job in self._server.read_all(Job):
            await self._migrate(job)
        for deployment in self._server.read_all(Deployment):
            await self._roll_out(deployment)

    async def _serve(self, database: Database) -> None:
        if database.status is not None:
            return
        ready = {"type": "Ready", "status": "True", "reason": "DatabaseReady", "message": ""}
        ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        status = {"phase": "Ready", "secretName": f"{database.metadata.name}-app", "conditions": [ready]}
        await self._client.patch(Database, database.key, MergePatch({"status": status}), subresource="status")

    async def _migrate(self, job: Job) -> None:
        if job.status.conditions or job.metadata.deletion_timestamp is not None:
            return
        image = next(c.image or "" for c in job.spec.template.spec.containers if c.name == CONTAINER)
        self._registry.migrations.append(image)
        failed = image in self._registry.refused
        ended: dict[str, object] = {"startTime": "2026-01-01T00:00:00Z"}
        if failed:
            kinds, reason = ("FailureTarget", "Failed"), "BackoffLimitExceeded"
        else:
            kinds, reason = ("SuccessCriteriaMet", "Complete"), "CompletionsReached"
            ended |= {"succeeded": 1, "completionTime": "2026-01-01T00:00:00Z"}
        ended["conditions"] = [{"type": kind, "status": "True", "reason": reason} for kind in kinds]
        await self._client.patch(Job, job.key, MergePatch({"status": ended}), subresource="status")

    async def _roll_out(self, deployment: Deployment) -> None:
        spec, former = deployment.spec, deployment.status
        generation, wanted = deployment.metadata.generation or 0, spec.replicas or 0
        broken = image_of(spec.template.spec) in self._registry.broken
        begun = self._rollouts.setdefault((deployment.metadata.uid, generation), self._clock.monotonic())
        lasted = self._clock.monotonic() - begun
        whole = not broken and lasted >= SECONDS_OF_A_ROLLOUT
        stuck = broken and lasted >= (spec.progress_deadline_seconds or 0)
        under_way = self._under_way.discard if whole or stuck else self._under_way.add
        under_way(deployment.metadata.uid)
        if former.observed_generation == generation and not whole and not stuck:
            return
        # Of a new image one pod comes first; the others go on as they are.
        counts = {"replicas": wanted, "readyReplicas": wanted, "availableReplicas": wanted, "updatedReplicas": wanted}
        if not whole:
            serving = former.ready_replicas or 0
            counts = {"replicas": serving + 1, "readyReplicas": serving, "availableReplicas": serving}
            counts["updatedReplicas"] = 1
        said = {"status": "False", "reason": "ProgressDeadlineExceeded"} if stuck else {"status": "True"}
        conditions = [{"type": "Progressing", "reason": "ReplicaSetUpdated", **said}]
        known = (former.observed_generation, former.updated_replicas, [c.status for c in former.conditions])
        if known == (generation, counts["updatedReplicas"], [said["status"]]):
            return
        status = {"observedGeneration": generation, "conditions": conditions, **counts}
        await self._client.patch(Deployment, deployment.key, MergePatch({"status": status}), subresource="status")
