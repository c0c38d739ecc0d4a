"""Rules that determine the next step. The first rule that returns a step wins."""

from __future__ import annotations

from collections.abc import Sequence

from redis_operator.plan import slots
from redis_operator.plan.members import ClusterView, Goal, Member, count_replicas
from redis_operator.plan.owners import select_slot_owners
from redis_operator.plan.steps import (
    Done,
    Failover,
    Forget,
    Meet,
    Replace,
    Replicate,
    Reset,
    ScaleIn,
    Step,
    Wait,
    member_names,
)


def next_step(goal: Goal, members: Sequence[Member]) -> Step:
    """Return the next step towards ``goal`` that loses no keys."""
    view = ClusterView(goal, tuple(sorted(members, key=lambda m: m.ordinal)))
    for rule in (
        _replace_broken,
        _meet_nodes,
        _wait_for_members,
        _wait_for_agreement,
        _handle_lost_masters,
        _assign_roles,
        _reset_leaving,
        _forget_removed_nodes,
        _scale_in,
        _rolling_update,
    ):
        if step := rule(view):
            return step
    return Done()


def _replace_broken(view: ClusterView) -> Step | None:
    """Replace outdated pods that are not ready.

    This lets users correct a wrong spec."""
    for m in view.members:
        if m.outdated and (not m.ready or (m.rejects_password and all(other.ready for other in view.members))):
            return Replace(m)
    return None


def _meet_nodes(view: ClusterView) -> Step | None:
    """Introduce all nodes to the one that knows the most. Gossip spreads the rest."""
    if not view.remaining:
        return None
    hub = max(view.active, key=_knowledge_key)
    assert hub.report is not None
    table = hub.report.table
    unknown = [
        m
        for m in view.active
        if m is not hub and (m.id not in table or table[m.id].address != m.address or hub.id not in _known_ids(m))
    ]
    return Meet(hub, tuple(unknown)) if unknown else None


def _knowledge_key(member: Member) -> tuple[int, int, int]:
    assert member.report is not None
    known_slots = sum(len(entry.slots) for entry in member.report.table.values())
    return known_slots, len(member.report.others), -member.ordinal


def _known_ids(member: Member) -> set[str]:
    return set(member.report.others) if member.report is not None else set()


def _wait_for_members(view: ClusterView) -> Step | None:
    """Wait while a node is unreachable.

    It may have the only copy of its keys."""
    missing = [m.name for m in view.members if m.report is None and not m.leaving]
    present = sum(not m.leaving for m in view.members)
    if present < view.goal.replicas:
        return Wait("PodsMissing", f"waiting for {view.goal.replicas - present} pods to be created")
    if missing:
        return Wait("NodesMissing", f"waiting for Redis in {', '.join(missing)}")
    if view.has_unreachable and view.unknown_nodes_with_slots:
        unreachable = member_names(m for m in view.members if m.report is None) or "a pod that is being recreated"
        return Wait("NodesMissing", f"{unreachable} cannot be removed: it is unreachable and still owns slots")
    return None


def _wait_for_agreement(view: ClusterView) -> Step | None:
    """Wait until the reports of all nodes agree. Gossip takes a second or two."""
    reported = {(m.id, m.myself.master, m.myself.slots) for m in view.active}
    for m in view.active:
        others = _known_ids(m)
        unknown = [o for o in view.active if o is not m and o.id not in others]
        if unknown:
            return Wait("Agreeing", f"{m.name} does not know {member_names(unknown)} yet", "Forming")
        assert m.report is not None
        table = [m.report.table[o.id] for o in view.active]
        if any(not entry.connected for entry in table):
            return Wait("Agreeing", f"{m.name} is not connected with all others yet", "Forming")
        if {(entry.id, entry.master, entry.slots) for entry in table} != reported:
            return Wait("Agreeing", f"{m.name} has not received the latest changes yet", "Scaling")
    return None


def _handle_lost_masters(view: ClusterView) -> Step | None:
    """Replace a master whose volume is lost.

    A replica takes over. Without a replica, the user decides."""
    for entry in view.unknown_nodes.values():
        if not entry.slots or not view.all_reachable:
            continue
        replicas = [m for m in view.replicas_of(entry.id) if not m.leaving] or view.replicas_of(entry.id)
        if replicas:
            return Failover(replicas[0], f"the volume of node {entry.id} is lost", lost=True)
        if entry.id in view.goal.abandoned_nodes:
            return Forget(_members_knowing(view, entry.id), entry.id)
        return Wait(
            "SlotsLost",
            f"node {entry.id} owned {len(entry.slots)} slots without a replica, and its volume is gone. If its keys "
            "cannot be recovered, accept the loss and serve the slots again without them: "
            f"kubectl annotate redisclusters NAME cache.example.com/give-up-node={entry.id}",
            "Failed",
        )
    return None


def _assign_roles(view: ClusterView) -> Step | None:
    """Assign slots to masters and replicas to masters."""
    if step := slots.resume_move(view):
        return step
    chosen = select_slot_owners(view)
    for m in chosen:
        if m.is_master:
            continue
        master = view.by_id.get(m.myself.master)
        if master is None or master in chosen or not master.myself.slots:
            return Reset(m, hard=False)
        if m.report is not None and m.report.in_sync:
            return Failover(m, f"{master.name} is leaving")
        return Wait("Synchronising", f"waiting until {m.name} is in sync with its master", "Scaling")
    return slots.assign_unowned_slots(view, chosen) or slots.next_move(view, chosen) or _assign_replicas(view, chosen)


def _assign_replicas(view: ClusterView, chosen: tuple[Member, ...]) -> Step | None:
    replica_counts = count_replicas(view.remaining)
    ids = {m.id for m in chosen}
    free = [m for m in view.remaining if m not in chosen and (m.is_master or m.myself.master not in ids)]
    pairs: list[tuple[Member, Member]] = []
    for m in free:
        master = min(chosen, key=lambda o: (replica_counts[o.id], o.node_name == m.node_name, o.ordinal))
        replica_counts[master.id] += 1
        pairs.append((m, master))
    if pairs:
        return Replicate(tuple(_spread_replicas(pairs)))
    fewest = min(chosen, key=lambda o: (replica_counts[o.id], o.ordinal))
    most = max(chosen, key=lambda o: (replica_counts[o.id], o.ordinal))
    if replica_counts[most.id] - replica_counts[fewest.id] < 2:
        return None
    spare = [m for m in view.replicas_of(most.id) if not m.leaving]
    return Replicate(((max(spare, key=lambda m: (m.node_name != fewest.node_name, m.ordinal)), fewest),))


def _spread_replicas(pairs: list[tuple[Member, Member]]) -> list[tuple[Member, Member]]:
    """Swap masters between pairs, so that no Kubernetes node has both copies."""
    spread = list(pairs)
    for index in range(len(spread)):
        m, master = spread[index]
        for other, (replica, other_master) in enumerate(spread):
            if m.node_name == master.node_name and m.node_name not in (replica.node_name, other_master.node_name):
                spread[index], spread[other] = (m, other_master), (replica, master)
                break
    return spread


def _forget_removed_nodes(view: ClusterView) -> Step | None:
    """Make all members forget nodes that have no pod. Otherwise gossip restores them."""
    for entry in view.unknown_nodes.values() if view.all_reachable else ():
        return Forget(_members_knowing(view, entry.id), entry.id)
    return None


def _members_knowing(view: ClusterView, node: str) -> tuple[Member, ...]:
    return tuple(m for m in view.active if node in _known_ids(m))


def _reset_leaving(view: ClusterView) -> Step | None:
    """Reset leaving nodes before their pods are removed."""
    return next((Reset(m, hard=True) for m in view.leaving), None)


def _scale_in(view: ClusterView) -> Step | None:
    return ScaleIn(view.goal.replicas) if view.goal.pods > view.goal.replicas else None


def _rolling_update(view: ClusterView) -> Step | None:
    """Replace one pod at a time, replicas first. A replica takes over before its master is replaced."""
    behind = [m for m in view.remaining if m.report is not None and not m.report.in_sync]
    for m in behind:
        if m.outdated:
            # A replica of an older series cannot read the replication stream of a newer master.
            return Replace(m)
        master = view.by_id.get(m.myself.master)
        if master is not None and m.report is not None and m.report.replicates_from != master.address:
            # Redis keeps the old address of the master if the new one arrives by gossip.
            return Replicate(((m, master),))
    if behind:
        return Wait(
            "Synchronising", f"waiting until {member_names(behind)} are in sync with their masters", "Updating"
        )
    not_serving = [m for m in view.remaining if m.report is not None and not m.report.serving]
    if not_serving:
        return Wait("NotServing", f"waiting until {member_names(not_serving)} serve clients again", "Updating")
    unready = [m for m in view.members if not m.ready]
    if unready:
        return Wait("PodsNotReady", f"waiting until {member_names(unready)} are ready", "Updating")
    old = sorted((m for m in view.remaining if m.outdated), key=lambda m: (m.is_master, -m.ordinal))
    if not old:
        return None
    replicas = view.replicas_of(old[0].id)
    if old[0].is_master and replicas:
        return Failover(replicas[-1], f"{old[0].name} is to be replaced", phase="Updating")
    return Replace(old[0])
