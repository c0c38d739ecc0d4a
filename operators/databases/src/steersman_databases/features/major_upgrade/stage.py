"""Execution of a major upgrade.

It inspects the databases, stops the cluster, and runs a Job that upgrades the primary's volume. The Jobs and the
version of the PVCs record the progress, so that this can be interrupted at any point.
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
from steersman_databases.api import Backup
from steersman_databases.cluster import planner
from steersman_databases.cluster.actions import Action, Wait
from steersman_databases.cluster.state import ClusterState, ordinal_of
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.cluster.status.pod_problems import PodProblem
from steersman_databases.cluster.status.pod_rejections import find_pod_rejection
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.outcome import ReconcileBlocked, truncated
from steersman_databases.engines.cluster_engine import ClusterEngine, DeclaredCluster, UpgradeInventory
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.members import HaBackend
from steersman_databases.engines.naming import SUPERUSER_ROLE
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint
from steersman_databases.engines.versions import image, upgrade_image
from steersman_databases.features.certificates.model import CertificateSet
from steersman_databases.features.major_upgrade import model as major_upgrade_model
from steersman_databases.features.major_upgrade.backup import BackupBeforeUpgrade
from steersman_databases.features.major_upgrade.model import ABORT_REASON, PendingUpgrade, StuckJob
from steersman_databases.features.major_upgrade.specs import (
    CHECK_FINGERPRINT_ANNOTATION,
    JOB_LABEL,
    check_fingerprint,
    check_job,
    upgrade_job,
    upgrade_labels,
)
from steersman_databases.features.storage.stage import VolumeReconciler
from steersman_databases.specs.job_hash import spec_changed

T = TypeVar("T", bound=Object)
GetUpgradeInventory = Callable[[DatabaseServer], Awaitable[UpgradeInventory]]

_WAITING_FOR_HEALTH = "the upgrade waits until the cluster is healthy"
_WAITING_FOR_RELOAD = "waiting for the servers to reload their configuration"


def pending_upgrade(
    declared_cluster: DeclaredCluster, recorded_version: str, state: ClusterState
) -> PendingUpgrade | None:
    """Return the declared upgrade of existing data, if it is supported.

    A new object does not upgrade data that it finds, because its user may have omitted the version by mistake.

    Args:
        recorded_version: version that ran last, from the status.
    """
    previous, version = major_upgrade_model.data_version(state), declared_cluster.version
    known = None if previous in ("", version) else upgrade_image(declared_cluster.engine, previous, version)
    if known is None or not major_upgrade_model.has_run(state, previous, recorded_version):
        return None
    declared = declared_cluster.upgrade_image
    return PendingUpgrade(
        from_version=previous,
        to_version=version,
        image=declared or known,
        generation=declared_cluster.generation,
        declared_image=declared,
    )


def at_current_version(declared: DeclaredCluster, pending: PendingUpgrade) -> DeclaredCluster:
    """Return the declared cluster with its previous version and image."""
    previous = image(declared.engine, pending.from_version)
    return replace(
        declared,
        version=pending.from_version,
        image=previous,
        has_explicit_image=False,
        automatic_minor_upgrades=False,
    )


@dataclass(frozen=True, slots=True)
class MajorUpgrade:
    """Upgrades one cluster if an upgrade is declared.

    Args:
        get_inventory: inspects a primary's databases. None if not supported.
        custom_image: `spec.image`.
        backup: takes the backup before an upgrade. None if not supported.
    """

    context: ClusterContext
    engine: ClusterEngine
    ha_backend: HaBackend
    get_inventory: GetUpgradeInventory | None
    pending: PendingUpgrade | None
    custom_image: str | None = None
    backup: BackupBeforeUpgrade | None = None

    async def resume(
        self, state: ClusterState, conditions: ConditionSet, *, awaiting_reload: bool
    ) -> Action | Wait | None:
        """Return the next step of an upgrade that has begun.

        None if there is none, so that the cluster may take other steps.

        Args:
            awaiting_reload: servers may not have read their parameters yet. The upgrade uses those they stopped
                with.
        """
        key = self.context.declared.names.upgrade_job
        # Only without a running server could one be started next to a Job that the cache lacks.
        may_run = self.pending is not None or state.primary is None
        job = await (
            get_cached_or_live(self.context.client, Job, key)
            if may_run
            else self.context.client.get_or_none(Job, key)
        )
        if job is not None and not self.context.controls(job):
            # It only blocks an upgrade, and is reported when one begins.
            job = None
        stuck_job = None if job is None else await self._detect_stuck(job)
        stage = major_upgrade_model.next_stage(
            state, job, self.pending, stuck_job, spec_changed=self._spec_changed(job)
        )
        if self.pending is None:
            await self.context.delete_if_controlled(Job, self.context.declared.names.upgrade_check_job)
        if job is not None and stage == "Withdraw":
            await self._cancel(job)
        if stage in ("None", "Withdraw", "RolledBack") and (
            wait := await self._wait_for_job_pods(state, job, conditions)
        ):
            return wait
        if job is None or stage in ("None", "Withdraw"):
            return None
        if stage == "RolledBack":
            self._set_condition(conditions, "RolledBack", await self._rollback_message(job))
            return None
        if stage == "Stop" and awaiting_reload:
            return self._wait(conditions, _WAITING_FOR_RELOAD)
        self._set_condition(
            conditions, "Upgrading", f"the data are upgraded from PostgreSQL {self._previous_version}"
        )
        if state.primary is None or all(i.pod is None for i in state.replicas()):
            # While a replica is slow to stop, the primary serves.
            conditions.set("Available", False, "Upgrading", "the data are upgraded")
        match stage:
            case "Stop":
                return await self._stop(state, job)
            case "Commit":
                return await self._commit(state, job)
            case "GiveUp":
                assert stuck_job is not None
                return await self._abort(job, stuck_job.problem, conditions)
            case _ if stuck_job is not None:
                previous = self._previous_version
                rollback = f"{stuck_job.problem.message}. If that lasts, PostgreSQL {previous} is started again"
                return self._wait(conditions, rollback, stuck_job.problem)
            case _:
                failed = (
                    f", which failed and is retried: {message}"
                    if (message := await self._termination_message(key))
                    else ""
                )
                return Wait("Upgrading", f"waiting for Job {key.name} to upgrade the data{failed}")

    async def _wait_for_job_pods(self, state: ClusterState, job: Job | None, conditions: ConditionSet) -> Wait | None:
        """Wait for pods that may still write to the volume.

        No server may start next to them.
        """
        key = self.context.declared.names.upgrade_job
        if job is not None and not major_upgrade_model.is_finished(job):
            waiting = f"waiting for Job {key.name} to end"
        elif pods := [p.metadata.name for p in await self._pods(key) if not major_upgrade_model.has_ended(p)]:
            waiting = f"waiting for pod {', '.join(pods)}of Job {key.name} to end: it may still write"
        else:
            return None
        if state.primary is None:
            conditions.set("Available", False, "Upgrading", waiting)
        return self._wait(conditions, waiting)

    async def start(
        self,
        state: ClusterState,
        certificates: CertificateSet,
        conditions: ConditionSet,
        planned: Action | Wait | None,
    ) -> Action | Wait | None:
        """Check the databases, and start the upgrade of a healthy cluster.

        Args:
            planned: step that the cluster needs first.

        Returns:
            The step to wait for, which is `planned` if there is one.
        """
        due = self.pending
        if due is None or conditions.has_reason("UpToDate", "RolledBack"):
            return planned
        if planned is not None:
            reason = f": {planned.message}" if isinstance(planned, Wait) else ""
            self._set_condition(conditions, "Upgrading", f"{_WAITING_FOR_HEALTH}{reason}")
            return planned
        primary = state.primary
        assert primary is not None and primary.pod is not None
        if self.custom_image is not None and self.custom_image == primary.image:
            message = (
                f"spec.image is an image of PostgreSQL {self._previous_version}. "
                f"Set one of {due.to_version}, or remove the field"
            )
            return self._reject(conditions, message)
        try:
            inventory = await self._inventory(primary.pod.status.pod_ip or "", certificates)
        except EngineError as error:
            return self._wait(conditions, f"inspecting the databases again: {error}")
        problems = [*inventory.problems, *major_upgrade_model.insufficient_space(primary, inventory)]
        if problems:
            return self._reject(conditions, "; ".join(problems))
        if (image_checked := await self._check_image(inventory, conditions)) is not True:
            return image_checked or None
        archiving = conditions.updates.get("ContinuousArchiving")
        blocker = None if self.backup is None else await self.backup.ensure(due.to_version, archiving)
        if blocker is not None:
            # The cluster serves meanwhile, so this is not a step to wait for.
            self._set_condition(conditions, blocker.reason, blocker.message)
            return None
        if (
            present := await get_cached_or_live(self.context.client, Job, self.context.declared.names.upgrade_job)
        ) is not None:
            self._require_controlled(present, conditions)
        # The condition is set first, because the API server may refuse the Job.
        wait = self._wait(conditions, "the cluster stops for the upgrade")
        job = self._job(primary.ordinal, due)
        await self.context.client.create(job, owner=self.context.cluster)
        self.context.emit_created(Job, job.key)
        return wait

    @property
    def _previous_version(self) -> str:
        return self.context.declared.version

    def _set_condition(self, conditions: ConditionSet, reason: str, message: str) -> None:
        conditions.set("UpToDate", False, reason, message)

    def _reject(self, conditions: ConditionSet, message: str) -> None:
        self._set_condition(conditions, "PreCheckFailed", message)

    def _wait(self, conditions: ConditionSet, message: str, problem: PodProblem | None = None) -> Wait:
        self._set_condition(conditions, "Upgrading", message)
        return Wait("Upgrading" if problem is None else problem.reason, message)

    def _require_controlled(self, job: Job, conditions: ConditionSet) -> None:
        """Check that the Job is the cluster's.

        Raises:
            ReconcileBlocked: it is foreign. The upgrade waits for the same reason.
        """
        try:
            self.context.require_controlled(job)
        except ReconcileBlocked as blocked:
            self._set_condition(conditions, "Upgrading", blocked.outcome.message)
            raise

    async def _inventory(self, address: str, certificates: CertificateSet) -> UpgradeInventory:
        if self.get_inventory is None:
            return UpgradeInventory()
        login = Login(
            SUPERUSER_ROLE, certificate=certificates.superuser(self.context.clock.now()).as_client_certificate
        )
        return await self.get_inventory(
            certificates.connection_to(self.engine.name, ServerEndpoint(address, self.engine.port), login)
        )

    async def _check_image(self, inventory: UpgradeInventory, conditions: ConditionSet) -> Wait | bool:
        """Check that the image has all used extensions, without a disruption."""
        assert self.pending is not None
        key = self.context.declared.names.upgrade_check_job
        job = await get_cached_or_live(self.context.client, Job, key)
        wait = self._wait(conditions, f"waiting for Job {key.name} to check image {self.pending.image}")
        if job is not None:
            self._require_controlled(job, conditions)
        if job is not None and job.metadata.annotations.get(CHECK_FINGERPRINT_ANNOTATION) != check_fingerprint(
            self.pending, inventory
        ):
            await self.context.delete(Job, job)
        elif job is None:
            parts = self.engine.pod_contribution(self.context.declared, 0, fenced=True)
            fingerprint = check_job(self.context.declared, self.pending, inventory, parts)
            await self.context.client.create(fingerprint, owner=self.context.cluster)
        elif is_true(job.status.conditions, "Complete"):
            return True
        elif is_true(job.status.conditions, "Failed"):
            message = await self._termination_message(key) or "it failed"
            is_retry = "If you correct the image under the same name, delete this Job"
            self._reject(conditions, f"Job {key.name} checked image {self.pending.image}: {message}. {is_retry}")
            return False
        elif (stuck := await self._detect_stuck(job)) is not None:
            return self._wait(conditions, f"{wait.message}: {stuck.problem.message}", stuck.problem)
        return wait

    async def _stop(self, state: ClusterState, job: Job) -> Action | Wait | None:
        step = planner.stop_all(self.context.declared, state, "Upgrading")
        if step is not None:
            return step
        body = {"metadata": {"resourceVersion": job.metadata.resource_version}, "spec": {"suspend": False}}
        await self.context.client.patch(Job, job.key, MergePatch(body))
        return Wait("Upgrading", f"Job {job.key.name} upgrades the data")

    async def _abort(self, job: Job, problem: PodProblem, conditions: ConditionSet) -> Wait:
        """Make Kubernetes fail the Job and end its pod.

        From then on it counts as failed.
        """
        message = f"PostgreSQL {self._previous_version} is started again: {problem.message}"
        if job.spec.active_deadline_seconds is None:
            metadata = {
                "resourceVersion": job.metadata.resource_version,
                "annotations": {ABORT_REASON: truncated(problem.message)},
            }
            body = {"metadata": metadata, "spec": {"activeDeadlineSeconds": 1}}
            await self.context.client.patch(Job, job.key, MergePatch(body))
        return self._wait(conditions, message, problem)

    async def _rollback_message(self, job: Job) -> str:
        """Return the reason for a rollback, and fields without effect."""
        abort_reason = job.metadata.annotations.get(ABORT_REASON)
        message = (
            abort_reason
            or await self._termination_message(job.key)
            or "its pod was deleted before its result was read"
        )
        assert self.pending is not None
        waits = (
            ""
            if self.custom_image is None
            else f". spec.image takes effect after version {self._previous_version} is declared"
        )
        return f"the upgrade was rolled back to PostgreSQL {self._previous_version}: {message}{waits}"

    def _spec_changed(self, job: Job | None) -> bool:
        ordinal = None if job is None else ordinal_of(job)
        if job is None or self.pending is None or ordinal is None:
            return False
        return spec_changed(job, self._job(ordinal, self.pending))

    def _job(self, ordinal: int, upgrade: PendingUpgrade) -> batch.Job:
        parts = self.engine.pod_contribution(self.context.declared, ordinal, fenced=True)
        return upgrade_job(self.context.declared, ordinal, upgrade, parts)

    async def _detect_stuck(self, job: Job) -> StuckJob | None:
        if major_upgrade_model.is_finished(job) or job.status.start_time is None:
            return None
        pods, now = await self._pods(job.key), self.context.clock.now()
        if not all(major_upgrade_model.has_ended(pod) for pod in pods):
            return major_upgrade_model.detect_stuck(pods, now)
        refusal = await find_pod_rejection(self.context.client.live, job)
        return (
            None if refusal is None else major_upgrade_model.detect_stuck_since(refusal.since, refusal.problem, now)
        )

    async def _commit(self, state: ClusterState, job: Job) -> Wait:
        """Record the new version of the data in the PVC's label.

        All other decisions follow this label.
        """
        assert self.pending is not None
        ordinal = ordinal_of(job)
        instance = None if ordinal is None else state.instance(ordinal)
        if instance is None or instance.data is None:
            message = (
                "the upgraded volume is lost. "
                f"Declare version {self.pending.from_version} to continue with the others"
            )
            return Wait("Upgrading", message)
        await self.ha_backend.clear_initialize(state.members)
        version = major_upgrade_model.target_version(job) or self.pending.to_version
        await VolumeReconciler(self.context).record_major_version(instance, version)
        termination_message = await self._termination_message(job.key) or "done"
        message = f"upgraded the data from {self.pending.from_version} to {version}: {termination_message}"
        self.context.events.normal(self.context.cluster, "Upgraded", message)
        return Wait("Upgrading", f"the data are upgraded to PostgreSQL {version}")

    async def _cancel(self, job: Job) -> None:
        await self.context.delete_if_controlled(Job, self.context.declared.names.upgrade_check_job)
        if job.metadata.deletion_timestamp is None:
            # A running Job stays until its pods are gone.
            await self.context.delete(
                Job, job, propagation="Background" if major_upgrade_model.is_finished(job) else "Foreground"
            )

    async def _pods(self, job: ObjectKey) -> Sequence[Pod]:
        """Return the pods of a Job of the operator.

        The Job may not exist any more.
        """
        pods = await self.context.client.list(Pod, namespace=job.namespace)
        labels = {JOB_LABEL: job.name, **upgrade_labels(self.context.declared)}
        return [pod for pod in pods if pod.metadata.labels.items() >= labels.items()]

    async def _termination_message(self, job: ObjectKey) -> str:
        """Return the termination message of a Job's last pod."""
        ended = [
            state.terminated
            for pod in await self._pods(job)
            for state in (status.state for status in pod.status.container_statuses)
            if state.terminated is not None
        ]
        last = max(ended, key=lambda one: (one.finished_at is not None, one.finished_at), default=None)
        return "" if last is None else (last.message or last.reason or "").strip()


def permit(builder: Builder[T]) -> Builder[T]:
    """Declare the necessary permissions at the API server."""
    return builder.owns(Job).needs(Job, "delete").needs(Backup, "list", "create")
