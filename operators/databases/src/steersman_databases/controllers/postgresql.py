"""What of a cluster's reconcile is PostgreSQL's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from steersman_databases.api import Cluster, ClusterStatus, PostgreSQLCluster, PostgreSQLClusterStatus
from steersman_databases.api.postgresql_cluster import PostgreSQLMember
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.controllers import switchovers
from steersman_databases.controllers.cluster_status import Findings, News, member_of, status_of
from steersman_databases.engines.cluster import ClusterView

# Below this, what a replica lags behind is noise, and would be written every few seconds.
_LAG_GRAIN = 1 << 20


class OfPostgreSQL:
    """Synchronous replication, and timelines. An `OwnOf`."""

    kind = PostgreSQLCluster

    def status_of(self, cluster: Cluster) -> ClusterStatus:
        """See `OwnOf.status_of`."""
        return status_of(cluster)

    def refuses(self, cluster: PostgreSQLCluster) -> str:
        """Nothing: its versions are looked at by all."""
        return ""

    def judge(self, view: ClusterView, observed: Observed, findings: Findings) -> None:
        """See `judge_synchronous`."""
        judge_synchronous(view, observed, findings)

    def completed(self, status: ClusterStatus, view: ClusterView, observed: Observed) -> ClusterStatus:
        """With members as Patroni tells them, and the primary's timeline."""
        former = cast(PostgreSQLClusterStatus, status)
        member = None if observed.primary is None else observed.primary.member
        told = msgspec.structs.replace(
            former,
            # The last one stays until there is another: that it changed is how a failover is seen.
            timeline=(member and member.timeline) or former.timeline,
            members=tuple(_member(view, observed, i) for i in observed.instances),
        )
        return switchovers.with_change(told) if _has_taken_over(former, told) else told

    def news(self, former: ClusterStatus, status: ClusterStatus) -> Sequence[News]:
        """See `OwnOf.news`: each who takes over begins a timeline."""
        was, now = cast(PostgreSQLClusterStatus, former), cast(PostgreSQLClusterStatus, status)
        if not _has_taken_over(was, now) or switchovers.brought_about(was, now.primary):
            return ()
        return [("Failover", f"{now.primary} took over: timeline {now.timeline} follows {was.timeline}")]


def _has_taken_over(was: PostgreSQLClusterStatus, now: PostgreSQLClusterStatus) -> bool:
    # An upgrade begins with the first timeline again.
    return bool(now.primary) and now.timeline is not None and now.timeline > (was.timeline or now.timeline)


def _member(view: ClusterView, observed: Observed, instance: Instance) -> PostgreSQLMember:
    told, member = member_of(view, observed, instance), instance.member
    lag = None if member is None or member.lag_bytes is None else member.lag_bytes // _LAG_GRAIN * _LAG_GRAIN
    return PostgreSQLMember(
        **msgspec.structs.asdict(told),
        lag_bytes=None if told.role == "Primary" else lag,
        timeline=None if member is None else member.timeline,
        synchronous=True if told.role == "Replica" and member is not None and member.synchronous else None,
    )


def judge_synchronous(view: ClusterView, observed: Observed, findings: Findings) -> None:
    """Whether there are as many synchronous standbys as declared. A cluster that sleeps is not asked."""
    if view.synchronous.mode == "Off" or view.hibernated:
        findings.drop("Synchronous")
        return
    names = [view.names.instance(m.instance) for m in observed.members.members if m.synchronous]
    if names:
        findings.tell("Synchronous", True, "InSync", f"synchronous: {', '.join(sorted(names))}")
    else:
        findings.tell("Synchronous", False, "NoSynchronousStandby", "no replica has all that was committed")
