"""Scale a cluster up and down."""

from __future__ import annotations

from collections.abc import Sequence

from steersman_databases.cluster.actions import Action, CreateInstance, RemoveInstance
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.cluster_engine import DeclaredCluster


def scale_up(cluster: DeclaredCluster, state: ClusterState) -> Action | None:
    """Create a missing instance. It copies its data from others and interrupts none."""
    return CreateInstance(state.next_ordinal) if len(state.instances) < cluster.instances else None


def surplus(cluster: DeclaredCluster, state: ClusterState) -> Sequence[Instance]:
    """Instances to remove, in this order. They need not be healthy.

    Instances that do not serve come first, then the newest that is not the primary. A fenced instance stays in
    addition
    to the declared ones until it is unfenced, since a user needs its data.
    """
    remaining = [i for i in state.instances if not i.fenced and not cluster.requests.is_fenced(i.ordinal)]
    removed: list[Instance] = []
    while len(remaining) > cluster.instances:
        removed.append(_last_to_keep(remaining, state))
        remaining.remove(removed[-1])
    return removed


def scale_down(cluster: DeclaredCluster, state: ClusterState) -> Action | None:
    """Remove a surplus instance."""
    removed = surplus(cluster, state)
    return RemoveInstance(removed[0].ordinal, "spec.instances was reduced") if removed else None


def _last_to_keep(remaining: Sequence[Instance], state: ClusterState) -> Instance:
    primary = state.members.primary
    candidates = [i for i in remaining if i.ordinal != state.members.leader]
    synchronous = [i for i in candidates if i.member is not None and i.member.synchronous]
    if len(synchronous) == 1 and len(candidates) > 1:
        # The only complete copy: the next synchronous replica must exist before it goes.
        candidates.remove(synchronous[0])
    unhealthy = [i for i in candidates if primary is None or not i.is_following(primary)]
    return max(unhealthy or candidates, key=lambda i: i.ordinal)
