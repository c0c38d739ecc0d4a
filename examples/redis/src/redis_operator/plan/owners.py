"""Which nodes shall own slots."""

from __future__ import annotations

from redis_operator.plan.members import Member, View, count_replicas


def owners(view: View) -> tuple[Member, ...]:
    """As many as there should be masters, so that as little as possible changes.

    First masters that serve already; then replicas of such as will go, which take over whole; then empty masters,
    spread over the places; then replicas of masters that have several.
    """
    wanted = view.goal.masters
    chosen = sorted((m for m in view.staying if m.me.slots), key=lambda m: (-len(m.me.slots), m.ordinal))[:wanted]
    for leaving in view.leaving:
        if leaving.me.slots and len(chosen) < wanted:
            chosen += _best(view.replicas_of(leaving.id))
    while len(chosen) < wanted and (more := _empty(view, chosen) or _spare(view, chosen)):
        chosen.append(more)
    return tuple(chosen)


def _best(replicas: list[Member]) -> list[Member]:
    """The one that stays and lags least, in a list; none where there is none."""
    staying = [m for m in replicas if not m.leaving]
    return sorted(staying, key=lambda m: (m.report is None or not m.report.in_sync, m.ordinal))[:1]


def _empty(view: View, chosen: list[Member]) -> Member | None:
    free = [m for m in view.staying if m.is_master and m not in chosen and not m.me.slots]
    taken = [m.place for m in chosen]
    return min(free, key=lambda m: (taken.count(m.place), m.ordinal), default=None)


def _spare(view: View, chosen: list[Member]) -> Member | None:
    """A replica of the master that has most of them."""
    having = count_replicas(view.staying)
    free = [m for m in view.staying if not m.is_master and m not in chosen]
    return max(free, key=lambda m: (having[m.me.master], m.ordinal), default=None)
