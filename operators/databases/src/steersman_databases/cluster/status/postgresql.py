"""PostgreSQL: synchronous replication and timelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from steersman_databases.api import Cluster, ClusterStatus, PostgreSQLCluster, PostgreSQLClusterStatus
from steersman_databases.api.postgresql_cluster import PostgreSQLMember
from steersman_databases.cluster import switchover_record
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.cluster.status.conditions import ConditionEvent, ConditionSet, build_member, status_of
from steersman_databases.engines.cluster_engine import DeclaredCluster

# Below this, what a replica lags behind is noise, and would be written every few seconds.
_LAG_RESOLUTION_BYTES = 1 << 20


class PostgreSQLAdapter:
    """Adapter of PostgreSQL's kind. A `KindAdapter`."""

    kind = PostgreSQLCluster

    def status_of(self, cluster: Cluster) -> ClusterStatus:
        """See `KindAdapter.status_of`."""
        return status_of(cluster)

    def unsupported(self, cluster: PostgreSQLCluster) -> str:
        """Return no problem: versions are checked for all kinds."""
        return ""

    def evaluate(self, declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
        """See `evaluate_synchronous` and `evaluate_slots`."""
        evaluate_synchronous(declared, state, conditions)
        evaluate_slots(declared, state, conditions)

    def complete_status(self, status: ClusterStatus, declared: DeclaredCluster, state: ClusterState) -> ClusterStatus:
        """Add the members as Patroni reports them, and the primary's timeline."""
        previous = cast(PostgreSQLClusterStatus, status)
        member = None if state.primary is None else state.primary.member
        reported = msgspec.structs.replace(
            previous,
            # The last one stays until there is another: that it changed is how a failover is seen.
            timeline=(member and member.timeline) or previous.timeline,
            members=tuple(_member(declared, state, i) for i in state.instances),
        )
        return switchover_record.consume_intent(reported) if _has_failed_over(previous, reported) else reported

    def failover_events(self, previous: ClusterStatus, status: ClusterStatus) -> Sequence[ConditionEvent]:
        """See `KindAdapter.failover_events`. Each failover starts a timeline."""
        was, now = cast(PostgreSQLClusterStatus, previous), cast(PostgreSQLClusterStatus, status)
        if not _has_failed_over(was, now) or switchover_record.was_planned(was, now.primary):
            return ()
        return [
            ("Failover", f"failover to {now.primary}: timeline {was.timeline} ended, timeline {now.timeline} started")
        ]


def _has_failed_over(was: PostgreSQLClusterStatus, now: PostgreSQLClusterStatus) -> bool:
    # An upgrade begins with the first timeline again.
    return bool(now.primary) and now.timeline is not None and now.timeline > (was.timeline or now.timeline)


def _member(declared: DeclaredCluster, state: ClusterState, instance: Instance) -> PostgreSQLMember:
    reported, member = build_member(declared, state, instance), instance.member
    lag = (
        None
        if member is None or member.lag_bytes is None
        else member.lag_bytes // _LAG_RESOLUTION_BYTES * _LAG_RESOLUTION_BYTES
    )
    return PostgreSQLMember(
        **msgspec.structs.asdict(reported),
        lag_bytes=None if reported.role == "Primary" else lag,
        timeline=None if member is None else member.timeline,
        synchronous=True if reported.role == "Replica" and member is not None and member.synchronous else None,
    )


def evaluate_synchronous(declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
    """Evaluate the number of synchronous standbys. Hibernated clusters are skipped."""
    if declared.synchronous.mode == "Disabled" or declared.hibernated:
        conditions.remove("Synchronous")
        return
    names = [declared.names.instance(m.instance) for m in state.members.members if m.synchronous]
    if names:
        conditions.set("Synchronous", True, "InSync", f"synchronous standbys: {', '.join(sorted(names))}")
    else:
        conditions.set("Synchronous", False, "NoSynchronousStandby", "no replica is a synchronous standby")


def evaluate_slots(declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
    """Evaluate ReplicationSlotsReady: the primary has the declared slots.

    Without a primary the condition stays unchanged.
    """
    if not declared.replication_slots:
        conditions.remove("ReplicationSlotsReady")
        return
    if (primary := state.primary) is None or not primary.pod_ready:
        return
    missing = [slot.name for slot in declared.replication_slots if slot.name not in state.members.slots]
    if missing:
        where = declared.names.instance(primary.ordinal)
        message = f"primary {where} does not have the declared replication slots {', '.join(missing)}"
        conditions.set("ReplicationSlotsReady", False, "SlotMissing", message)
    else:
        conditions.set("ReplicationSlotsReady", True, "Created", "the primary has all declared replication slots")
