"""What somebody asks for by annotation: a switchover, or another instance in place of one."""

from __future__ import annotations

from steersman_databases.clusters import handover, rollout
from steersman_databases.clusters.observed import Observed
from steersman_databases.clusters.steps import (
    ChooseSwitchover,
    EndReplacement,
    EndSwitchover,
    RetireInstance,
    Step,
    SwitchOver,
)
from steersman_databases.engines.cluster import ClusterView

_BECAUSE = "it was asked for"
_NOBODY = "no replica may be promoted"
_NOT_THIS_ONE = (
    "it may not be promoted: it does not follow, has not all that was committed, its volume is full, or its server "
    "is newer than another of its group"
)
NOT_YET = frozenset({_NOBODY, _NOT_THIS_ONE})
"""Refusals of a switchover that another moment may not bring."""


def switch_over(cluster: ClusterView, observed: Observed) -> Step | None:
    """Begins what is asked for, and ends it when it has happened or cannot."""
    wanted = cluster.requests.switchover
    if not wanted:
        return None
    if wanted == "any":
        to = rollout.successors(cluster, observed)
        return ChooseSwitchover(to[0].number) if to else EndSwitchover(wanted, _NOBODY)
    number = cluster.names.number(wanted)
    if number is None or observed.instance(number) is None:
        return EndSwitchover(wanted, "there is no instance of this name")
    if number == observed.members.leader:
        return EndSwitchover(wanted)
    if handover.has_just_failed(observed, number):
        return EndSwitchover(wanted, handover.REFUSED)
    if not any(i.number == number for i in rollout.promotable(cluster, observed)):
        return EndSwitchover(wanted, _NOT_THIS_ONE)
    return SwitchOver(number, _BECAUSE)


def replace(cluster: ClusterView, observed: Observed) -> Step | None:
    """Takes a replica away, whatever it is like, so that another is made. There is a primary when this is asked.

    As with what failed, one at a time: while another does not follow, one that does stays.
    """
    wanted, primary = cluster.requests.replace, observed.members.primary
    if not wanted or primary is None:
        return None
    number = cluster.names.number(wanted)
    instance = None if number is None else observed.instance(number)
    if number is None or instance is None:
        was_there = number is not None and number < observed.next_number
        return EndReplacement(wanted, "" if was_there else "there is no instance of this name")
    if number == observed.members.leader:
        return EndReplacement(wanted, "it is the primary; make another instance that first")
    others = [i for i in observed.replicas() if i.number != number and not i.fenced]
    good = instance.follows(primary)
    copies = any(i.member is not None and i.member.synchronous for i in others)
    if good and not copies and cluster.synchronous.mode != "Off":
        return EndReplacement(wanted, "it is the only one that has all that was committed; add another first")
    if len(observed.instances) < cluster.instances or (good and not all(i.follows(primary) for i in others)):
        return None
    return RetireInstance(number, _BECAUSE, failed=True)
