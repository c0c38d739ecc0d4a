"""What is done next with clusters in states that a life seldom comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations

import pytest

from redis_operator.nodes import SLOTS, Address, Entry, Report, Slots
from redis_operator.plan import Goal, Member, Move, Replace, Replicate, Shrink, Wait, next_step


def node(number: int, master: int | None = None, slots: Slots | None = None) -> Entry:
    """The node of pod ``number``, a replica if ``master`` is that of another."""
    flags = frozenset({"master" if master is None else "slave"})
    address = Address(f"10.0.0.{number}")
    return Entry(_id(number), address, flags, "" if master is None else _id(master), True, slots or Slots())


def members(goal: Goal, *nodes: Entry) -> list[Member]:
    """A pod for each node; all know and agree with each other."""
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
                report=Report(me, others, follows),
            )
        )
    return found


def shares(count: int) -> list[Slots]:
    """All slots, in as many runs."""
    ends = [SLOTS * number // count for number in range(count + 1)]
    return [Slots.between(first, last - 1) for first, last in pairwise(ends)]


def _id(number: int) -> str:
    return f"{number:040x}"


def test_keys_on_a_pod_that_is_to_go_again_are_waited_for() -> None:
    """Scaled out, and in again while the first slots moved: some of their keys are there, the slots are not yet."""
    goal = Goal(replicas=3, pods=4, per_master=0)
    one, two, three = (node(number, slots=slots) for number, slots in enumerate(shares(3)))
    one = replace(one, migrating={7: _id(3)})
    found = members(goal, one, two, three, replace(node(3), importing={7: _id(0)}))
    assert isinstance(next_step(goal, found), Move)
    found[3] = replace(found[3], report=None)
    step = next_step(goal, found)
    assert isinstance(step, Wait)
    assert "blue-3 cannot go" in step.message
    # Deleted, and not yet made again: its volume is still there.
    assert isinstance(next_step(goal, found[:3]), Wait)


def test_pods_that_never_came_are_wanted_no_more() -> None:
    """Scaled out beyond what a quota lets be made, and in again."""
    goal = Goal(replicas=3, pods=5, per_master=0)
    found = members(goal, *(node(number, slots=slots) for number, slots in enumerate(shares(3))))
    assert next_step(goal, found) == Shrink(3)


def test_a_replica_that_cannot_follow_a_newer_master_is_replaced() -> None:
    """What a newer series sends an older one cannot read; so it would never have what its master has."""
    goal = Goal(replicas=6, pods=6)
    masters = [node(number, slots=slots) for number, slots in enumerate(shares(3))]
    found = members(goal, *masters, *(node(number, master=number - 3) for number in range(3, 6)))
    assert found[5].report is not None
    found[5] = replace(found[5], outdated=True, report=replace(found[5].report, in_sync=False))
    step = next_step(goal, found)
    assert isinstance(step, Replace)
    assert step.at.name == "blue-5"


@pytest.mark.parametrize("places", sorted(set(permutations("AABBCC"))), ids="".join)
def test_no_place_has_both_copies(places: tuple[str, ...]) -> None:
    """Wherever the scheduler put six pods on three machines."""
    goal = Goal(replicas=6, pods=6)
    given = Counter[str]()
    nodes: list[Entry] = []
    runs = shares(3)
    for number, place in enumerate(places):
        given[place] += 1
        nodes.append(node(number, slots=runs.pop() if given[place] == 1 else None))
    found = [replace(m, place=place) for m, place in zip(members(goal, *nodes), places, strict=True)]
    step = next_step(goal, found)
    assert isinstance(step, Replicate)
    assert len(step.pairs) == 3
    assert all(replica.place != master.place for replica, master in step.pairs)
    assert len({master.name for _, master in step.pairs}) == 3


def test_masters_have_as_many_replicas_wherever_pods_are() -> None:
    """Of two pairs that share a machine each, the second's exchange undid the first's: one master had three."""
    goal = Goal(replicas=6, pods=6, per_master=2)
    nodes = [*(node(number, slots=slots) for number, slots in enumerate(shares(2))), *map(node, range(2, 6))]
    found = [replace(m, place=place) for m, place in zip(members(goal, *nodes), "ADAABD", strict=True)]
    step = next_step(goal, found)
    assert isinstance(step, Replicate)
    assert Counter(master.name for _, master in step.pairs) == {"blue-0": 2, "blue-1": 2}
