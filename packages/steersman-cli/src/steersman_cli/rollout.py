"""Waits until what was deployed answers."""

from __future__ import annotations

import asyncio

from steersman.api.apps_v1 import Deployment, DeploymentStatus
from steersman.api.core_v1 import Pod
from steersman.api.meta_v1 import LabelSelector
from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_cli.exit_codes import CheckFailed

_POLL_INTERVAL_SECONDS = 0.5


async def wait_available(client: Client, key: ObjectKey, seconds: float) -> None:
    """Waits until all replicas of a Deployment are of its present template and available, and no others are there.

    Raises:
        FoundWrong: they are not in time, or Kubernetes gave up; says what the pods wait for.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        deployment = await client.get(Deployment, key)
        pending = rollout_pending_reason(deployment)
        if not pending:
            return
        if asyncio.get_running_loop().time() > deadline or _progress_deadline_exceeded(deployment):
            reasons = "; ".join([pending, *await _container_problems(client, deployment)])
            raise CheckFailed(f"deployment.apps/{key.name} is not available after {seconds:.0f} s: {reasons}")
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)


def rollout_pending_reason(deployment: Deployment) -> str:
    """What a rollout still waits for; empty where it is done. As ``kubectl rollout status`` has it."""
    status, replicas = deployment.status or DeploymentStatus(), deployment.spec.replicas
    desired = 1 if replicas is None else replicas
    updated, available = status.updated_replicas or 0, status.available_replicas or 0
    if (status.observed_generation or 0) < (deployment.metadata.generation or 0):
        return "it was not looked at yet"
    if updated < desired:
        return f"{updated} of {desired} replicas are new"
    if outdated := (status.replicas or 0) - updated:
        return f"{outdated} old replicas are still there"
    return "" if available >= updated else f"{available} of {desired} replicas are available"


def _progress_deadline_exceeded(deployment: Deployment) -> bool:
    return any(c.reason == "ProgressDeadlineExceeded" for c in deployment.status.conditions or ())


async def _container_problems(client: Client, deployment: Deployment) -> list[str]:
    """What containers wait for, or why they are not ready."""
    selected = deployment.spec.selector or LabelSelector()
    selector = ",".join(f"{name}={value}" for name, value in selected.match_labels.items())
    pods = (await client.list(Pod, namespace=deployment.metadata.namespace, label_selector=selector)).items
    reasons: dict[str, None] = {}
    for pod in pods:
        for container in pod.status.container_statuses or () if pod.status else ():
            waiting = container.state.waiting if container.state else None
            if waiting is not None:
                reasons[f"{waiting.reason}: {waiting.message}" if waiting.message else str(waiting.reason)] = None
        for condition in pod.status.conditions or () if pod.status else ():
            if condition.status == "False" and condition.message and condition.type == "PodScheduled":
                reasons[f"{condition.reason}: {condition.message}"] = None
    return list(reasons)
