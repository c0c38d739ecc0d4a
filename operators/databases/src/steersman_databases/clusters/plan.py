"""The next step of a cluster: one at a time, derived from what is there.

What comes first is what a person asked for (fencing, hibernation), then what is broken, then what differs. No step
that disturbs anything is taken before all that the former disturbed is well again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from steersman_databases.clusters import failing, handover, parameters, requested, rollout, scale, upgrade
from steersman_databases.clusters.observed import OUT_OF_SERVICE, Instance, Observed
from steersman_databases.clusters.steps import (
    BeginAnew,
    CreateInstance,
    EndSwitchover,
    KeepInstance,
    RenewPod,
    RetireInstance,
    StartInstance,
    Step,
    StopInstance,
    Wait,
)
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.topology import MemberState

_FORMER_PRIMARY_STARTS_WITHIN = timedelta(minutes=5)
# Longer than a member takes from its word that it makes the data to saying that it does.
_BEGINS_WITHIN = timedelta(minutes=1)
# Longer than a member that is gone is still counted.
_LEAVES_WITHIN = timedelta(minutes=1)
_DOWN: Sequence[MemberState] = ("Crashed", "Offline", "StartFailed", "Stopped")


def next_step(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """What to do now, what is waited for, or None: all is as declared.

    Who was being taken away when that was cut off goes on going only where it would be taken away now: meanwhile it
    may lead, or be the only one that has all that was committed.
    """
    step = _next(cluster, observed)
    goes = step.instance if isinstance(step, RetireInstance) else None
    stays = next((i for i in observed.instances if i.leaves and i.number != goes), None)
    return step if stays is None else KeepInstance(stays.number)


def _next(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    observed, former = upgrade.apart(cluster, observed)
    if former and observed.primary is not None:
        return RetireInstance(former[0].number, f"the data are PostgreSQL {cluster.version}'s now")
    for decide in (
        _begin,
        _hibernate,
        _fence,
        failing.renew_stuck,
        failing.renew_grown,
        failing.renew_estranged,
        _wake,
        _primary,
        requested.replace,
        failing.replace,
        scale.out,
        _let_in,
        _asked,
        _whole,
        failing.leave_lost,
        scale.reduce,
        _room,
        parameters.restart,
        rollout.renew,
        requested.switch_over,
        _rest,
    ):
        step = decide(cluster, observed)
        if step is not None:
            return step
    return None


def _begin(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """The first instance is alone until it has made the data. Where all data are gone, all begins anew."""
    if not observed.instances:
        return None if cluster.hibernated else CreateInstance(observed.next_number)
    if all(i.data is None for i in observed.instances):
        return RetireInstance(observed.instances[0].number, "all volumes are gone", failed=True)
    return None


def _hibernate(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    if not cluster.hibernated:
        return None
    return stop(cluster, observed, "Hibernating") or Wait("Hibernated", "all instances are stopped")


def stop(
    cluster: ClusterView, observed: Observed, because: Literal["Hibernating", "Upgrading"]
) -> Step | Wait | None:
    """Stops all, the primary last, so that it has everything. None: no pod is left.

    A pod that cannot end, on a lost node, keeps nobody from hibernating. Before an upgrade the primary serves until
    that node is back or given up: nothing could be upgraded meanwhile.
    """
    primary = observed.members.leader
    for instance in observed.instances:
        if instance.number != primary and not instance.stopped:
            return StopInstance(instance.number)
    running = [i for i in observed.instances if i.number != primary and i.pod is not None]
    overdue = [i for i in running if _is_overdue(i, observed)]
    if running and (because == "Upgrading" or len(overdue) < len(running)):
        return Wait(because, f"{_to_stop(cluster, observed, running)}, before the primary does")
    for instance in observed.instances:
        if not instance.stopped:
            return StopInstance(instance.number)
    left = [i for i in observed.instances if i.pod is not None]
    return Wait(because, _to_stop(cluster, observed, left)) if left else None


def _to_stop(cluster: ClusterView, observed: Observed, running: Sequence[Instance]) -> str:
    """Who is waited for, and what to do about pods that do not end by themselves."""
    names = ", ".join(cluster.names.instance(i.number) for i in running)
    overdue = ", ".join(i.pod.metadata.name for i in running if i.pod is not None and _is_overdue(i, observed))
    way_out = f" (if the node of pod {overdue} is lost, give it the taint {OUT_OF_SERVICE})" if overdue else ""
    return f"waiting for {names} to stop{way_out}"


def _fence(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """The primary is the last to be fenced, or it would be handed over to one that is fenced next."""
    wrong = [
        i
        for i in observed.instances
        if i.pod is not None and not i.pod_ends and i.fenced != cluster.requests.fences(i.number)
    ]
    if to_fence := [i for i in wrong if not i.fenced]:
        last = observed.members.leader
        instance = next((i for i in to_fence if i.number != last), to_fence[0])
        stopping = [i for i in observed.replicas() if i.pod_ends and not i.fenced and not _is_overdue(i, observed)]
        if instance.number == last and stopping:
            return Wait("Fenced", f"waiting for {cluster.names.instance(stopping[0].number)} to stop")
        return RenewPod(instance.number, "it is to be fenced")
    if not wrong:
        return None
    first = _first(cluster, observed, wrong)
    return first if isinstance(first, Wait) else RenewPod(first.number, "it is not fenced any more")


def _is_overdue(instance: Instance, observed: Observed) -> bool:
    """Whether its pod should have ended by now: its node is lost, perhaps."""
    end = None if instance.pod is None else instance.pod.metadata.deletion_timestamp
    return end is not None and observed.now > end


def _wake(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    idle = [i for i in observed.instances if i.statefulset is None or i.stopped]
    if not idle:
        return None
    first = _first(cluster, observed, idle)
    return first if isinstance(first, Wait) else _start(first)


def _first(cluster: ClusterView, observed: Observed, idle: Sequence[Instance]) -> Instance | Wait:
    """Who was the primary starts first: it has all that was committed, and nobody else needs to be asked."""
    number = observed.members.last_leader
    former = None if number is None else observed.instance(number)
    if former is None or observed.primary is not None or _had_its_time(former, observed):
        return idle[0]
    if cluster.begins_together and former not in idle:
        return idle[0]
    if cluster.requests.fences(former.number):
        # Somebody wants to go on without it.
        return idle[0]
    if former in idle:
        return former
    return Wait("InstanceNotReady", f"waiting for the former primary {cluster.names.instance(former.number)}")


def _start(instance: Instance) -> Step:
    # Without a StatefulSet: adopted, or cut off between the claim and it, or somebody deleted it.
    return StartInstance(instance.number) if instance.statefulset else CreateInstance(instance.number)


def _had_its_time(instance: Instance, observed: Observed) -> bool:
    return instance.unready_for(observed.now) > _FORMER_PRIMARY_STARTS_WITHIN


def _primary(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """Without a primary nothing is disturbed: that somebody becomes it is the members' business."""
    if observed.primary is not None:
        return None
    if all(i.fenced for i in observed.instances):
        return Wait("Fenced", "all instances are fenced")
    if not observed.members.initialized:
        first = observed.instances[0]
        if _was_cut_off(first, observed):
            return BeginAnew(first.number)
        return Wait("Creating", f"waiting for instance {cluster.names.instance(first.number)}")
    return Wait("NoPrimary", "waiting for a primary")


def _was_cut_off(first: Instance, observed: Observed) -> bool:
    """Whether somebody said that it makes the data, and nobody does: its pod was killed, or heard no answer.

    All members wait then, this one included: nobody takes that word back.
    """
    members = observed.members
    idle = bool(members.members) and all(m.state == "Stopped" for m in members.members)
    return members.begun and idle and first.unready_for(observed.now) > _BEGINS_WITHIN


def _let_in(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """Replicas that cannot follow before a parameter is raised would wait for the restart that waits for them."""
    unwell = _unwell(cluster, observed)
    if not unwell or not all(parameters.keeps_out(observed, i) for i in unwell) or _hands_over(observed):
        return None
    if rollout.lacks_standbys(cluster, observed) or any(i.without_room for i in observed.instances):
        return None
    return parameters.restart(cluster, observed)


def _asked(cluster: ClusterView, observed: Observed) -> Step | None:
    """A switchover that is asked for while somebody is not well, and will not be soon: who asks may not want to wait.

    Where none may be promoted yet, that may be because of who is not well, and the request stands.
    """
    unwell = _unwell(cluster, observed)
    if not unwell or _hands_over(observed) or not all(_stays_away(i, observed) for i in unwell):
        return None
    if parameters.is_lowering(observed):
        return None
    step = requested.switch_over(cluster, observed)
    return None if isinstance(step, EndSwitchover) and step.refused in requested.NOT_YET else step


def _stays_away(instance: Instance, observed: Observed) -> bool:
    """Whether it takes no part and will not soon. While a member joins or leaves, MySQL's group appoints nobody."""
    state = None if instance.member is None else instance.member.state
    if state == "Cloning":
        return True
    return state in (None, *_DOWN) and instance.unready_for(observed.now) > _LEAVES_WITHIN


def _hands_over(observed: Observed) -> bool:
    return observed.members.switchover is not None or handover.is_awaited(observed)


def _unwell(cluster: ClusterView, observed: Observed) -> Sequence[Instance]:
    """Those that should serve and do not."""
    primary, going = observed.members.primary, scale.surplus(cluster, observed)
    assert primary is not None
    wanted = [i for i in observed.instances if not cluster.requests.fences(i.number) and i not in going]
    return [i for i in wanted if not i.follows(primary)]


def _whole(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """What follows disturbs somebody, and only one may be disturbed at a time."""
    if unwell := _unwell(cluster, observed):
        waits = cluster.requests.switchover and not _hands_over(observed)
        words = "; the switchover that is asked for waits for it" if waits else ""
        return Wait("InstanceNotReady", f"{_absent(cluster, unwell[0])}{words}")
    if _hands_over(observed):
        return Wait("RollingOut", "a switchover is under way")
    if rollout.lacks_standbys(cluster, observed):
        return Wait("NoSynchronousStandby", "waiting for a standby to become synchronous")
    return None


def _room(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """A server whose volume is full may not come up again: it is stopped only where that, or somebody, wants it."""
    full = [cluster.names.instance(i.number) for i in observed.instances if i.without_room]
    if not full:
        return None
    return requested.switch_over(cluster, observed) or Wait("DiskFull", f"no room is left at {', '.join(full)}")


def _rest(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """What is fenced serves nobody, and so is not as declared."""
    fenced = [cluster.names.instance(i.number) for i in observed.instances if i.fenced]
    if not fenced:
        return None
    beside = len(observed.instances) > cluster.instances
    stays = f", and stays beside the {cluster.instances} that spec.instances wants" if beside else ""
    return Wait("Fenced", f"{', '.join(fenced)} {'is' if len(fenced) == 1 else 'are'} fenced{stays}")


def _absent(cluster: ClusterView, instance: Instance) -> str:
    name, member = cluster.names.instance(instance.number), instance.member
    state = "has not started" if member is None else f"is {member.state}"
    said = f"{name} {state}"
    if member is not None and member.timeline:
        said = f"instance {said} on timeline {member.timeline}"
    return f"{said}: {instance.known}" if instance.known else said
