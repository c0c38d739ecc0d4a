"""Planner in states that clusters rarely reach."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations

import pytest

from redis_operator.nodes import SLOT_COUNT, Address, NodeEntry, NodeReport, Slots
from redis_operator.plan import Goal, Member, Move, Replace, Replicate, ScaleIn, Wait, next_step


def node_entry(number: int, master: int | None = None, slots: Slots | None = None) -> NodeEntry:
    """Return the node of a pod, a replica if ``master`` differs."""
    flags = frozenset({"master" if master is None else "slave"})
    address = Address(f"10.0.0.{number}")
    return NodeEntry(_id(number), address, flags, "" if master is None else _id(master), True, slots or Slots())


def members(goal: Goal, *nodes: NodeEntry) -> list[Member]:
    """Return a pod for each node. All nodes agree."""
    found: list[Member] = []
    for number, me in enumerate(nodes):
        others = {other.id: replace(other, migrating={}, importing={}) for other in nodes if other is not me}
        follows = next((o.address for o in nodes if o.id == me.master), None)
        found.append(
            Member(
                name=f"blue-{number}",
                ordinal=number,
                address=me.address,
                leaving=number >= goal.replicas,
                report=NodeReport(me, others, follows),
            )
        )
    return found


def even_slot_shares(count: int) -> list[Slots]:
    """Return all slots as contiguous ranges of equal size."""
    ends = [SLOT_COUNT * number // count for number in range(count + 1)]
    return [Slots.from_range(first, last - 1) for first, last in pairwise(ends)]


def _id(number: int) -> str:
    return f"{number:040x}"


def test_pod_to_be_removed_waits_for_its_keys() -> None:
    """A scale-in during a move keeps pods with keys."""
    goal = Goal(replicas=3, pods=4, replicas_per_master=0)
    one, two, three = (node_entry(number, slots=slots) for number, slots in enumerate(even_slot_shares(3)))
    one = replace(one, migrating={7: _id(3)})
    found = members(goal, one, two, three, replace(node_entry(3), importing={7: _id(0)}))
    assert isinstance(next_step(goal, found), Move)
    found[3] = replace(found[3], report=None)
    step = next_step(goal, found)
    assert isinstance(step, Wait)
    assert "blue-3 cannot be removed" in step.message
    # The pod was deleted and not yet recreated, so its volume still exists.
    assert isinstance(next_step(goal, found[:3]), Wait)


def test_plan_missing_pods_are_dropped_when_scaled_in() -> None:
    """A scale-in drops pods that a quota has prevented."""
    goal = Goal(replicas=3, pods=5, replicas_per_master=0)
    found = members(goal, *(node_entry(number, slots=slots) for number, slots in enumerate(even_slot_shares(3))))
    assert next_step(goal, found) == ScaleIn(3)


def test_plan_incompatible_replica_is_replaced() -> None:
    """A replica that cannot read its newer master is replaced."""
    goal = Goal(replicas=6, pods=6)
    masters = [node_entry(number, slots=slots) for number, slots in enumerate(even_slot_shares(3))]
    found = members(goal, *masters, *(node_entry(number, master=number - 3) for number in range(3, 6)))
    assert found[5].report is not None
    found[5] = replace(found[5], outdated=True, report=replace(found[5].report, in_sync=False))
    step = next_step(goal, found)
    assert isinstance(step, Replace)
    assert step.target.name == "blue-5"


@pytest.mark.parametrize("places", sorted(set(permutations("AABBCC"))), ids="".join)
def test_plan_spreads_copies_over_failure_domains(places: tuple[str, ...]) -> None:
    """Each placement of six pods on three machines leads to separated copies."""
    goal = Goal(replicas=6, pods=6)
    pod_counts = Counter[str]()
    nodes: list[NodeEntry] = []
    slot_ranges = even_slot_shares(3)
    for number, node_name in enumerate(places):
        pod_counts[node_name] += 1
        nodes.append(node_entry(number, slots=slot_ranges.pop() if pod_counts[node_name] == 1 else None))
    found = [replace(m, node_name=place) for m, place in zip(members(goal, *nodes), places, strict=True)]
    step = next_step(goal, found)
    assert isinstance(step, Replicate)
    assert len(step.pairs) == 3
    assert all(replica.node_name != master.node_name for replica, master in step.pairs)
    assert len({master.name for _, master in step.pairs}) == 3


def test_masters_have_as_many_replicas_wherever_pods_are() -> None:
    """Masters keep their replicas if two pairs share machines.

    Regression: a second exchange reverted the first, and one master had three replicas.
    """
    goal = Goal(replicas=6, pods=6, replicas_per_master=2)
    nodes = [
        *(node_entry(number, slots=slots) for number, slots in enumerate(even_slot_shares(2))),
        *map(node_entry, range(2, 6)),
    ]
    found = [replace(m, node_name=place) for m, place in zip(members(goal, *nodes), "ADAABD", strict=True)]
    step = next_step(goal, found)
    assert isinstance(step, Replicate)
    assert Counter(master.name for _, master in step.pairs) == {"blue-0": 2, "blue-1": 2}
