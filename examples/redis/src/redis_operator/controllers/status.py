"""Status of a RedisCluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from steersman import Condition, set_condition

from redis_operator.api.v1.rediscluster import NodeStatus, RedisCluster, RedisClusterStatus
from redis_operator.nodes import SLOT_COUNT, Slots
from redis_operator.plan import Done, Member, Step
from redis_operator.resources import selector_labels

_MAX_MESSAGE_LENGTH = 1024


def build_status(
    cluster: RedisCluster, step: Step, members: Sequence[Member] | None, now: datetime
) -> RedisClusterStatus:
    """Return the status. It equals the previous status if nothing has changed.

    Args:
        cluster: the RedisCluster with its previous status.
        step: the current step, which sets phase and conditions.
        members: the members. None if the reconcile failed before it inspected them.
        now: the time of new transitions.
    """
    previous = cluster.status
    if members is None:
        nodes, running, covered = previous.nodes, previous.ready_replicas, previous.slots_covered
        replicas, masters = previous.replicas, previous.masters
    else:
        nodes = tuple(_node_status(m, members) for m in sorted(members, key=lambda m: m.ordinal))
        replicas, running = len(members), sum(m.ready for m in members)
        covered = len(Slots.union(m.myself.slots for m in members if m.report is not None))
        masters = sum(1 for node in nodes if node.slots)
    ready = _condition(cluster, "Ready", isinstance(step, Done), step.reason, step.message)
    available = _condition(cluster, "Available", covered == SLOT_COUNT, *_availability(covered))
    conditions = set_condition(set_condition(previous.conditions, available, now), ready, now)
    return RedisClusterStatus(
        observed_generation=cluster.metadata.generation,
        conditions=conditions,
        phase=step.phase,
        replicas=replicas,
        ready_replicas=running,
        selector=",".join(f"{name}={value}" for name, value in sorted(selector_labels(cluster).items())),
        masters=masters,
        slots_covered=covered,
        version=cluster.spec.version if isinstance(step, Done) else previous.version,
        nodes=nodes,
    )


def _node_status(member: Member, members: Sequence[Member]) -> NodeStatus:
    node_name = member.node_name or None
    if member.report is None:
        return NodeStatus(pod=member.name, node_name=node_name)
    if member.is_master:
        return NodeStatus(pod=member.name, role="master", slots=len(member.myself.slots), node_name=node_name)
    master = next((m.name for m in members if m.report is not None and m.id == member.myself.master), None)
    return NodeStatus(pod=member.name, role="replica", master=master, node_name=node_name)


def _availability(covered: int | None) -> tuple[str, str]:
    if covered == SLOT_COUNT:
        return "SlotsServed", "every slot has a reachable master"
    return "SlotsMissing", f"{SLOT_COUNT - (covered or 0)} of {SLOT_COUNT} slots have no reachable master"


def _condition(cluster: RedisCluster, kind: str, true: bool, reason: str, message: str) -> Condition:
    return Condition(
        type=kind,
        status="True" if true else "False",
        reason=reason,
        message=message[:_MAX_MESSAGE_LENGTH],
        observed_generation=cluster.metadata.generation,
    )
