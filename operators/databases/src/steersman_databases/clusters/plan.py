"""The next step of a cluster: one at a time, derived from what is there.

What comes first is what a person asked for (fencing, hibernation), then what is broken, then what differs. No step
that disturbs anything is taken before all that the former disturbed is well again.
"""

from __future__ import annotations

from datetime import timedelta

from steersman_databases.clusters import failing, parameters, requested, rollout, scale
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.clusters.steps import (
    CreateInstance,
    RenewPod,
    RetireInstance,
    StartInstance,
    Step,
    StopInstance,
    Wait,
)
from steersman_databases.engines.cluster import ClusterView

_FORMER_PRIMARY_STARTS_WITHIN = timedelta(minutes=5)


def next_step(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """What to do now, what is waited for, or None: all is as declared."""
    for decide in (
        _begin,
        _hibernate,
        _fence,
        failing.renew_stuck,
        _wake,
        _primary,
        failing.replace,
        scale.out,
        _whole,
        scale.reduce,
        parameters.restart,
        rollout.renew,
        requested.switch_over,
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
    primary = observed.members.leader
    for instance in observed.instances:
        if instance.number != primary and not instance.stopped:
            return StopInstance(instance.number)
    if any(i.pod is not None for i in observed.instances if i.number != primary):
        return Wait("Hibernated", "waiting for the replicas to stop")
    for instance in observed.instances:
        if not instance.stopped:
            return StopInstance(instance.number)
    running = next((i for i in observed.instances if i.pod is not None), None)
    if running is not None:
        return Wait("Hibernated", f"waiting for instance {cluster.names.instance(running.number)} to stop")
    return Wait("Hibernated", "all instances are stopped")


def _fence(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    for instance in observed.instances:
        wanted = cluster.requests.fences(instance.number)
        if instance.pod is not None and not instance.pod_ends and instance.fenced != wanted:
            return RenewPod(instance.number, "it is to be fenced" if wanted else "it is not fenced any more")
    return None


def _wake(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """Who was the primary starts first: it has all that was committed, and nobody else needs to be asked."""
    idle = [i for i in observed.instances if i.statefulset is None or i.stopped]
    if not idle:
        return None
    members = observed.members
    number = members.leader if members.leader is not None else members.former_leader
    former = None if number is None else observed.instance(number)
    if former is None or observed.primary is not None or _had_its_time(former, observed):
        return _start(idle[0])
    if former in idle:
        return _start(former)
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
        return Wait("Creating", f"waiting for instance {cluster.names.instance(observed.instances[0].number)}")
    return Wait("NoPrimary", "waiting for a primary")


def _whole(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """What follows disturbs somebody, and only one may be disturbed at a time."""
    primary = observed.members.primary
    assert primary is not None
    for instance in observed.instances:
        if cluster.requests.fences(instance.number) or scale.is_surplus(cluster, observed, instance):
            continue
        if not instance.follows(primary):
            return Wait("InstanceNotReady", _absent(cluster, instance))
    if observed.members.switchover is not None:
        return Wait("RollingOut", "a switchover is under way")
    if rollout.lacks_standbys(cluster, observed):
        return Wait("NoSynchronousStandby", "waiting for a standby to become synchronous")
    return None


def _absent(cluster: ClusterView, instance: Instance) -> str:
    name, member = cluster.names.instance(instance.number), instance.member
    state = "has not started" if member is None else f"is {member.state}"
    return (
        f"instance {name} {state} on timeline {member.timeline}" if member and member.timeline else f"{name} {state}"
    )
