"""The choice of a leader, without side effects."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from steersman import find_condition
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import Pod

from leader_operator.api.v1.leaderservice import Leader, LeaderService
from leader_operator.sidecar.settings import pod_of

_NEVER = datetime.max.replace(tzinfo=UTC)


def is_ready(pod: Pod) -> bool:
    """Return True if the pod is ready and not being deleted."""
    ready = find_condition(pod.status.conditions, "Ready")
    return pod.metadata.deletion_timestamp is None and ready is not None and ready.status == "True"


def choose_leader(pods: Iterable[Pod], current: Leader | None) -> Pod | None:
    """Choose a leader among the pods, for ``fencing: None``.

    The current leader stays while it is ready. Otherwise the pod leads that has been ready for the longest time.
    """
    ready = [pod for pod in pods if is_ready(pod)]
    if current is not None:
        for pod in ready:
            if pod.metadata.uid == current.uid:
                return pod
    return min(ready, key=_ready_since, default=None)


def elected_pod(pods: Iterable[Pod], lease: Lease | None) -> Pod | None:
    """Return the pod that holds the Lease, for ``fencing: Sidecar``."""
    if lease is None:
        return None
    name, uid = pod_of(lease.spec.holder_identity or "")
    return next((pod for pod in pods if (pod.metadata.name, pod.metadata.uid) == (name, uid)), None)


def selects(service: LeaderService, pod: Pod) -> bool:
    """Return True if the pod is one of the service."""
    labels = pod.metadata.labels
    same_namespace = pod.metadata.namespace == service.metadata.namespace
    return same_namespace and all(labels.get(name) == value for name, value in service.spec.selector.items())


def sidecar_problem(service: LeaderService, pod: Pod) -> str:
    """Return why the pod is not fenced; empty if it is."""
    name = service.metadata.name
    if not any(_is_sidecar(container.restart_policy, container.env, name) for container in pod.spec.init_containers):
        return f"has no init container with restartPolicy Always and LEADER_SERVICE={name}"
    if not pod.spec.share_process_namespace:
        return "does not set shareProcessNamespace: true"
    return ""


def _is_sidecar(restart_policy: str | None, env: Iterable[object], service: str) -> bool:
    variables = {(getattr(variable, "name", ""), getattr(variable, "value", "")) for variable in env}
    return restart_policy == "Always" and ("LEADER_SERVICE", service) in variables


def _ready_since(pod: Pod) -> tuple[datetime, str]:
    ready = find_condition(pod.status.conditions, "Ready")
    since = ready.last_transition_time if ready is not None else None
    return since or _NEVER, pod.metadata.name
