"""Status of a RedisCluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steersman import Condition

from redis_operator.api.v1.rediscluster import NodeStatus, RedisCluster
from redis_operator.nodes import SLOT_COUNT, Slots
from redis_operator.plan import Done, Member, Step
from redis_operator.resources import selector_labels

_MAX_MESSAGE_LENGTH = 1024


def status_fields(cluster: RedisCluster, step: Step, members: Sequence[Member] | None) -> dict[str, Any]:
    """Return the fields of the status, for ``Reconciler.status``.

    Args:
        cluster: the RedisCluster with its previous status.
        step: the current step, which sets phase and conditions.
        members: the members. None if the reconcile failed before it inspected them: their fields keep their values.
    """
    selector = ",".join(f"{name}={value}" for name, value in sorted(selector_labels(cluster).items()))
    fields: dict[str, Any] = {"phase": step.phase, "selector": selector}
    covered = cluster.status.slots_covered
    if members is not None:
        nodes = tuple(_node_status(m, members) for m in sorted(members, key=lambda m: m.ordinal))
        covered = len(Slots.union(m.myself.slots for m in members if m.report is not None))
        fields |= {
            "replicas": len(members),
            "ready_replicas": sum(m.ready for m in members),
            "masters": sum(1 for node in nodes if node.slots),
            "slots_covered": covered,
            "nodes": nodes,
        }
    if isinstance(step, Done):
        fields["version"] = cluster.spec.version
    available = _condition("Available", covered == SLOT_COUNT, *_availability(covered))
    ready = _condition("Ready", isinstance(step, Done), step.reason, step.message)
    return {**fields, "conditions": (available, ready)}


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


def _condition(kind: str, true: bool, reason: str, message: str) -> Condition:
    message = message[:_MAX_MESSAGE_LENGTH]
    return Condition(type=kind, status="True" if true else "False", reason=reason, message=message)
