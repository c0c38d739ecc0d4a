"""A cluster whose members have all left their group: who may go on with his data, and what a person must consent to.

Members found a group by themselves where one of them surely has everything. Where none does, each says what would be
lost with its data alone, and a consent must name exactly that: it is refused where it is about another outage, or
another loss.

Who dies with its node has said last that it is online. So that counts only as long as its pod is ready, or was a
moment ago; and who waits for the group does not believe it either, and names it among those it does not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.engines.cluster import ClusterView, Consent
from steersman_databases.engines.topology import Member

_SILENT = timedelta(minutes=1)
_STARTS_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Outage:
    """``choices`` are those that may go on, by their numbers, with what would be lost."""

    epoch: int
    choices: Mapping[int, Consent]

    @property
    def ends_by_itself(self) -> bool:
        """Whether somebody has everything."""
        return any(not (one.transactions or one.instances) for one in self.choices.values())


def outage_of(view: ClusterView, observed: Observed) -> Outage | None:
    """The outage that there is; None where somebody is in a group, or there has never been one."""
    epoch = observed.members.epoch
    if any(serves(i, observed) for i in observed.instances):
        return None
    losses = {i.number: _loss(view, epoch, i.member) for i in observed.instances if i.member is not None}
    outage = Outage(epoch, {number: loss for number, loss in losses.items() if loss is not None})
    # Where no group is known of, the store may have been lost: then somebody waits for others.
    begins = not observed.members.initialized and (outage.ends_by_itself or not outage.choices)
    return None if begins else outage


def serves(instance: Instance, observed: Observed) -> bool:
    """Whether it is in a group, as far as it can be told."""
    in_group = instance.member is not None and instance.member.in_group
    return in_group and instance.unready_for(observed.now) <= _SILENT


def _loss(view: ClusterView, epoch: int, member: Member) -> Consent | None:
    """None where it has not said what would be lost."""
    if member.state != "Offline" or member.unseen is None:
        return None
    name = view.names.instance
    return Consent(
        epoch=epoch,
        instance=name(member.instance),
        transactions=member.lacks,
        instances=frozenset(name(n) for n in member.unseen),
    )


def recovered(view: ClusterView, observed: Observed) -> int | None:
    """The instance whose data somebody consents to go on with: exactly what is lost must be named."""
    outage = outage_of(view, observed)
    if outage is None or view.recovery is None or view.hibernated:
        return None
    if (founding := _founding(view, observed)) is not None:
        return founding
    return next((n for n, consent in outage.choices.items() if consent == view.recovery), None)


def _founding(view: ClusterView, observed: Observed) -> int | None:
    """Who has read that consent, and is about to found a group by it.

    It has said so, and says no more what would be lost. To take the consent back now would have its founding refused,
    since the store was written meanwhile, and that again and again.
    """
    given = (observed.members.settings or {}).get("recovered")
    wanted = view.recovery
    if wanted is None or given is None or wanted.epoch != observed.members.epoch:
        return None
    joins = any(
        i.number == given and i.member is not None and i.member.state == "Starting" for i in observed.instances
    )
    return given if joins and wanted.instance == view.names.instance(given) else None


def is_under_way(observed: Observed) -> bool:
    """Whether somebody is just starting, and will be seen soon."""
    return any(
        i.member is None or i.member.state in ("Unknown", "Starting", "Stopped")
        for i in observed.instances
        if not i.fenced and not i.stopped and (i.pod is None or i.unready_for(observed.now) < _STARTS_WITHIN)
    )
