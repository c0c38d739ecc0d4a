"""Which nodes shall own slots."""

from __future__ import annotations

from redis_operator.plan.members import ClusterView, Member, count_replicas


def select_slot_owners(view: ClusterView) -> tuple[Member, ...]:
    """As many as there should be masters, so that as little as possible changes.

    First masters that serve already; then replicas of such as will go, which take over whole; then empty masters,
    spread over the places; then replicas of masters that have several.
    """
    master_count = view.goal.masters
    chosen = sorted((m for m in view.remaining if m.myself.slots), key=lambda m: (-len(m.myself.slots), m.ordinal))[
        :master_count
    ]
    for leaving in view.leaving:
        if leaving.myself.slots and len(chosen) < master_count:
            chosen += _most_recent_replica(view.replicas_of(leaving.id))
    while len(chosen) < master_count and (candidate := _empty_master(view, chosen) or _spare_replica(view, chosen)):
        chosen.append(candidate)
    return tuple(chosen)


def _most_recent_replica(replicas: list[Member]) -> list[Member]:
    """The one that stays and lags least, in a list; none where there is none."""
    staying = [m for m in replicas if not m.leaving]
    return sorted(staying, key=lambda m: (m.report is None or not m.report.in_sync, m.ordinal))[:1]


def _empty_master(view: ClusterView, chosen: list[Member]) -> Member | None:
    free = [m for m in view.remaining if m.is_master and m not in chosen and not m.myself.slots]
    taken = [m.node_name for m in chosen]
    return min(free, key=lambda m: (taken.count(m.node_name), m.ordinal), default=None)


def _spare_replica(view: ClusterView, chosen: list[Member]) -> Member | None:
    """A replica of the master that has most of them."""
    replica_counts = count_replicas(view.remaining)
    free = [m for m in view.remaining if not m.is_master and m not in chosen]
    return max(free, key=lambda m: (replica_counts[m.myself.master], m.ordinal), default=None)
