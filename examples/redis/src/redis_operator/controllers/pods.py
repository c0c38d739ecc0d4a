"""Members of a cluster from its pods and node reports."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Pod
from steersman.meta import is_true

from redis_operator.nodes import Address, LoginRejected, NodeReport, Redis, fetch_reports
from redis_operator.plan import Goal, Member
from redis_operator.resources import PORT, REVISION_LABEL, pod_ordinal


async def members_of(
    pods: Sequence[Pod], declared: StatefulSet, goal: Goal, redis: Redis, password: str
) -> list[Member]:
    """Return a member for each pod. Terminating pods count as unreachable."""
    addresses = {pod.metadata.name: _pod_address(pod) for pod in pods}
    reports = await fetch_reports(redis, [place for place in addresses.values() if place is not None], password)
    members: list[Member] = []
    for pod in pods:
        address = addresses[pod.metadata.name]
        report = reports.get(address) if address is not None else None
        ending = pod.metadata.deletion_timestamp is not None
        revision = pod.metadata.labels.get(REVISION_LABEL)
        members.append(
            Member(
                name=pod.metadata.name,
                uid=pod.metadata.uid,
                ordinal=pod_ordinal(pod.metadata.name),
                address=address,
                node_name=pod.spec.node_name or "",
                leaving=pod_ordinal(pod.metadata.name) >= goal.replicas,
                ready=not ending and _is_pod_ready(pod),
                outdated=not ending and revision != declared.status.update_revision,
                rejects_password=isinstance(report, LoginRejected),
                report=report if isinstance(report, NodeReport) else None,
            )
        )
    return members


def _pod_address(pod: Pod) -> Address | None:
    if not pod.status.pod_ip or pod.metadata.deletion_timestamp is not None:
        return None
    return Address(pod.status.pod_ip, PORT)


def _is_pod_ready(pod: Pod) -> bool:
    return is_true(pod.status.conditions, "Ready")
