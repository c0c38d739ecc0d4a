"""Conditions of a LeaderService."""

from __future__ import annotations

from collections.abc import Sequence

from steersman import Condition
from steersman.api.core_v1 import Pod
from steersman.errors import NameConflict

from leader_operator.api.v1.leaderservice import Leader, LeaderService
from leader_operator.controllers.choice import sidecar_problem

_MAX_NAMED_PODS = 5
_MAX_MESSAGE_LENGTH = 1024


def ready_condition(service: LeaderService, pods: Sequence[Pod], leader: Leader | None) -> Condition:
    """Return ``Ready``: True while a leader is published."""
    if leader is not None:
        return _condition(service, "Ready", "LeaderPublished", f"{leader.pod} leads in term {leader.term}", true=True)
    if not pods:
        selector = ",".join(f"{name}={value}" for name, value in sorted(service.spec.selector.items()))
        return _condition(service, "Ready", "NoPods", f"no pod has the labels {selector}")
    if service.spec.fencing == "Sidecar":
        message = "no pod holds the Lease; see the logs of the sidecars: kubectl logs POD -c leader"
        return _condition(service, "Ready", "NoLeader", message)
    return _condition(service, "Ready", "NoReadyPod", f"none of {len(pods)} pods is ready; see kubectl describe pod")


def refused_condition(service: LeaderService, error: Exception) -> Condition:
    """Return ``Ready`` if an object cannot be published."""
    reason = "NameTaken" if isinstance(error, NameConflict) else "Refused"
    return _condition(service, "Ready", reason, str(error)[:_MAX_MESSAGE_LENGTH])


def fenced_condition(service: LeaderService, pods: Sequence[Pod]) -> Condition:
    """Return ``Fenced``: True if every pod has the sidecar."""
    if service.spec.fencing == "None":
        message = "traffic goes to one pod, but a previous leader may still run; use fencing: Sidecar to end it first"
        return _condition(service, "Fenced", "NoFencing", message)
    problems = [f"{pod.metadata.name} {problem}" for pod in pods if (problem := sidecar_problem(service, pod))]
    if problems:
        rest = f" and {len(problems) - _MAX_NAMED_PODS} more" if len(problems) > _MAX_NAMED_PODS else ""
        named = "; ".join(sorted(problems)[:_MAX_NAMED_PODS])
        return _condition(service, "Fenced", "SidecarMissing", f"pods cannot lead: {named}{rest}")
    return _condition(service, "Fenced", "SidecarsPresent", "every pod has the sidecar", true=True)


def _condition(service: LeaderService, kind: str, reason: str, message: str, *, true: bool = False) -> Condition:
    return Condition(
        type=kind,
        status="True" if true else "False",
        reason=reason,
        message=message,
        observed_generation=service.metadata.generation,
    )
