"""Complete outage: all members have left their group.

Members bootstrap a group themselves if one of them surely has every transaction. Otherwise each reports what
would be lost with its data alone, and a user must approve the loss. An approval must name exactly that: it is
rejected for another outage or loss.

A member that fails with its node was last reported online. So that report counts only while its pod is Ready, or
was a moment ago. A member that waits for the group names such members as unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.cluster_engine import DataLossConsent, DeclaredCluster
from steersman_databases.engines.members import Member

_SILENT_AFTER = timedelta(minutes=1)
_START_TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class CompleteOutage:
    """`choices` are the instances that may bootstrap, by ordinal, with the loss."""

    epoch: int
    choices: Mapping[int, DataLossConsent]

    @property
    def recovers_automatically(self) -> bool:
        """Return True if an instance has every transaction."""
        return any(not (one.transactions or one.instances) for one in self.choices.values())


def outage_of(declared: DeclaredCluster, state: ClusterState) -> CompleteOutage | None:
    """The present outage. None if a member is in a group, or if there never was a group."""
    epoch = state.members.epoch
    if any(is_in_group(i, state) for i in state.instances):
        return None
    losses = {i.ordinal: _data_loss_of(declared, epoch, i.member) for i in state.instances if i.member is not None}
    outage = CompleteOutage(epoch, {ordinal: loss for ordinal, loss in losses.items() if loss is not None})
    # Without a known group the store may have been lost: then a member waits for others.
    bootstrapping = not state.members.is_initialized and (outage.recovers_automatically or not outage.choices)
    return None if bootstrapping else outage


def is_in_group(instance: Instance, state: ClusterState) -> bool:
    """Return True if it is in a group, by its last report."""
    in_group = instance.member is not None and instance.member.in_group
    return in_group and instance.unready_for(state.now) <= _SILENT_AFTER


def _data_loss_of(declared: DeclaredCluster, epoch: int, member: Member) -> DataLossConsent | None:
    """Loss with this member's data. None if it has not reported it."""
    if member.state != "Offline" or member.unseen_instances is None:
        return None
    name = declared.names.instance
    return DataLossConsent(
        epoch=epoch,
        instance=name(member.instance),
        transactions=member.missing_gtids,
        instances=frozenset(name(n) for n in member.unseen_instances),
    )


def approved_instance(declared: DeclaredCluster, state: ClusterState) -> int | None:
    """Instance whose data a user consents to continue with. The consent must name the exact loss."""
    outage = outage_of(declared, state)
    if outage is None or declared.force_recovery is None or declared.hibernated:
        return None
    if (bootstrapping := _bootstrapping_instance(declared, state)) is not None:
        return bootstrapping
    return next((n for n, consent in outage.choices.items() if consent == declared.force_recovery), None)


def _bootstrapping_instance(declared: DeclaredCluster, state: ClusterState) -> int | None:
    """Instance that has read the approval and will bootstrap a group.

    It no longer reports a loss. A withdrawn approval would write the ConfigMap and so make its bootstrap fail,
    repeatedly.
    """
    acknowledged = (state.members.settings or {}).get("forceRecovery")
    desired = declared.force_recovery
    if desired is None or acknowledged is None or desired.epoch != state.members.epoch:
        return None
    joining = any(
        i.ordinal == acknowledged and i.member is not None and i.member.state == "Starting" for i in state.instances
    )
    return acknowledged if joining and desired.instance == declared.names.instance(acknowledged) else None


def is_starting(state: ClusterState) -> bool:
    """Return True if an instance is starting and will be observed soon."""
    return any(
        i.member is None or i.member.state in ("Unknown", "Starting", "Stopped")
        for i in state.instances
        if not i.fenced and not i.stopped and (i.pod is None or i.unready_for(state.now) < _START_TIMEOUT)
    )
