"""Carries a major upgrade out: asks the databases, stops the cluster, lets a Job upgrade the primary's volume.

What was done is seen in the Jobs and in the claims' version, so this can be cut anywhere and goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from steersman.api.apply import batch
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.controller import Builder
from steersman.meta import Object, ObjectKey, is_true
from steersman_databases.clusters import plan, upgrade
from steersman_databases.clusters.keyring import Keyring
from steersman_databases.clusters.observed import Observed, number_of
from steersman_databases.clusters.steps import Step, Wait
from steersman_databases.clusters.trouble import Trouble
from steersman_databases.clusters.upgrade import GIVEN_UP, Due, Stuck
from steersman_databases.controllers.cluster_status import Findings
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.lookup import find
from steersman_databases.controllers.outcome import Blocked, shortened
from steersman_databases.controllers.refused import refusal_of
from steersman_databases.controllers.volumes import Volumes
from steersman_databases.engines.cluster import ClusterEngine, ClusterView, InUse
from steersman_databases.engines.cluster_names import SUPERUSER
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.server import Endpoint, Login, Server
from steersman_databases.engines.topology import Topology
from steersman_databases.engines.versions import image, upgrade_image
from steersman_databases.resources.made_for import is_made_otherwise
from steersman_databases.resources.upgrade_job import (
    ASKED,
    JOB_LABEL,
    asked_of,
    check_job,
    upgrade_job,
    upgrade_labels,
)

T = TypeVar("T", bound=Object)
AskInUse = Callable[[Server], Awaitable[InUse]]

_WAITING = "the upgrade waits until the cluster is well"
_READING = "waiting for the servers to read their parameters"


def due_of(view: ClusterView, told: str, observed: Observed) -> Due | None:
    """The upgrade that is declared for data that are there, if one leads to what is declared.

    Data that a new object finds are not upgraded: who forgot to say a version did not ask for it.

    Args:
        told: the version that ran last, as the status says it.
    """
    former, version = upgrade.data_version(observed), view.version
    known = None if former in ("", version) else upgrade_image(view.engine, former, version)
    if known is None or not upgrade.has_run(observed, former, told):
        return None
    declared = view.upgrade_image
    return Due(former=former, version=version, image=declared or known, generation=view.generation, declared=declared)


def as_it_runs(view: ClusterView, due: Due) -> ClusterView:
    """The cluster as it is declared but for its version, which is what it was, with the image that runs."""
    former = image(view.engine, due.former)
    return replace(view, version=due.former, image=former, image_given=False, upgrades_minor=False)


@dataclass(frozen=True, slots=True)
class Upgrades:
    """Upgrades one cluster, if that is due.

    Args:
        ask: asks a primary what its databases have; None where nobody does.
        given: ``spec.image``.
    """

    charge: Charge
    engine: ClusterEngine
    topology: Topology
    ask: AskInUse | None
    due: Due | None
    given: str | None = None

    async def go_on(self, observed: Observed, findings: Findings, *, settles: bool) -> Step | Wait | None:
        """The next step of an upgrade that has begun. None: there is none, and the cluster may do what it wants.

        ``settles``: servers may not have read their parameters yet. What they had when they stopped is what is tried.
        """
        key = self.charge.view.names.upgrade_job
        # Only where no server runs could one be started beside a Job that is not in the cache yet.
        may_run = self.due is not None or observed.primary is None
        job = await (find(self.charge.client, Job, key) if may_run else self.charge.client.get_or_none(Job, key))
        if job is not None and not self.charge.controls(job):
            # In the way of an upgrade only, and told when one begins.
            job = None
        stuck = None if job is None else await self._stuck(job)
        stage = upgrade.stage(observed, job, self.due, stuck, otherwise=self._is_made_otherwise(job))
        if self.due is None:
            await self.charge.remove(Job, self.charge.view.names.upgrade_check_job)
        if job is not None and stage == "Withdraw":
            await self._withdraw(job)
        if stage in ("None", "Withdraw", "RolledBack") and (wait := await self._await_end(observed, job, findings)):
            return wait
        if job is None or stage in ("None", "Withdraw"):
            return None
        if stage == "RolledBack":
            self._tell(findings, "RolledBack", await self._why_back(job))
            return None
        if stage == "Stop" and settles:
            return self._wait(findings, _READING)
        self._tell(findings, "Upgrading", f"the data are upgraded from PostgreSQL {self._former}")
        if observed.primary is None or all(i.pod is None for i in observed.replicas()):
            # While a replica takes long to stop, the primary serves.
            findings.tell("Available", False, "Upgrading", "the data are upgraded")
        match stage:
            case "Stop":
                return await self._stop(observed, job)
            case "Commit":
                return await self._commit(observed, job)
            case "GiveUp":
                assert stuck is not None
                return await self._give_up(job, stuck.trouble, findings)
            case _ if stuck is not None:
                back = f"{stuck.trouble.message}; where that lasts, PostgreSQL {self._former} is started again"
                return self._wait(findings, back, stuck.trouble)
            case _:
                failed = f", which failed and is tried again: {words}" if (words := await self._words(key)) else ""
                return Wait("Upgrading", f"waiting for Job {key.name} to upgrade the data{failed}")

    async def _await_end(self, observed: Observed, job: Job | None, findings: Findings) -> Wait | None:
        """Waits for what may still write to the volume: no server may be started beside it."""
        key = self.charge.view.names.upgrade_job
        if job is not None and not upgrade.is_over(job):
            waiting = f"waiting for Job {key.name} to end"
        elif pods := [p.metadata.name for p in await self._pods(key) if not upgrade.has_ended(p)]:
            waiting = f"waiting for pod {', '.join(pods)} of Job {key.name} to end, which may still write"
        else:
            return None
        if observed.primary is None:
            findings.tell("Available", False, "Upgrading", waiting)
        return self._wait(findings, waiting)

    async def begin(
        self, observed: Observed, ring: Keyring, findings: Findings, step: Step | Wait | None
    ) -> Step | Wait | None:
        """Looks whether the databases can be upgraded, and lets it begin where the cluster is well (no ``step``).

        What is waited for, which is ``step`` where there is one.
        """
        due = self.due
        if due is None or findings.says("Upgraded", "RolledBack"):
            return step
        if step is not None:
            reason = f": {step.message}" if isinstance(step, Wait) else ""
            self._tell(findings, "Upgrading", f"{_WAITING}{reason}")
            return step
        primary = observed.primary
        assert primary is not None and primary.pod is not None
        running = next((c.image for c in primary.pod.spec.containers), None)
        if self.given is not None and self.given == running:
            message = f"spec.image is still that of PostgreSQL {self._former}: name one of {due.version}, or none"
            return self._refuse(findings, message)
        try:
            used = await self._in_use(primary.pod.status.pod_ip or "", ring)
        except EngineError as error:
            return self._wait(findings, f"asking the databases again: {error}")
        problems = [*used.problems, *upgrade.too_small(primary, used)]
        if problems:
            return self._refuse(findings, "; ".join(problems))
        if (offered := await self._offered(used, findings)) is not True:
            return offered or None
        if (present := await find(self.charge.client, Job, self.charge.view.names.upgrade_job)) is not None:
            self._require_ours(present, findings)
        # Told before it is tried: the API server may refuse the Job.
        wait = self._wait(findings, "the cluster is stopped to be upgraded")
        job = self._job(primary.number, due)
        await self.charge.client.create(job, owner=self.charge.cluster)
        self.charge.created(Job, job.key)
        return wait

    @property
    def _former(self) -> str:
        return self.charge.view.version

    def _tell(self, findings: Findings, reason: str, message: str) -> None:
        findings.tell("Upgraded", False, reason, message)

    def _refuse(self, findings: Findings, message: str) -> None:
        self._tell(findings, "PreCheckFailed", message)

    def _wait(self, findings: Findings, message: str, trouble: Trouble | None = None) -> Wait:
        self._tell(findings, "Upgrading", message)
        return Wait("Upgrading" if trouble is None else trouble.reason, message)

    def _require_ours(self, job: Job, findings: Findings) -> None:
        """Returns if it is. Raises Blocked, which is what the upgrade waits for as well."""
        try:
            self.charge.require_ours(job)
        except Blocked as blocked:
            self._tell(findings, "Upgrading", blocked.outcome.message)
            raise

    async def _in_use(self, address: str, ring: Keyring) -> InUse:
        if self.ask is None:
            return InUse()
        login = Login(SUPERUSER, certificate=ring.superuser(self.charge.clock.now()).as_client)
        return await self.ask(ring.member(self.engine.name, Endpoint(address, self.engine.port), login))

    async def _offered(self, used: InUse, findings: Findings) -> Wait | bool:
        """Whether the image has all of it; nobody is disturbed to find out."""
        assert self.due is not None
        key = self.charge.view.names.upgrade_check_job
        job = await find(self.charge.client, Job, key)
        wait = self._wait(findings, f"waiting for Job {key.name} to look at image {self.due.image}")
        if job is not None:
            self._require_ours(job, findings)
        if job is not None and job.metadata.annotations.get(ASKED) != asked_of(self.due, used):
            await self.charge.delete(Job, job)
        elif job is None:
            parts = self.engine.pod(self.charge.view, 0, fenced=True)
            asking = check_job(self.charge.view, self.due, used, parts)
            await self.charge.client.create(asking, owner=self.charge.cluster)
        elif is_true(job.status.conditions, "Complete"):
            return True
        elif is_true(job.status.conditions, "Failed"):
            words = await self._words(key) or "it failed"
            again = "where the image itself is mended, delete this Job"
            self._refuse(findings, f"Job {key.name} looked at image {self.due.image}: {words}; {again}")
            return False
        elif (stuck := await self._stuck(job)) is not None:
            return self._wait(findings, f"{wait.message}: {stuck.trouble.message}", stuck.trouble)
        return wait

    async def _stop(self, observed: Observed, job: Job) -> Step | Wait | None:
        step = plan.stop(self.charge.view, observed, "Upgrading")
        if step is not None:
            return step
        body = {"metadata": {"resourceVersion": job.metadata.resource_version}, "spec": {"suspend": False}}
        await self.charge.client.patch(Job, job.key, MergePatch(body))
        return Wait("Upgrading", f"Job {job.key.name} upgrades the data")

    async def _give_up(self, job: Job, trouble: Trouble, findings: Findings) -> Wait:
        """Has Kubernetes fail the Job and end its pod: from there on it is one that failed."""
        message = f"PostgreSQL {self._former} is started again: {trouble.message}"
        if job.spec.active_deadline_seconds is None:
            metadata = {
                "resourceVersion": job.metadata.resource_version,
                "annotations": {GIVEN_UP: shortened(trouble.message)},
            }
            body = {"metadata": metadata, "spec": {"activeDeadlineSeconds": 1}}
            await self.charge.client.patch(Job, job.key, MergePatch(body))
        return self._wait(findings, message, trouble)

    async def _why_back(self, job: Job) -> str:
        """Why the former version runs, and what of the declaration waits for the new one."""
        given_up = job.metadata.annotations.get(GIVEN_UP)
        words = given_up or await self._words(job.key) or "its pod is gone, and nobody knows what it said"
        assert self.due is not None
        waits = "" if self.given is None else f"; spec.image is not used before version {self._former} is declared"
        return f"the upgrade failed, and PostgreSQL {self._former} runs on{waits}: {words}"

    def _is_made_otherwise(self, job: Job | None) -> bool:
        number = None if job is None else number_of(job)
        if job is None or self.due is None or number is None:
            return False
        return is_made_otherwise(job, self._job(number, self.due))

    def _job(self, number: int, due: Due) -> batch.Job:
        parts = self.engine.pod(self.charge.view, number, fenced=True)
        return upgrade_job(self.charge.view, number, due, parts)

    async def _stuck(self, job: Job) -> Stuck | None:
        if upgrade.is_over(job) or job.status.start_time is None:
            return None
        pods, now = await self._pods(job.key), self.charge.clock.now()
        if not all(upgrade.has_ended(pod) for pod in pods):
            return upgrade.stuck(pods, now)
        refusal = await refusal_of(self.charge.client.live, job)
        return None if refusal is None else upgrade.stuck_since(refusal.since, refusal.trouble, now)

    async def _commit(self, observed: Observed, job: Job) -> Wait:
        """From here on the data are the new version's: the claim's label is what everything else follows."""
        assert self.due is not None
        number = number_of(job)
        instance = None if number is None else observed.instance(number)
        if instance is None or instance.data is None:
            message = (
                f"the volume that was upgraded is gone: declare version {self.due.former} to go on with the others"
            )
            return Wait("Upgrading", message)
        await self.topology.forget_data(observed.members)
        version = upgrade.version_to(job) or self.due.version
        await Volumes(self.charge).renew_version(instance, version)
        words = await self._words(job.key) or "done"
        message = f"upgraded the data from {self.due.former} to {version}: {words}"
        self.charge.events.normal(self.charge.cluster, "Upgraded", message)
        return Wait("Upgrading", f"the data are PostgreSQL {version}'s now")

    async def _withdraw(self, job: Job) -> None:
        await self.charge.remove(Job, self.charge.view.names.upgrade_check_job)
        if job.metadata.deletion_timestamp is None:
            # One that runs stays for as long as a pod of it is there.
            await self.charge.delete(Job, job, propagation="Background" if upgrade.is_over(job) else "Foreground")

    async def _pods(self, job: ObjectKey) -> Sequence[Pod]:
        """Those of a Job of ours, which may be gone itself."""
        pods = await self.charge.client.list(Pod, namespace=job.namespace)
        labels = {JOB_LABEL: job.name, **upgrade_labels(self.charge.view)}
        return [pod for pod in pods if pod.metadata.labels.items() >= labels.items()]

    async def _words(self, job: ObjectKey) -> str:
        """What the last pod of a Job said as it ended."""
        ended = [
            state.terminated
            for pod in await self._pods(job)
            for state in (status.state for status in pod.status.container_statuses)
            if state.terminated is not None
        ]
        last = max(ended, key=lambda one: (one.finished_at is not None, one.finished_at), default=None)
        return "" if last is None else (last.message or last.reason or "").strip()


def permit(builder: Builder[T]) -> Builder[T]:
    """Declares what `Upgrades` does at the API server."""
    return builder.owns(Job).needs(Job, "delete")
