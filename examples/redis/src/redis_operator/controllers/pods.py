"""From pods to members: what Kubernetes says of each, and what Redis says in it."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Pod
from steersman.meta import is_true

from redis_operator.nodes import Address, LoginRejected, Redis, Report, reports_of
from redis_operator.plan import Goal, Member
from redis_operator.resources import PORT, REVISION, ordinal_of


async def members_of(
    pods: Sequence[Pod], declared: StatefulSet, goal: Goal, redis: Redis, password: str
) -> list[Member]:
    """A member for each pod; those that end already do not answer any more."""
    places = {pod.metadata.name: _address(pod) for pod in pods}
    said = await reports_of(redis, [place for place in places.values() if place is not None], password)
    members: list[Member] = []
    for pod in pods:
        address = places[pod.metadata.name]
        answer = said.get(address) if address is not None else None
        ending = pod.metadata.deletion_timestamp is not None
        revision = pod.metadata.labels.get(REVISION)
        members.append(
            Member(
                name=pod.metadata.name,
                uid=pod.metadata.uid,
                ordinal=ordinal_of(pod.metadata.name),
                address=address,
                place=pod.spec.node_name or "",
                leaving=ordinal_of(pod.metadata.name) >= goal.replicas,
                ready=not ending and _is_ready(pod),
                outdated=not ending and revision != declared.status.update_revision,
                rejects=isinstance(answer, LoginRejected),
                report=answer if isinstance(answer, Report) else None,
            )
        )
    return members


def _address(pod: Pod) -> Address | None:
    if not pod.status.pod_ip or pod.metadata.deletion_timestamp is not None:
        return None
    return Address(pod.status.pod_ip, PORT)


def _is_ready(pod: Pod) -> bool:
    return is_true(pod.status.conditions, "Ready")
