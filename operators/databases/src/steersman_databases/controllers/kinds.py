"""What the kinds of clusters do each in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from steersman_databases.api import Cluster, ClusterStatus
from steersman_databases.clusters.observed import Observed
from steersman_databases.controllers.cluster_status import Findings, News
from steersman_databases.engines.cluster import ClusterView

C = TypeVar("C", bound=Cluster)


class OwnOf(Protocol[C]):
    """What of a cluster's reconcile is one kind's own."""

    @property
    def kind(self) -> type[C]:
        """The kind."""
        ...

    def status_of(self, cluster: Cluster) -> ClusterStatus:
        """The status that it has; an empty one before it has any."""
        ...

    def refuses(self, cluster: C) -> str:
        """Why nothing may be made of what it declares; empty where it may."""
        ...

    def judge(self, view: ClusterView, observed: Observed, findings: Findings) -> None:
        """The conditions of its own, of what is seen without doing anything."""
        ...

    def completed(self, status: ClusterStatus, view: ClusterView, observed: Observed) -> ClusterStatus:
        """The status with its own fields, as observed."""
        ...

    def news(self, former: ClusterStatus, status: ClusterStatus) -> Sequence[News]:
        """What has happened in between beside what conditions say, such as who took over without being asked to."""
        ...
