"""Which slots go where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from redis_operator.nodes import SLOTS, Slots
from redis_operator.plan.members import Member, View, unowned
from redis_operator.plan.steps import AddSlots, Move, Release

_AT_ONCE = 2048
"""Slots that move in one step. A cluster goes on serving meanwhile, and tells after each how far it is."""


def assignment(view: View, owners: Sequence[Member]) -> AddSlots | None:
    """Gives slots that nobody has to those who have fewest, up to their shares, in runs as long as can be."""
    free = tuple(unowned(view))
    if not free:
        return None
    shares: list[tuple[Member, Slots]] = []
    order = sorted(owners, key=lambda m: (len(m.me.slots), m.ordinal))
    for number, m in enumerate(order):
        rest = sum(len(o.me.slots) for o in order[number:]) + len(free)
        wanted = -(-rest // (len(order) - number)) - len(m.me.slots)
        given, free = (free[:wanted], free[wanted:]) if wanted > 0 else ((), free)
        if given:
            shares.append((m, Slots.of(given)))
    return AddSlots(tuple(shares))


def unfinished(view: View) -> Move | Release | None:
    """Goes on with a move that was cut off: where its keys have begun to go, there they must all go."""
    going: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for m in view.active:
        stale = tuple(s for s in m.me.migrating if s not in m.me.slots)
        stale += tuple(s for s in m.me.importing if _owner(view, s) in (m, None))
        if stale:
            return Release(m, stale[:_AT_ONCE])
        for slot, target in m.me.migrating.items():
            going[m.id, _master_of(view, target)].add(slot)
        for slot in m.me.importing:
            if owner := _owner(view, slot):
                going[owner.id, m.id].add(slot)
    for (source, target), slots in going.items():
        at, to = view.by_id[source], view.by_id.get(target)
        some = tuple(sorted(slots)[:_AT_ONCE])
        return Release(at, some) if to is None or at is to else Move(at, to, some)
    return None


def _owner(view: View, slot: int) -> Member | None:
    return next((m for m in view.active if slot in m.me.slots), None)


def _master_of(view: View, node: str) -> str:
    """The node, or the one that has taken its place."""
    member = view.by_id.get(node)
    return node if member is None or member.is_master else member.me.master


def move(view: View, owners: Sequence[Member]) -> Move | None:
    """The next slots to move, so that owners have all slots and equal shares, but for one slot."""
    least, most = SLOTS // len(owners), -(-SLOTS // len(owners))
    poor = min(owners, key=lambda m: (len(m.me.slots), m.ordinal))
    giving = [m for m in view.active if m.me.slots and m not in owners]
    if giving:
        source = max(giving, key=lambda m: (m.ordinal, m.name))
        number = min(len(source.me.slots), max(1, least - len(poor.me.slots)))
    else:
        source = max(owners, key=lambda m: (len(m.me.slots), m.ordinal))
        if len(source.me.slots) <= most and len(poor.me.slots) >= least:
            return None
        number = max(1, min(len(source.me.slots) - least, least - len(poor.me.slots)))
    return Move(source, poor, tuple(source.me.slots)[-min(number, _AT_ONCE) :])
