"""Progress of the initial SQL, from its Job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ContainerStatus, Pod
from steersman.meta import find_condition, is_true
from steersman_databases.cluster.status.pod_problems import PodProblem, problem_of
from steersman_databases.features.major_upgrade.model import has_ended

_EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Result of a Job, with the newest pod's message first.

    Attributes:
        is_idle: no pod is pending or running.
        problem: why a pending pod does not start.
    """

    has_ended: bool
    message: str
    is_idle: bool = False
    problem: PodProblem | None = None


def progress_of(job: Job, pods: Iterable[Pod]) -> JobProgress:
    """Return the progress of a Job that left no marker.

    `pods` are its own.
    """
    newest = sorted(pods, key=lambda p: p.metadata.creation_timestamp or _EARLIEST, reverse=True)
    message = _termination_message_of(newest)
    if is_true(job.status.conditions, "Complete"):
        return JobProgress(True, "the SQL rolled back its own transaction. Remove ROLLBACK")
    failed = find_condition(job.status.conditions, "Failed")
    if failed is not None and failed.status == "True":
        return JobProgress(True, message or failed.message or "")
    remaining_attempts = [pod for pod in newest if not has_ended(pod)]
    problem = next(
        (found for pod in remaining_attempts if (found := problem_of(pod)) and found.reason != "InstanceCrashing"),
        None,
    )
    return JobProgress(False, message, is_idle=not remaining_attempts, problem=problem)


def _termination_message_of(pods: Sequence[Pod]) -> str:
    """Return the message of the newest pod that has one.

    It says why the pod failed, or why it does not start.
    """
    for pod in pods:
        for status in pod.status.container_statuses:
            if reported := _termination_message(status):
                return reported
    return ""


def _termination_message(status: ContainerStatus) -> str:
    state = status.state
    if state.terminated is not None and state.terminated.exit_code:
        return (state.terminated.message or state.terminated.reason or "").strip()
    if state.waiting is not None and state.waiting.message:
        return f"{state.waiting.reason}: {state.waiting.message}"
    return ""
