"""More instances, or fewer."""

from __future__ import annotations

from steersman_databases.clusters import rollout
from steersman_databases.clusters.handover import hand_over
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.clusters.steps import CreateInstance, RetireInstance, Step, Wait
from steersman_databases.engines.cluster import ClusterView

_BECAUSE = "spec.instances is smaller"


def out(cluster: ClusterView, observed: Observed) -> Step | None:
    """Makes an instance where there are too few. Nobody is disturbed: it copies itself from those that are there."""
    return CreateInstance(observed.next_number) if len(observed.instances) < cluster.instances else None


def is_surplus(cluster: ClusterView, observed: Observed, instance: Instance) -> bool:
    """Whether it is what would be taken away next, and so need not be well."""
    return len(observed.instances) > cluster.instances and instance == _last(observed)


def reduce(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """Takes one away where there are too many: what serves nobody first, else the newest that is not the primary."""
    if len(observed.instances) <= cluster.instances:
        return None
    last = _last(observed)
    if last.number != observed.members.leader:
        return RetireInstance(last.number, _BECAUSE)
    # Only the primary is left to go, which cannot be while there are replicas.
    to = rollout.successors(cluster, observed)
    if not to:
        return Wait("Degraded", "no replica may become the primary")
    return hand_over(cluster, observed, to, _BECAUSE)


def _last(observed: Observed) -> Instance:
    primary = observed.members.primary
    candidates = [i for i in observed.instances if i.number != observed.members.leader] or list(observed.instances)
    synchronous = [i for i in candidates if i.member is not None and i.member.synchronous]
    if len(synchronous) == 1 and len(candidates) > 1:
        # The only copy that has all: the next synchronous one must be there before it goes.
        candidates.remove(synchronous[0])
    unwell = [i for i in candidates if primary is None or not i.follows(primary)]
    return max(unwell or candidates, key=lambda i: i.number)
