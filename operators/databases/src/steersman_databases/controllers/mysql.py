"""What of a cluster's reconcile is MySQL's own: groups that lose their majority, and members with another history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from steersman_databases.api import Cluster, ClusterStatus, MySQLCluster, MySQLClusterStatus
from steersman_databases.api.mysql_cluster import (
    MOST_PARAMETERS,
    Loss,
    MySQLMember,
    Outage,
    OutageChoice,
    RestoredParameters,
)
from steersman_databases.clusters import recovery
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.controllers import switchovers
from steersman_databases.controllers.cluster_status import Findings, News, member_of, status_of
from steersman_databases.engines.cluster import ClusterView, Consent
from steersman_databases.engines.topology import Member, Restored


class OfMySQL:
    """Groups. An `OwnOf`."""

    kind = MySQLCluster

    def status_of(self, cluster: Cluster) -> ClusterStatus:
        """See `OwnOf.status_of`."""
        return status_of(cluster)

    def refuses(self, cluster: MySQLCluster) -> str:
        """MariaDB's images: they have no group, and would end again and again without saying why."""
        if "mariadb" not in (cluster.spec.image or "").lower():
            return ""
        return "spec.image: clusters need MySQL, and MariaDB has no Group Replication; use serverRef for a MariaDB"

    def judge(self, view: ClusterView, observed: Observed, findings: Findings) -> None:
        """Majority, histories, and what an outage needs."""
        name, members = view.names.instance, observed.members.members
        cut_off = {m.instance for m in members if _is_cut_off(m, len(observed.instances))}
        if cut_off and (observed.primary is None or not observed.primary.pod_ready):
            who = ", ".join(map(name, sorted(cut_off)))
            absent = sorted(name(i.number) for i in observed.instances if i.number not in cut_off and _is_absent(i))
            lost = f"; not in it: {', '.join(absent)}" if absent else ""
            message = f"{who} cannot reach most of the group, and nobody takes writes{lost}"
            findings.tell("Available", False, "NoMajority", message)
        errant = [f"{name(m.instance)} has {m.errant}, which the group has not" for m in members if m.errant]
        if errant:
            findings.tell("HistoryShared", False, "ErrantTransactions", "; ".join(errant))
        elif any(recovery.serves(i, observed) for i in observed.instances):
            findings.tell("HistoryShared", True, "Shared", "no instance has transactions that the group has not")
        elif observed.members.initialized and not view.hibernated:
            findings.tell("HistoryShared", None, "NoGroup", "nobody is in a group that data could be compared with")
        _judge_recovery(view, observed, findings)

    def completed(self, status: ClusterStatus, view: ClusterView, observed: Observed) -> ClusterStatus:
        """With members as their agents tell them, and what a person may decide in an outage."""
        former = cast(MySQLClusterStatus, status)
        outage = None if view.hibernated else recovery.outage_of(view, observed)
        told = msgspec.structs.replace(
            former,
            # It stays until there is another: that it changed is how a failover is seen.
            last_primary=status.primary or former.last_primary,
            members=tuple(_member(view, observed, i) for i in observed.instances),
            outage=None if outage is None or outage.ends_by_itself else _told(outage),
        )
        return switchovers.with_change(told) if _has_taken_over(former, told) else told

    def news(self, former: ClusterStatus, status: ClusterStatus) -> Sequence[News]:
        """See `OwnOf.news`: what servers were given back as well."""
        was, now = cast(MySQLClusterStatus, former), cast(MySQLClusterStatus, status)
        told = [("DriftRepaired", words) for words in _restored(was, now)]
        if not _has_taken_over(was, now) or switchovers.brought_about(was, now.primary):
            return told
        return [("Failover", f"{now.primary} took over from {was.last_primary}"), *told]


def _restored(was: MySQLClusterStatus, now: MySQLClusterStatus) -> Iterator[str]:
    known = {member.name: member.restored for member in was.members}
    for member in now.members:
        if (one := member.restored) is not None and one != known.get(member.name):
            yield f"took back what SET GLOBAL had set: {', '.join(one.parameters)} at {member.name}"


def _has_taken_over(was: MySQLClusterStatus, now: MySQLClusterStatus) -> bool:
    return bool(now.primary) and bool(was.last_primary) and now.primary != was.last_primary


def _is_cut_off(member: Member, instances: int) -> bool:
    """Whether it reaches too few of ``instances``: it says so, or has given up since, and waits for most of them."""
    if member.state == "Isolated":
        return True
    seen = instances - len(member.unseen or ())
    return member.state == "Offline" and 2 * seen <= instances


def _is_absent(instance: Instance) -> bool:
    """Whether it is in no group, as it says or as its pod shows: what it said last may be from before it died."""
    member = instance.member
    return member is None or not member.in_group or not instance.pod_ready


def _judge_recovery(view: ClusterView, observed: Observed, findings: Findings) -> None:
    outage = recovery.outage_of(view, observed)
    if outage is None or view.hibernated or all(i.fenced for i in observed.instances):
        findings.drop("Recoverable")
        return
    wanted = view.recovery if view.recovery is not None and view.recovery.epoch == outage.epoch else None
    if outage.ends_by_itself:
        findings.tell("Recoverable", None, "Recovering", "an instance has everything, and founds the group anew")
    elif recovery.recovered(view, observed) is not None and wanted is not None:
        message = f"{wanted.instance} founds the group anew: somebody gives up {_words(wanted)}"
        findings.tell("Recoverable", None, "Consented", message)
    elif wanted is not None and outage.choices:
        known = next((one for one in outage.choices.values() if one.instance == wanted.instance), None)
        says = (
            f"nobody knows what would be lost with {wanted.instance}" if known is None else f"it is {_words(known)}"
        )
        message = f"spec.recovery gives up {_words(wanted)} for {wanted.instance}, and {says}"
        findings.tell("Recoverable", False, "ConsentMismatch", message)
    elif recovery.is_under_way(observed) or not outage.choices:
        findings.tell("Recoverable", None, "Recovering", "waiting for instances to say what they have")
    else:
        told = "; ".join(f"with {c.instance} {_words(c)} would be lost" for _, c in sorted(outage.choices.items()))
        findings.tell("Recoverable", False, "ConsentNeeded", f"no instance surely has everything: {told}")


def _words(loss: Consent) -> str:
    unseen = f"what only {', '.join(sorted(loss.instances))} may have" if loss.instances else ""
    return " and ".join(filter(None, (loss.transactions, unseen))) or "nothing"


def _given_back(restored: Restored) -> RestoredParameters:
    return RestoredParameters(time=restored.time, parameters=tuple(restored.parameters[:MOST_PARAMETERS]))


def _told(outage: recovery.Outage) -> Outage:
    choices = [
        OutageChoice(
            instance=one.instance, loss=Loss(transactions=one.transactions, instances=tuple(sorted(one.instances)))
        )
        for _, one in sorted(outage.choices.items())
    ]
    return Outage(epoch=outage.epoch, choices=tuple(choices))


def _member(view: ClusterView, observed: Observed, instance: Instance) -> MySQLMember:
    told, member = member_of(view, observed, instance), instance.member
    return MySQLMember(
        **msgspec.structs.asdict(told),
        queued=None if member is None or told.role == "Primary" else member.queued,
        errant=None if member is None else member.errant or None,
        version=None if member is None else member.version or None,
        restored=None if member is None or member.restored is None else _given_back(member.restored),
    )
