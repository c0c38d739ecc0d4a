"""Pods as objects, without processes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from steersman import Client, FrozenDict, MergePatch, ObjectKey, ObjectMeta
from steersman.api.core_v1 import Container, EnvVar, Pod, PodCondition, PodIP, PodSpec, PodStatus

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def pod(
    name: str,
    *,
    namespace: str = "default",
    ready: bool = True,
    since: int = 0,
    labels: dict[str, str] | None = None,
    sidecar: str = "",
) -> Pod:
    """Return a pod with the label ``app: orders``.

    Args:
        since: minutes after ``EPOCH`` at which ``Ready`` changed.
        sidecar: name of the LeaderService of its sidecar.
    """
    containers = (Container(name="app", image="orders:1"),)
    environment = (EnvVar(name="LEADER_SERVICE", value=sidecar),)
    leader = Container(name="leader", image="leader-operator:latest", restart_policy="Always", env=environment)
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=namespace, uid=f"uid-{name}", labels=FrozenDict(labels or {"app": "orders"})
        ),
        spec=PodSpec(
            containers=containers,
            init_containers=(leader,) if sidecar else (),
            share_process_namespace=True if sidecar else None,
        ),
        status=pod_status(ready=ready, since=since, ip=f"10.0.0.{int(name.rpartition('-')[2]) + 1}"),
    )


def pod_status(*, ready: bool, since: int = 0, ip: str = "10.0.0.1") -> PodStatus:
    """Return the status of a pod."""
    condition = PodCondition(
        type="Ready", status="True" if ready else "False", last_transition_time=EPOCH + timedelta(minutes=since)
    )
    return PodStatus(conditions=(condition,), pod_ip=ip, pod_ips=(PodIP(ip=ip),), phase="Running")


async def create_pod(client: Client, declared: Pod) -> Pod:
    """Create a pod with its status, like the kubelet."""
    key = ObjectKey(declared.metadata.namespace, declared.metadata.name)
    await client.create(declared)
    return await set_ready(client, key, declared.status)


async def set_ready(client: Client, key: ObjectKey, status: PodStatus) -> Pod:
    """Write the status of a pod."""
    (condition,) = status.conditions
    body = {
        "podIP": status.pod_ip,
        "podIPs": [{"ip": address.ip} for address in status.pod_ips],
        "phase": status.phase,
        "conditions": [
            {"type": "Ready", "status": condition.status, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ],
    }
    return await client.patch(Pod, key, MergePatch({"status": body}), subresource="status")
