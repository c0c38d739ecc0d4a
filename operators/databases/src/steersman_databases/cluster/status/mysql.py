"""MySQL: quorum, errant transactions and complete outages of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from steersman_databases.api import Cluster, ClusterStatus, MySQLCluster, MySQLClusterStatus
from steersman_databases.api.mysql_cluster import (
    MAX_PARAMETERS,
    DataLoss,
    MySQLMember,
    OutageChoice,
    OutageStatus,
    RestoredParameters,
)
from steersman_databases.cluster import switchover_record
from steersman_databases.cluster.rules import complete_outage
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.cluster.status.conditions import ConditionEvent, ConditionSet, build_member, status_of
from steersman_databases.engines.cluster_engine import DataLossConsent, DeclaredCluster
from steersman_databases.engines.members import Member, RestoredSettings


class MySQLAdapter:
    """Adapter of MySQL's kind. A `KindAdapter`."""

    kind = MySQLCluster

    def status_of(self, cluster: Cluster) -> ClusterStatus:
        """See `KindAdapter.status_of`."""
        return status_of(cluster)

    def unsupported(self, cluster: MySQLCluster) -> str:
        """Reject images of MariaDB. They have no Group Replication, and would crash without a reason."""
        if "mariadb" not in (cluster.spec.image or "").lower():
            return ""
        return (
            "spec.image: MariaDB has no Group Replication. Use an image of MySQL, or serverRef for a MariaDB server"
        )

    def evaluate(self, declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
        """Evaluate quorum, errant transactions and outages."""
        name, members = declared.names.instance, state.members.members
        isolated = {m.instance for m in members if _has_lost_quorum(m, len(state.instances))}
        if isolated and (state.primary is None or not state.primary.pod_ready):
            reporting = ", ".join(map(name, sorted(isolated)))
            outside_group = sorted(
                name(i.ordinal) for i in state.instances if i.ordinal not in isolated and _is_outside_group(i)
            )
            unreachable = f". Unreachable: {', '.join(outside_group)}" if outside_group else ""
            message = f"the group has lost quorum and writes are blocked (reported by {reporting}){unreachable}"
            conditions.set("Available", False, "QuorumLost", message)
        errant = [f"{name(m.instance)} has errant transactions {m.errant_gtids}" for m in members if m.errant_gtids]
        if errant:
            conditions.set("NoErrantTransactions", False, "ErrantTransactions", "; ".join(errant))
        elif any(complete_outage.is_in_group(i, state) for i in state.instances):
            conditions.set(
                "NoErrantTransactions", True, "NoErrantTransactions", "no instance has errant transactions"
            )
        elif state.members.is_initialized and not declared.hibernated:
            conditions.set("NoErrantTransactions", None, "NoGroup", "no group exists to compare transactions with")
        _evaluate_recovery(declared, state, conditions)

    def complete_status(self, status: ClusterStatus, declared: DeclaredCluster, state: ClusterState) -> ClusterStatus:
        """Add the reported members, and the choices of a complete outage."""
        previous = cast(MySQLClusterStatus, status)
        outage = None if declared.hibernated else complete_outage.outage_of(declared, state)
        reported = msgspec.structs.replace(
            previous,
            # It stays until there is another: that it changed is how a failover is seen.
            last_primary=status.primary or previous.last_primary,
            members=tuple(_member(declared, state, i) for i in state.instances),
            outage=None if outage is None or outage.recovers_automatically else _outage_status(outage),
        )
        return switchover_record.consume_intent(reported) if _has_failed_over(previous, reported) else reported

    def failover_events(self, previous: ClusterStatus, status: ClusterStatus) -> Sequence[ConditionEvent]:
        """See `KindAdapter.failover_events`. Includes reverted parameters."""
        was, now = cast(MySQLClusterStatus, previous), cast(MySQLClusterStatus, status)
        reported = [("DriftReverted", message) for message in _restored_events(was, now)]
        if not _has_failed_over(was, now) or switchover_record.was_planned(was, now.primary):
            return reported
        return [("Failover", f"failover from {was.last_primary} to {now.primary}"), *reported]


def _restored_events(was: MySQLClusterStatus, now: MySQLClusterStatus) -> Iterator[str]:
    known = {member.name: member.restored_parameters for member in was.members}
    for member in now.members:
        if (one := member.restored_parameters) is not None and one != known.get(member.name):
            yield f"reverted parameters that were changed by SET GLOBAL: {', '.join(one.parameters)} on {member.name}"


def _has_failed_over(was: MySQLClusterStatus, now: MySQLClusterStatus) -> bool:
    return bool(now.primary) and bool(was.last_primary) and now.primary != was.last_primary


def _has_lost_quorum(member: Member, instances: int) -> bool:
    """Return True if it reaches too few of ``instances``.

    It reports that, or has left the group and waits for a majority.
    """
    if member.state == "Isolated":
        return True
    seen = instances - len(member.unseen_instances or ())
    return member.state == "Offline" and 2 * seen <= instances


def _is_outside_group(instance: Instance) -> bool:
    """Return True if its report or pod shows no group.

    The report can be older than the death of the server.
    """
    member = instance.member
    return member is None or not member.in_group or not instance.pod_ready


def _evaluate_recovery(declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
    outage = complete_outage.outage_of(declared, state)
    if outage is None or declared.hibernated or all(i.fenced for i in state.instances):
        conditions.remove("OutageRecoverable")
        return
    desired = (
        declared.force_recovery
        if declared.force_recovery is not None and declared.force_recovery.epoch == outage.epoch
        else None
    )
    if outage.recovers_automatically:
        conditions.set(
            "OutageRecoverable", None, "Recovering", "an instance with all transactions creates a new group"
        )
    elif complete_outage.approved_instance(declared, state) is not None and desired is not None:
        message = f"{desired.instance} creates a new group. Accepted loss: {_describe_loss(desired)}"
        conditions.set("OutageRecoverable", None, "RecoveryApproved", message)
    elif desired is not None and outage.choices:
        choice = next((one for one in outage.choices.values() if one.instance == desired.instance), None)
        consented = "its loss is unknown" if choice is None else f"its loss is {_describe_loss(choice)}"
        accepted = f"{_describe_loss(desired)} for {desired.instance}"
        message = f"spec.forceRecovery accepts the loss of {accepted}, but {consented}"
        conditions.set("OutageRecoverable", False, "ConsentMismatch", message)
    elif complete_outage.is_starting(state) or not outage.choices:
        conditions.set("OutageRecoverable", None, "Recovering", "waiting for instances to report their transactions")
    else:
        reported = "; ".join(
            f"{c.instance} would lose {_describe_loss(c)}" for _, c in sorted(outage.choices.items())
        )
        conditions.set(
            "OutageRecoverable", False, "ConsentRequired", f"no reachable instance has all transactions: {reported}"
        )


def _describe_loss(loss: DataLossConsent) -> str:
    uninspected = f"transactions that only {', '.join(sorted(loss.instances))} may have" if loss.instances else ""
    return " and ".join(filter(None, (loss.transactions, uninspected))) or "nothing"


def _restored_parameters(restored: RestoredSettings) -> RestoredParameters:
    return RestoredParameters(time=restored.time, parameters=tuple(restored.parameters[:MAX_PARAMETERS]))


def _outage_status(outage: complete_outage.CompleteOutage) -> OutageStatus:
    choices = [
        OutageChoice(
            instance=one.instance,
            loss=DataLoss(transactions=one.transactions, instances=tuple(sorted(one.instances))),
        )
        for _, one in sorted(outage.choices.items())
    ]
    return OutageStatus(epoch=outage.epoch, choices=tuple(choices))


def _member(declared: DeclaredCluster, state: ClusterState, instance: Instance) -> MySQLMember:
    reported, member = build_member(declared, state, instance), instance.member
    return MySQLMember(
        **msgspec.structs.asdict(reported),
        apply_queue=None if member is None or reported.role == "Primary" else member.apply_queue,
        errant_gtids=None if member is None else member.errant_gtids or None,
        version=None if member is None else member.version or None,
        restored_parameters=None
        if member is None or member.restored_settings is None
        else _restored_parameters(member.restored_settings),
    )
