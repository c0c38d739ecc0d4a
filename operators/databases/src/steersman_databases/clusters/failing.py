"""Instances that do not come back by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from steersman_databases.clusters import handover, rollout
from steersman_databases.clusters.observed import Instance, Observed, is_lost
from steersman_databases.clusters.steps import RenewPod, RetireInstance, Step, Wait
from steersman_databases.clusters.trouble import is_stuck
from steersman_databases.engines.cluster import ClusterView

_STUCK_AFTER = timedelta(minutes=5)
_BROKEN_AFTER = timedelta(minutes=5)
# Where file systems grow while they are used, their growth is pending for a moment too.
_GROWN_AFTER = timedelta(minutes=1)
_UNREADABLE = 65
"""What a server's container ends with where its data cannot be read: EX_DATAERR of sysexits.h."""


def renew_stuck(cluster: ClusterView, observed: Observed) -> Step | None:
    """A pod that serves nobody and was made for another declaration: what is declared now may be what helps it."""
    for instance in observed.instances:
        if instance.pod is None or instance.pod_ready or instance.is_unadopted:
            continue
        outdated = rollout.is_outdated(cluster, observed, instance)
        if not outdated and not rollout.is_pulled_otherwise(cluster, instance):
            continue
        if instance.member is not None and instance.member.state == "Cloning":
            # A copy of much data takes hours, and would begin anew.
            continue
        if is_stuck(instance.pod) or instance.unready_for(observed.now) > _STUCK_AFTER:
            return RenewPod(instance.number, "it does not start, and something else is declared now")
    return None


def renew_grown(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """Pods that are full, and whose file system grows with a new one: but for a primary that serves, as it may go on.

    Who has most to say comes first.
    """
    serving, members = observed.members.primary, observed.members
    led = members.last_leader
    grown = [
        i
        for i in observed.instances
        if i.member is not None and i.member.full and i.missed_growth(observed.now, _GROWN_AFTER)
        if i.member != serving and _may_renew(cluster, i)
    ]
    grown.sort(key=lambda i: i.number != led)
    if grown and grown[0].number == led and (heirs := _heirs(cluster, observed, grown[0])):
        pod = cluster.names.pod(grown[0].number).name
        return Wait(
            "DiskFull",
            f"a new pod in place of {pod} would use its larger volume, but without synchronous replication "
            f"{', '.join(heirs)} may take over meanwhile and lack what was committed last: delete {pod} to accept it",
        )
    return _renew_first(cluster, observed, grown, "its volume is full, and has become larger", "DiskFull")


def _heirs(cluster: ClusterView, observed: Observed, led: Instance) -> Sequence[str]:
    """Who may take over from ``led`` without all that was committed."""
    if cluster.synchronous.mode != "Off":
        return ()
    others = (i for i in observed.instances if i != led and i.pod_ready and not i.fenced)
    return [cluster.names.instance(i.number) for i in others if i.member is not None and not i.member.full]


def renew_estranged(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """Pods that know nobody of those who sign now: all Secrets with certificates were lost at once.

    A replica that was renewed follows once the primary's server reads its files again, which `ClusterView.estranged`
    has it do. The primary comes last, and only when all follow: whoever takes over must have what was committed, and
    without synchronous replication the members would let one do so that lacks a megabyte. Who does not follow is
    everybody's business first.
    """
    leader, primary = observed.members.leader, observed.members.primary
    estranged = [i for i in observed.instances if i.estranged and not i.without_room and _may_renew(cluster, i)]
    estranged.sort(key=lambda i: i.number == leader)
    if estranged and estranged[0].number == leader:
        others = [i for i in observed.replicas() if not i.fenced]
        if primary is None or not all(i.follows(primary) for i in others):
            return None
    return _renew_first(
        cluster, observed, estranged, "it trusts only authorities whose Secrets are lost", "RollingOut"
    )


def _renew_first(
    cluster: ClusterView,
    observed: Observed,
    those: Sequence[Instance],
    because: str,
    reason: Literal["DiskFull", "RollingOut"],
) -> Step | Wait | None:
    """Renews the first of ``those``, and nobody before the one that starts at the moment is there."""
    if not those:
        return None
    starting = next((i for i in observed.instances if i not in those and _starts(i, observed)), None)
    if starting is not None:
        return Wait(reason, f"waiting for instance {cluster.names.instance(starting.number)} to start")
    return RenewPod(those[0].number, because)


def _may_renew(cluster: ClusterView, instance: Instance) -> bool:
    """Whether its pod may be made anew: a StatefulSet is known to make another in its place, and it is not fenced."""
    return not cluster.requests.fences(instance.number) and not instance.is_unadopted


def _starts(instance: Instance, observed: Observed) -> bool:
    """Whether its pod is on its way, and may be there soon."""
    if instance.statefulset is None or instance.stopped or instance.pod_ready:
        return False
    return instance.unready_for(observed.now) <= _STUCK_AFTER


def replace(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """Takes a failed replica away, so that another is made. Only with a primary, and never the primary itself."""
    if not cluster.replaces_failed or observed.primary is None or not observed.primary.pod_ready:
        return None
    if len(observed.instances) < cluster.instances:
        # Another one is being replaced at the moment.
        return None
    for instance in observed.replicas():
        others = (i for i in observed.replicas() if i.number != instance.number)
        if any(i.member is None and not failure(i, observed) for i in others):
            # One at a time: somebody copies the primary's data already.
            continue
        if (because := failure(instance, observed)) and not cluster.requests.fences(instance.number):
            return RetireInstance(instance.number, because, failed=True)
    return None


def leave_lost(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """A primary whose volume's claim goes serves as long as its pod runs: it hands over, and is replaced then."""
    primary = observed.primary
    if not cluster.replaces_failed or primary is None or not is_lost(primary):
        return None
    if not (to := rollout.successors(cluster, observed)):
        return None
    return handover.hand_over(cluster, observed, to, "the volume of its primary is gone")


def failure(instance: Instance, observed: Observed) -> str:
    """Why an instance will not come back by itself, the end of a sentence; empty where it may."""
    if is_lost(instance):
        return "its volume is gone"
    if instance.home_lost:
        return "its node is gone"
    member = instance.member
    if instance.outpaced and member is not None and not (member.synchronous or member.full):
        return instance.known
    patient = instance.unready_for(observed.now) > _BROKEN_AFTER
    return "its data are broken" if patient and _is_broken(instance, observed) else ""


def strays(instance: Instance, observed: Observed) -> bool:
    """Whether a replica has served without following a primary that serves, for longer than it may take."""
    if observed.primary is None or not observed.primary.pod_ready or instance.fenced or instance.member is None:
        return False
    serves = instance.member.role == "Replica" and instance.member.state in ("Running", "Streaming")
    return serves and not instance.member.diverged and instance.unready_for(observed.now) > _BROKEN_AFTER


def _is_broken(instance: Instance, observed: Observed) -> bool:
    """Whether its data are what it does not start with, and a copy would."""
    member, primary = instance.member, observed.primary
    if member is not None and member.synchronous:
        # The primary counts on what it has; where it has nothing any more, that ends by itself.
        return False
    if instance.exit_code == _UNREADABLE:
        return True
    # A copy would be on a volume of the same size. What a person is to decide about is not thrown away for one.
    if member is None or member.full or member.apart:
        return False
    # What was declared since the primary's start may be what it fails with, or the parameters that all read as they
    # start, and a copy would fail as well: nothing is thrown away before a server that runs has read all of them.
    alike = primary is not None and instance.hash == primary.hash
    return member.diverged or (member.state == "StartFailed" and alike and observed.misread is False)
