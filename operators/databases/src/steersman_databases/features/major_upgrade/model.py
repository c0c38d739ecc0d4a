"""State of a major upgrade, from labels of PVCs and Jobs.

The label of a PVC identifies the version of its data. One write changes it after the Job has upgraded and checked
the data. Before this write a rollback to the previous version is possible, and after it none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Pod
from steersman.meta import Quantity, is_true
from steersman_databases.cluster.state import MAJOR_LABEL, ClusterState, Instance, ordinal_of
from steersman_databases.cluster.status.pod_problems import PodProblem, problem_of
from steersman_databases.engines.cluster_engine import DeclaredCluster, UpgradeInventory
from steersman_databases.engines.naming import VERSION_LABEL

UPGRADE_IMAGE_ANNOTATION = "databases.steersman.dev/upgrade-image"
"""Annotation of the upgrade Job: the declared image.

It is empty for the operator's image.
"""

ABORT_REASON = "databases.steersman.dev/abort-reason"
"""Annotation of the upgrade Job: why it was aborted before it ran."""

# Longer than a new node takes, and an image that is pulled at the second attempt.
_START_TIMEOUT = timedelta(minutes=5)
_FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
_SPARE_BYTES = 64 << 20  # bytes that pg_upgrade needs in addition to the copy
_WAL_BYTES = 1 << 30  # bytes of WAL that rebuilding all indexes writes at most until a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingUpgrade:
    """A declared upgrade.

    Attributes:
        image: image with the programs of both versions.
        generation: `metadata.generation` of the cluster.
        declared_image: the user's image. The operator's own image changes with each of its releases.
    """

    from_version: str
    to_version: str
    image: str
    generation: int
    declared_image: str = ""


Stage = Literal["None", "Withdraw", "Stop", "Wait", "GiveUp", "Commit", "RolledBack"]


def has_run(state: ClusterState, version: str, recorded_version: str) -> bool:
    """Return True if servers of this object ran with `version`.

    Args:
        recorded_version: full version in the status.
    """
    pod_version = (i.statefulset.metadata.labels.get(VERSION_LABEL) for i in state.instances if i.statefulset)
    return recorded_version.startswith(f"{version}.") or version in pod_version


def version_of(instance: Instance) -> str:
    """Return the version of its data, or "" if unknown."""
    return "" if instance.data is None else instance.data.metadata.labels.get(MAJOR_LABEL, "")


def data_version(state: ClusterState) -> str:
    """Return the version of the cluster's data, or "" without data.

    If versions differ, the newest one counts.
    """
    known = [version for i in state.instances if (version := version_of(i)).isdecimal()]
    return max(known, key=int, default="")


def split_by_version(cluster: DeclaredCluster, state: ClusterState) -> tuple[ClusterState, Sequence[Instance]]:
    """Split off the instances whose data an upgrade left behind."""
    outdated = [i for i in state.instances if version_of(i) not in ("", cluster.version)]
    if not outdated:
        return state, ()
    return replace(state, instances=[i for i in state.instances if i not in outdated]), outdated


def next_stage(
    state: ClusterState,
    job: Job | None,
    pending: PendingUpgrade | None,
    stuck_job: StuckJob | None = None,
    *,
    spec_changed: bool = False,
) -> Stage:
    """Return the next stage of an upgrade that may have begun.

    Args:
        stuck_job: set if no pod of the Job starts.
        spec_changed: the Job's pod would differ now, which may fix the problem.
    """
    if job is None:
        return "None"
    if pending is None or job.metadata.deletion_timestamp is not None:
        # The upgrade is complete, or the user has reverted the declaration.
        return "Withdraw"
    failed = is_true(job.status.conditions, "Failed")
    other_version = target_version(job) != pending.to_version
    if failed and (
        other_version or job.metadata.annotations.get(UPGRADE_IMAGE_ANNOTATION, "") != pending.declared_image
    ):
        # A user declares another upgrade. A new release of the operator alone does not stop servers.
        return "Withdraw"
    replaced = other_version or image_of(job) != pending.image
    if (job.spec.suspend and replaced) or (stuck_job is not None and (replaced or spec_changed)):
        # It had not begun, and starts again.
        return "Withdraw"
    if failed:
        return "RolledBack"
    if is_true(job.status.conditions, "Complete"):
        return "Commit"
    if not job.spec.suspend:
        return "Wait" if stuck_job is None or not stuck_job.timed_out else "GiveUp"
    last = state.members.last_leader
    # Another member became the primary during the stop, and may have newer data.
    return "Stop" if last in (None, ordinal_of(job)) else "Withdraw"


@dataclass(frozen=True, slots=True)
class StuckJob:
    """Reason why no pod of a Job starts.

    `timed_out`: a start is not expected any more.
    """

    problem: PodProblem
    timed_out: bool


def detect_stuck(pods: Sequence[Pod], now: datetime) -> StuckJob | None:
    """Return the problem of a pod that cannot start, or None.

    Such a pod never fails its Job.
    """
    for pod in pods:
        if not has_ended(pod) and (problem := problem_of(pod)) is not None:
            return detect_stuck_since(pod.metadata.creation_timestamp or now, problem, now)
    return None


def detect_stuck_since(since: datetime, problem: PodProblem, now: datetime) -> StuckJob:
    """Return the problem, and if it has lasted too long."""
    return StuckJob(problem, now - since > _START_TIMEOUT)


def has_ended(pod: Pod) -> bool:
    """Return True if no container of the pod runs any more."""
    return pod.status.phase in _FINISHED_PHASES


def target_version(job: Job) -> str:
    """Return the version that the Job upgrades to."""
    return job.metadata.labels.get(VERSION_LABEL, "")


def image_of(job: Job) -> str | None:
    """Return the image of the Job."""
    return next((c.image for c in job.spec.template.spec.containers), None)


def is_finished(job: Job) -> bool:
    """Return True if the Job starts no more pods, or is suspended."""
    return job.spec.suspend is True or any(is_true(job.status.conditions, end) for end in ("Complete", "Failed"))


def insufficient_space(instance: Instance, inventory: UpgradeInventory) -> Sequence[str]:
    """Return why volumes are too small for a copy and new WAL.

    The check uses only the size of the volumes.
    """
    needs = (
        ("volume", instance.data, 2 * inventory.size),
        ("WAL volume", instance.wal, min(inventory.size, _WAL_BYTES)),
    )
    return [
        f"the upgrade copies the data and needs {(needed + _SPARE_BYTES) >> 20} MiB, but the {name} has {capacity}"
        for name, pvc, needed in needs
        if pvc is not None and (capacity := pvc.status.capacity.get("storage")) is not None
        if int(Quantity(capacity).value) < needed + _SPARE_BYTES
    ]
