"""Why a pod does not run, in the words of Kubernetes, where time alone will not help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from steersman.api.core_v1 import ContainerStatus, Pod
from steersman_databases.clusters.observed import Instance

_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


@dataclass(frozen=True, slots=True)
class Trouble:
    """``reason`` is one of the condition Ready of a cluster."""

    reason: Literal["Unschedulable", "ImageUnavailable", "InstanceCrashing", "InstanceRefused"]
    message: str


def trouble_of(instances: Iterable[Instance]) -> Trouble | None:
    """What is the matter with the first of them that cannot start."""
    for instance in instances:
        if instance.pod is not None and not instance.pod_ready and (found := trouble_in(instance.pod)):
            return found
    return None


def is_stuck(pod: Pod) -> bool:
    """Whether it will not start by itself."""
    return trouble_in(pod) is not None


def trouble_in(pod: Pod) -> Trouble | None:
    """What is the matter with it, if it cannot start."""
    name = pod.metadata.name
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return Trouble("Unschedulable", f"no node takes pod {name}: {condition.message or condition.reason}")
    for container in pod.status.container_statuses:
        if found := _container(name, container):
            return found
    return None


def _container(pod: str, container: ContainerStatus) -> Trouble | None:
    waiting = container.state.waiting
    if waiting is None or not waiting.reason:
        return None
    said = waiting.message or waiting.reason
    if waiting.reason in _IMAGE_REASONS:
        return Trouble("ImageUnavailable", f"image {container.image} of pod {pod} cannot be pulled: {said}")
    if waiting.reason in _CONFIG_REASONS:
        return Trouble("InstanceCrashing", f"pod {pod} does not start: {said}")
    if waiting.reason == "CrashLoopBackOff":
        ended = container.last_state.terminated
        words = "" if ended is None or not ended.message else f", {ended.message.strip()}"
        last = "" if ended is None else f" (last: {ended.reason or 'exit'}, code {ended.exit_code}{words})"
        return Trouble("InstanceCrashing", f"the server in pod {pod} ended {container.restart_count} times{last}")
    return None
