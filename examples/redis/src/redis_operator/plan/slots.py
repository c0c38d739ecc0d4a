"""Assignment of slots to masters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from redis_operator.nodes import SLOT_COUNT, Slots
from redis_operator.plan.members import ClusterView, Member, unowned_slots
from redis_operator.plan.steps import AddSlots, Move, Release

_SLOTS_PER_STEP = 2048
"""Number of slots that move in one step. The cluster keeps serving, and the status shows the progress."""


def assign_unowned_slots(view: ClusterView, owners: Sequence[Member]) -> AddSlots | None:
    """Assign slots without an owner to the masters with the fewest."""
    free = tuple(unowned_slots(view))
    if not free:
        return None
    shares: list[tuple[Member, Slots]] = []
    order = sorted(owners, key=lambda m: (len(m.myself.slots), m.ordinal))
    for number, m in enumerate(order):
        rest = sum(len(o.myself.slots) for o in order[number:]) + len(free)
        share = -(-rest // (len(order) - number)) - len(m.myself.slots)
        assigned, free = (free[:share], free[share:]) if share > 0 else ((), free)
        if assigned:
            shares.append((m, Slots.of(assigned)))
    return AddSlots(tuple(shares))


def resume_move(view: ClusterView) -> Move | Release | None:
    """Resume an interrupted move. Keys that have moved must not stay without the rest of their slot."""
    open_moves: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for m in view.active:
        stale = tuple(s for s in m.myself.migrating if s not in m.myself.slots)
        stale += tuple(s for s in m.myself.importing if _slot_owner(view, s) in (m, None))
        if stale:
            return Release(m, stale[:_SLOTS_PER_STEP])
        for slot, target in m.myself.migrating.items():
            open_moves[m.id, _current_master(view, target)].add(slot)
        for slot in m.myself.importing:
            if owner := _slot_owner(view, slot):
                open_moves[owner.id, m.id].add(slot)
    for (source, target), slots in open_moves.items():
        source_member, target_member = view.by_id[source], view.by_id.get(target)
        slots_to_move = tuple(sorted(slots)[:_SLOTS_PER_STEP])
        return (
            Release(source_member, slots_to_move)
            if target_member is None or source_member is target_member
            else Move(source_member, target_member, slots_to_move)
        )
    return None


def _slot_owner(view: ClusterView, slot: int) -> Member | None:
    return next((m for m in view.active if slot in m.myself.slots), None)


def _current_master(view: ClusterView, node: str) -> str:
    """Return the node ID, or that of its current master."""
    member = view.by_id.get(node)
    return node if member is None or member.is_master else member.myself.master


def next_move(view: ClusterView, owners: Sequence[Member]) -> Move | None:
    """Return the next slots to move towards equal shares.

    Nodes that are not in ``owners`` lose their slots first. Final shares differ by one slot at most.
    """
    min_share, max_share = SLOT_COUNT // len(owners), -(-SLOT_COUNT // len(owners))
    smallest = min(owners, key=lambda m: (len(m.myself.slots), m.ordinal))
    former_owners = [m for m in view.active if m.myself.slots and m not in owners]
    if former_owners:
        source = max(former_owners, key=lambda m: (m.ordinal, m.name))
        number = min(len(source.myself.slots), max(1, min_share - len(smallest.myself.slots)))
    else:
        source = max(owners, key=lambda m: (len(m.myself.slots), m.ordinal))
        if len(source.myself.slots) <= max_share and len(smallest.myself.slots) >= min_share:
            return None
        number = max(1, min(len(source.myself.slots) - min_share, min_share - len(smallest.myself.slots)))
    return Move(source, smallest, tuple(source.myself.slots)[-min(number, _SLOTS_PER_STEP) :])
