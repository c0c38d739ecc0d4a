"""A switchover that somebody asks for by annotation."""

from __future__ import annotations

from steersman_databases.clusters import handover, rollout
from steersman_databases.clusters.observed import Observed
from steersman_databases.clusters.steps import ChooseSwitchover, EndSwitchover, Step, SwitchOver
from steersman_databases.engines.cluster import ClusterView

_BECAUSE = "it was asked for"


def switch_over(cluster: ClusterView, observed: Observed) -> Step | None:
    """Begins what is asked for, and ends it when it has happened or cannot."""
    wanted = cluster.requests.switchover
    if not wanted:
        return None
    if wanted == "any":
        to = rollout.successors(cluster, observed)
        return ChooseSwitchover(to[0].number) if to else EndSwitchover(wanted, "no replica may be promoted")
    number = cluster.names.number(wanted)
    if number is None or observed.instance(number) is None:
        return EndSwitchover(wanted, "there is no instance of this name")
    if number == observed.members.leader:
        return EndSwitchover(wanted)
    if handover.has_just_failed(observed, number):
        return EndSwitchover(wanted, handover.REFUSED)
    if not any(i.number == number for i in rollout.promotable(cluster, observed)):
        return EndSwitchover(
            wanted,
            "it may not be promoted: it does not follow, has not all that was committed, or its volume is full",
        )
    return SwitchOver(number, _BECAUSE)
