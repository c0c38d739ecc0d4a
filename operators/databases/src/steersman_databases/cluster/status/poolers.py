"""Condition of a cluster's poolers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import Pod
from steersman.meta import FrozenDict, ObjectKey
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.cluster.status.pod_problems import problem_of


class NotCreated(NamedTuple):
    """Problem that prevents the creation of declared poolers."""

    reason: str
    message: str


def evaluate_poolers(
    deployments: Mapping[ObjectKey, Deployment | NotCreated], pods: Sequence[Pod], conditions: ConditionSet
) -> None:
    """Evaluate PoolersReady.

    Args:
        pods: pods of both Deployments.
    """
    if not deployments:
        conditions.remove("PoolersReady")
        return
    found = [
        (deployment.reason, f"poolers of {key.name} cannot be created: {deployment.message}")
        if isinstance(deployment, NotCreated)
        else _pooler_state(deployment, pods)
        for key, deployment in deployments.items()
    ]
    found = [state for state in found if state is not None]
    if not found:
        conditions.set("PoolersReady", True, "Serving", "all poolers accept connections")
        return
    # Problems that need the user precede progress.
    reason = min((reason for reason, _ in found), key=lambda r: r in ("RollingOut", "PoolerNotReady"))
    conditions.set("PoolersReady", False, reason, "; ".join(message for _, message in found))


def _pooler_state(deployment: Deployment, pods: Sequence[Pod]) -> tuple[str, str] | None:
    """Return reason and message of a problem of one Service's poolers."""
    desired, status = deployment.spec.replicas or 0, deployment.status
    ready_replicas, updated = status.ready_replicas or 0, status.updated_replicas or 0
    observed_generation = f"{deployment.metadata.name} has {ready_replicas} of {desired} poolers ready"
    selector = deployment.spec.selector
    wanted_labels = FrozenDict[str, str]() if selector is None else selector.match_labels
    own_pods = (pod for pod in pods if wanted_labels.items() <= pod.metadata.labels.items())
    if problem := next((found for pod in own_pods if (found := problem_of(pod))), None):
        reason = "PoolerCrashing" if problem.reason == "InstanceCrashing" else problem.reason
        return reason, f"{observed_generation}: {problem.message}"
    rejected = (c for c in status.conditions if c.type == "ReplicaFailure" and c.status == "True")
    if condition := next(rejected, None):
        return "PodRejected", f"{observed_generation}: {condition.message or condition.reason}"
    old = (status.observed_generation or 0) < (deployment.metadata.generation or 0)
    if old or updated < desired or (status.replicas or 0) > desired:
        return "RollingOut", observed_generation
    return None if ready_replicas >= desired else ("PoolerNotReady", observed_generation)
