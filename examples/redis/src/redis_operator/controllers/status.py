"""What the user is told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from steersman import Condition, set_condition

from redis_operator.api.v1.rediscluster import NodeStatus, RedisCluster, RedisClusterStatus
from redis_operator.nodes import SLOTS, Slots
from redis_operator.plan import Done, Member, Step
from redis_operator.resources import selector_of

_LONGEST_MESSAGE = 1024


def status_of(
    cluster: RedisCluster, step: Step, members: Sequence[Member] | None, now: datetime
) -> RedisClusterStatus:
    """The whole status; equal to the former one where nothing is new. ``members`` None: it could not be looked."""
    former = cluster.status or RedisClusterStatus()
    if members is None:
        nodes, running, covered = former.nodes, former.ready_replicas, former.slots_covered
        replicas, masters = former.replicas, former.masters
    else:
        nodes = tuple(_node(m, members) for m in sorted(members, key=lambda m: m.ordinal))
        replicas, running = len(members), sum(m.ready for m in members)
        covered = len(Slots.union(m.me.slots for m in members if m.report is not None))
        masters = sum(1 for node in nodes if node.slots)
    ready = _condition(cluster, "Ready", isinstance(step, Done), step.reason, step.message)
    available = _condition(cluster, "Available", covered == SLOTS, *_served(covered))
    conditions = set_condition(set_condition(former.conditions, available, now), ready, now)
    return RedisClusterStatus(
        observed_generation=cluster.metadata.generation,
        conditions=conditions,
        phase=step.phase,
        replicas=replicas,
        ready_replicas=running,
        selector=",".join(f"{name}={value}" for name, value in sorted(selector_of(cluster).items())),
        masters=masters,
        slots_covered=covered,
        version=cluster.spec.version if isinstance(step, Done) else former.version,
        nodes=nodes,
    )


def _node(member: Member, members: Sequence[Member]) -> NodeStatus:
    place = member.place or None
    if member.report is None:
        return NodeStatus(pod=member.name, node_name=place)
    if member.is_master:
        return NodeStatus(pod=member.name, role="master", slots=len(member.me.slots), node_name=place)
    master = next((m.name for m in members if m.report is not None and m.id == member.me.master), None)
    return NodeStatus(pod=member.name, role="replica", master=master, node_name=place)


def _served(covered: int | None) -> tuple[str, str]:
    if covered == SLOTS:
        return "SlotsServed", "every slot has a master that answers"
    return "SlotsMissing", f"{SLOTS - (covered or 0)} of {SLOTS} slots have no master that answers"


def _condition(cluster: RedisCluster, kind: str, true: bool, reason: str, message: str) -> Condition:
    return Condition(
        type=kind,
        status="True" if true else "False",
        reason=reason,
        message=message[:_LONGEST_MESSAGE],
        observed_generation=cluster.metadata.generation,
    )
