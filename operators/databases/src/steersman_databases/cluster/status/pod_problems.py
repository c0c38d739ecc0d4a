"""Problems of pods that need an action, in the terms of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from steersman.api.core_v1 import ContainerStatus, Pod
from steersman_databases.cluster.state import Instance
from steersman_databases.engines.server_pod import server_statuses

_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


@dataclass(frozen=True, slots=True)
class PodProblem:
    """``reason`` is one of the condition Ready of a cluster."""

    reason: Literal["Unschedulable", "ImageUnavailable", "InstanceCrashing", "PodRejected"]
    message: str


def first_problem(instances: Iterable[Instance]) -> PodProblem | None:
    """Return the problem of the first instance that cannot start."""
    for instance in instances:
        if instance.pod is not None and not instance.pod_ready and (found := problem_of(instance.pod)):
            return found
    return None


def is_stuck(pod: Pod) -> bool:
    """Return True if the pod cannot start without an action."""
    return problem_of(pod) is not None


def problem_of(pod: Pod) -> PodProblem | None:
    """Return the problem of a pod that cannot start."""
    name = pod.metadata.name
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return PodProblem(
                "Unschedulable", f"pod {name} cannot be scheduled: {condition.message or condition.reason}"
            )
    for container in server_statuses(pod):
        if found := _container_problem(name, container):
            return found
    return None


def _container_problem(pod: str, container: ContainerStatus) -> PodProblem | None:
    waiting = container.state.waiting
    if waiting is None or not waiting.reason:
        return None
    detail = waiting.message or waiting.reason
    if waiting.reason in _IMAGE_REASONS:
        return PodProblem("ImageUnavailable", f"image {container.image} of pod {pod} cannot be pulled: {detail}")
    if waiting.reason in _CONFIG_REASONS:
        return PodProblem("InstanceCrashing", f"pod {pod} cannot start: {detail}")
    if waiting.reason == "CrashLoopBackOff":
        terminated = container.last_state.terminated
        message = "" if terminated is None or not terminated.message else f", {terminated.message.strip()}"
        last = (
            ""
            if terminated is None
            else f" (last: {terminated.reason or 'exit'}, exit code {terminated.exit_code}{message})"
        )
        return PodProblem(
            "InstanceCrashing", f"the server in pod {pod} restarted {container.restart_count} times{last}"
        )
    return None
