"""More instances, or fewer."""

from __future__ import annotations

from collections.abc import Sequence

from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.clusters.steps import CreateInstance, RetireInstance, Step
from steersman_databases.engines.cluster import ClusterView


def out(cluster: ClusterView, observed: Observed) -> Step | None:
    """Makes an instance where there are too few. Nobody is disturbed: it copies itself from those that are there."""
    return CreateInstance(observed.next_number) if len(observed.instances) < cluster.instances else None


def surplus(cluster: ClusterView, observed: Observed) -> Sequence[Instance]:
    """What is taken away, one after another in this order, and so need not be well.

    What serves nobody goes first, else the newest that is not the primary. What is fenced is looked at by somebody,
    who wants its data: it stays beside those that are declared until it is fenced no more.
    """
    left = [i for i in observed.instances if not i.fenced and not cluster.requests.fences(i.number)]
    going: list[Instance] = []
    while len(left) > cluster.instances:
        going.append(_last(left, observed))
        left.remove(going[-1])
    return going


def reduce(cluster: ClusterView, observed: Observed) -> Step | None:
    """Takes one away where there are too many."""
    going = surplus(cluster, observed)
    return RetireInstance(going[0].number, "spec.instances is smaller") if going else None


def _last(left: Sequence[Instance], observed: Observed) -> Instance:
    primary = observed.members.primary
    candidates = [i for i in left if i.number != observed.members.leader]
    synchronous = [i for i in candidates if i.member is not None and i.member.synchronous]
    if len(synchronous) == 1 and len(candidates) > 1:
        # The only copy that has all: the next synchronous one must be there before it goes.
        candidates.remove(synchronous[0])
    unwell = [i for i in candidates if primary is None or not i.follows(primary)]
    return max(unwell or candidates, key=lambda i: i.number)
