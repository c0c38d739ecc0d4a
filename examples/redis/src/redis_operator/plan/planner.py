"""The next step, by rules of which the first that finds something to do decides."""

from __future__ import annotations

from collections.abc import Sequence

from redis_operator.plan import slots
from redis_operator.plan.members import Goal, Member, View, count_replicas
from redis_operator.plan.owners import owners
from redis_operator.plan.steps import (
    Done,
    Failover,
    Forget,
    Meet,
    Replace,
    Replicate,
    Reset,
    Shrink,
    Step,
    Wait,
    names,
)


def next_step(goal: Goal, members: Sequence[Member]) -> Step:
    """What to do next, so that the cluster gets nearer to ``goal`` and no key is lost."""
    view = View(goal, tuple(sorted(members, key=lambda m: m.ordinal)))
    for rule in (_broken, _introduction, _absent, _agreement, _lost, _shape, _leaving, _gone, _surplus, _update):
        if step := rule(view):
            return step
    return Done()


def _broken(view: View) -> Step | None:
    """What does not run as it is need not be spared, so that a mistake in the spec can be taken back."""
    for m in view.members:
        if m.outdated and (not m.ready or (m.rejects and all(other.ready for other in view.members))):
            return Replace(m)
    return None


def _introduction(view: View) -> Step | None:
    """All get to know the node that knows most of the cluster; the rest is gossip."""
    if not view.staying:
        return None
    centre = max(view.active, key=_weight)
    assert centre.report is not None
    table = centre.report.table
    unknown = [
        m
        for m in view.active
        if m is not centre and (m.id not in table or table[m.id].address != m.address or centre.id not in _others(m))
    ]
    return Meet(centre, tuple(unknown)) if unknown else None


def _weight(member: Member) -> tuple[int, int, int]:
    assert member.report is not None
    known = sum(len(entry.slots) for entry in member.report.table.values())
    return known, len(member.report.others), -member.ordinal


def _others(member: Member) -> set[str]:
    return set(member.report.others) if member.report is not None else set()


def _absent(view: View) -> Step | None:
    """Nothing is changed while a node does not answer: what it has may be all that there is."""
    missing = [m.name for m in view.members if m.report is None and not m.leaving]
    there = sum(not m.leaving for m in view.members)
    if there < view.goal.replicas:
        return Wait("PodsMissing", f"waiting for {view.goal.replicas - there} pods to be created")
    if missing:
        return Wait("NodesMissing", f"waiting for Redis in {', '.join(missing)}")
    if view.away and view.needed:
        away = names(m for m in view.members if m.report is None) or "a pod that is made again"
        return Wait("NodesMissing", f"{away} cannot go before its slots have moved, and does not answer")
    return None


def _agreement(view: View) -> Step | None:
    """Waits until what one node says all say: gossip takes a second or two."""
    said = {(m.id, m.me.master, m.me.slots) for m in view.active}
    for m in view.active:
        others = _others(m)
        unknown = [o for o in view.active if o is not m and o.id not in others]
        if unknown:
            return Wait("Agreeing", f"{m.name} does not know {names(unknown)} yet", "Forming")
        assert m.report is not None
        table = [m.report.table[o.id] for o in view.active]
        if any(not entry.connected for entry in table):
            return Wait("Agreeing", f"{m.name} is not connected with all others yet", "Forming")
        if {(entry.id, entry.master, entry.slots) for entry in table} != said:
            return Wait("Agreeing", f"{m.name} has not heard of the latest changes yet", "Scaling")
    return None


def _lost(view: View) -> Step | None:
    """A master that will never come back: a replica takes its place, or the user decides."""
    for entry in view.strangers.values():
        if not entry.slots or not view.complete:
            continue
        replicas = [m for m in view.replicas_of(entry.id) if not m.leaving] or view.replicas_of(entry.id)
        if replicas:
            return Failover(replicas[0], f"the volume of node {entry.id} is lost", lost=True)
        if entry.id in view.goal.given_up:
            return Forget(_knowing(view, entry.id), entry.id)
        return Wait(
            "SlotsLost",
            f"node {entry.id} had {len(entry.slots)} slots and no replica, and its volume is gone. If its keys are "
            "lost for good, have the slots served anew, empty: "
            f"kubectl annotate redisclusters NAME cache.example.com/give-up-node={entry.id}",
            "Failed",
        )
    return None


def _shape(view: View) -> Step | None:
    """Who is master of which slots, and whose replica everybody else is."""
    if step := slots.unfinished(view):
        return step
    chosen = owners(view)
    for m in chosen:
        if m.is_master:
            continue
        master = view.by_id.get(m.me.master)
        if master is None or master in chosen or not master.me.slots:
            return Reset(m, hard=False)
        if m.report is not None and m.report.in_sync:
            return Failover(m, f"{master.name} is to go")
        return Wait("Synchronising", f"waiting until {m.name} has what its master has", "Scaling")
    return slots.assignment(view, chosen) or slots.move(view, chosen) or _replication(view, chosen)


def _replication(view: View, chosen: tuple[Member, ...]) -> Step | None:
    having = count_replicas(view.staying)
    ids = {m.id for m in chosen}
    free = [m for m in view.staying if m not in chosen and (m.is_master or m.me.master not in ids)]
    pairs: list[tuple[Member, Member]] = []
    for m in free:
        master = min(chosen, key=lambda o: (having[o.id], o.place == m.place, o.ordinal))
        having[master.id] += 1
        pairs.append((m, master))
    if pairs:
        return Replicate(tuple(_apart(pairs)))
    poor = min(chosen, key=lambda o: (having[o.id], o.ordinal))
    rich = max(chosen, key=lambda o: (having[o.id], o.ordinal))
    if having[rich.id] - having[poor.id] < 2:
        return None
    spare = [m for m in view.replicas_of(rich.id) if not m.leaving]
    return Replicate(((max(spare, key=lambda m: (m.place != poor.place, m.ordinal)), poor),))


def _apart(pairs: list[tuple[Member, Member]]) -> list[tuple[Member, Member]]:
    """Pairs that share a place exchange masters with pairs of other places: one machine has not both copies."""
    found = list(pairs)
    for at in range(len(found)):
        m, master = found[at]
        for other, (replica, its) in enumerate(found):
            if m.place == master.place and m.place not in (replica.place, its.place):
                found[at], found[other] = (m, its), (replica, master)
                break
    return found


def _gone(view: View) -> Step | None:
    """Nodes without slots of which there is no pod are forgotten by all, or gossip would bring them back."""
    for entry in view.strangers.values() if view.complete else ():
        return Forget(_knowing(view, entry.id), entry.id)
    return None


def _knowing(view: View, node: str) -> tuple[Member, ...]:
    return tuple(m for m in view.active if node in _others(m))


def _leaving(view: View) -> Step | None:
    """Nodes that will go leave the cluster first, so that nothing of it goes with them."""
    return next((Reset(m, hard=True) for m in view.leaving), None)


def _surplus(view: View) -> Step | None:
    return Shrink(view.goal.replicas) if view.goal.pods > view.goal.replicas else None


def _update(view: View) -> Step | None:
    """One pod at a time, replicas first; a master only once a replica has taken its place."""
    behind = [m for m in view.staying if m.report is not None and not m.report.in_sync]
    for m in behind:
        if m.outdated:
            # An older series cannot read what a newer master sends: it would never catch up.
            return Replace(m)
        master = view.by_id.get(m.me.master)
        if master is not None and m.report is not None and m.report.follows != master.address:
            # Redis does not look for its master elsewhere where gossip told it that this one has moved.
            return Replicate(((m, master),))
    if behind:
        return Wait("Synchronising", f"waiting until {names(behind)} have what their masters have", "Updating")
    silent = [m for m in view.staying if m.report is not None and not m.report.serving]
    if silent:
        return Wait("NotServing", f"waiting until {names(silent)} serve clients again", "Updating")
    unready = [m for m in view.members if not m.ready]
    if unready:
        return Wait("PodsNotReady", f"waiting until {names(unready)} are ready", "Updating")
    old = sorted((m for m in view.staying if m.outdated), key=lambda m: (m.is_master, -m.ordinal))
    if not old:
        return None
    replicas = view.replicas_of(old[0].id)
    if old[0].is_master and replicas:
        return Failover(replicas[-1], f"{old[0].name} is to be replaced", phase="Updating")
    return Replace(old[0])
