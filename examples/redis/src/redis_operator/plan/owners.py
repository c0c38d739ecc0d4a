"""Selection of the nodes that own slots."""

from __future__ import annotations

from redis_operator.plan.members import ClusterView, Member, count_replicas


def select_slot_owners(view: ClusterView) -> tuple[Member, ...]:
    """Select the masters so that as little as possible changes.

    The order of preference: masters with slots, replicas of leaving masters, empty masters spread over the Kubernetes
    nodes, and replicas of masters that have several.
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
    """Return the best staying replica in a list, if any."""
    staying = [m for m in replicas if not m.leaving]
    return sorted(staying, key=lambda m: (m.report is None or not m.report.in_sync, m.ordinal))[:1]


def _empty_master(view: ClusterView, chosen: list[Member]) -> Member | None:
    free = [m for m in view.remaining if m.is_master and m not in chosen and not m.myself.slots]
    taken = [m.node_name for m in chosen]
    return min(free, key=lambda m: (taken.count(m.node_name), m.ordinal), default=None)


def _spare_replica(view: ClusterView, chosen: list[Member]) -> Member | None:
    """Return a replica of the master with the most replicas."""
    replica_counts = count_replicas(view.remaining)
    free = [m for m in view.remaining if not m.is_master and m not in chosen]
    return max(free, key=lambda m: (replica_counts[m.myself.master], m.ordinal), default=None)
