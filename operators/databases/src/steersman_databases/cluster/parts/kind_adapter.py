"""Differences between the kinds of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from steersman_databases.api import Cluster, ClusterStatus
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionEvent, ConditionSet
from steersman_databases.engines.cluster_engine import DeclaredCluster

C = TypeVar("C", bound=Cluster)


class KindAdapter(Protocol[C]):
    """Part of a reconcile that differs between the kinds of clusters."""

    @property
    def kind(self) -> type[C]:
        """Kind of the clusters."""
        ...

    def status_of(self, cluster: Cluster) -> ClusterStatus:
        """Status of a cluster; an empty one if it has none."""
        ...

    def unsupported(self, cluster: C) -> str:
        """Reason why the declaration cannot be served, or empty."""
        ...

    def evaluate(self, declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
        """Set the kind's own conditions from the observed state."""
        ...

    def complete_status(self, status: ClusterStatus, declared: DeclaredCluster, state: ClusterState) -> ClusterStatus:
        """Status with the kind's own observed fields."""
        ...

    def failover_events(self, previous: ClusterStatus, status: ClusterStatus) -> Sequence[ConditionEvent]:
        """Events that do not follow from conditions, such as a failover."""
        ...
