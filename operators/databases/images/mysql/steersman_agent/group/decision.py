"""Next operation of a group member, a function of its view.

The operator takes no part in it. A group lives as long as its majority, which MySQL ensures. The remaining question
is which member may found a group: the first one, and another one after all members have left. Two groups at once
would be two histories of the same data. So:

- A member that is about to join or found a group first reports this on its pod. A member that reports `Offline` is
  in no group, and cannot be in one before it reports another state.
- One list reads all pods at one moment. If all were offline then, no group was alive.
- The ConfigMap is read before the list. Founding begins with a write to it, which fails if another member has
  written since. So of two members with the same result only one founds a group.
- Only a member whose transactions contain those of all others may found a group. The last primary must be among
  them: the others may have had its acknowledged transactions only in memory.
- A member that joins or founds a group for the first time is recorded as a member before. So an instance without a
  record has no acknowledged transactions, and no member waits for it, because it may never come. If the record is
  missing, all instances count. A ConfigMap without a group proves nothing, because it may have been lost and
  recreated. So a cluster starts with one instance, and the others follow when it serves.
- A user may consent to found a group without these conditions. Unseen members may still be in the previous group.
  They leave it as soon as they read of the new one. No member joins a group before its founder has recorded it.
  Such a group has another name, so that it reuses no number of a lost transaction.

Sources: MySQL 9.7 Reference Manual, "Group Replication"; the same rule by hand in "Restarting a Group".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from steersman_instance.gtids import GtidSet

MemberState = Literal[
    "Empty",  # no data
    "Stopped",  # data, but no running server
    "Starting",  # the server does not respond yet
    "Cloning",  # copies the data of another member
    "Offline",  # the server runs, but is not in a group
    "Joining",  # about to join or found a group
    "Recovering",  # in a group, and behind
    "Online",
    "Failed",  # it left the group, with an error
]
Operation = Literal["Initialise", "Clone", "Start", "Found", "Join", "Leave", "HandOver", "Stop", "Wait"]
IN_GROUP = frozenset({"Joining", "Recovering", "Online"})


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """A member as it reports itself on its pod.

    Attributes:
        uuid: UUID of its server.
        name: name of its pod in DNS.
        gtids: all its transactions, applied or not.
        epoch: epoch of its last group.
        queued: approximate number of received transactions that are not applied.
    """

    instance: int
    state: MemberState
    primary: bool = False
    uuid: str = ""
    address: str = ""
    name: str = ""
    gtids: GtidSet = field(default_factory=GtidSet)
    epoch: int = 0
    queued: int = 0


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """Shared state of the members, and requests of the operator.

    Attributes:
        epoch: number of groups founded so far.
        known_instances: all instances that have data or will have.
        members: instances that have ever been in a group, or None if unknown.
        leader: instance of the last primary.
        leader_uuid: UUID of its server.
        leader_view: view of the group in which it recorded itself.
        forced_recovery_instance: instance that may found a group with its data by a user's consent.
    """

    epoch: int = 0
    known_instances: frozenset[int] = frozenset()
    members: frozenset[int] | None = None
    leader: int | None = None
    leader_uuid: str = ""
    leader_view: str = ""
    forced_recovery_instance: int | None = None
    switchover: SwitchoverTarget | None = None

    def with_member(self, instance: int) -> GroupState:
        """Return the state with this instance as a member."""
        # Without a record all known instances may have been members. Later ones are recorded.
        known = self.members if self.members is not None else self.known_instances
        return replace(self, members=known | {instance}) if known else self


@dataclass(frozen=True)
class SwitchoverTarget:
    """Requested primary: the instance `to`, or any other one."""

    to: int | None


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """All information of a member at one moment.

    Attributes:
        own: its own state.
        others: the other members from one list of pods.
        has_majority: it reaches more than half of its group.
        group_executed: transactions of online members, queried while it is not in a group.
        purged_by_donor: per online member, transactions without binary logs.
        all_answered: all members of the group have responded.
        quorum_lost: none of them reaches a majority.
        is_listed: the group still lists this one as a member.
        errant_gtids: own transactions that the group certainly lacks.
        is_superseded: another group was founded since it joined its own.
        uninspectable_reason: why neither ConfigMap nor pods are readable. Then serving members continue, and no
            member
            joins or founds a group.
        attempted: operations since the stop request. None is repeated.
        yields_to_equals: another member with the same data may found the group first.
        failed_donors: instances that could not be copied, the latest failure last.
    """

    own: GroupMember
    store: GroupState = field(default_factory=GroupState)
    others: Sequence[GroupMember] = ()
    has_majority: bool = False
    group_executed: GtidSet | None = None
    purged_by_donor: Sequence[GtidSet] = ()
    all_answered: bool = True
    quorum_lost: bool = False
    is_listed: bool = False
    errant_gtids: GtidSet = field(default_factory=GtidSet)
    is_superseded: bool = False
    is_stopping: bool = False
    attempted: frozenset[Operation] = frozenset()
    uninspectable_reason: str = ""
    yields_to_equals: bool = True
    failed_donors: Sequence[int] = ()

    def online(self) -> list[GroupMember]:
        """Return the other online members, replicas with the shortest queue first.

        A new primary accepts no writes before it has applied its queue.
        """
        online = (m for m in self.others if m.state == "Online")
        return sorted(online, key=lambda m: (m.primary, m.queued, m.instance))

    def donors(self) -> list[GroupMember]:
        """Return possible donors: those without failures first, then the oldest failures."""
        failed = {instance: n for n, instance in enumerate(self.failed_donors)}
        return sorted(self.online(), key=lambda m: failed.get(m.instance, -1))

    @property
    def errant_candidates(self) -> GtidSet:
        """Own transactions that the responding members lack."""
        return GtidSet() if self.group_executed is None else self.own.gtids - self.group_executed

    @property
    def purged_gtids(self) -> GtidSet:
        """Missing transactions that no responding member can send.

        Empty if one of them can send all.
        """
        missing = [purged - self.own.gtids for purged in self.purged_by_donor]
        return min(missing, key=len, default=GtidSet())

    @property
    def is_forced(self) -> bool:
        """Return True if a user consents to found a group here."""
        return self.store.forced_recovery_instance == self.own.instance

    @property
    def in_outage(self) -> bool:
        """Return True if it waits for a member to found a group.

        A member that reports online but does not respond may have died.
        """
        return self.own.state == "Offline" and not self.uninspectable_reason and self.group_executed is None

    @property
    def missing_gtids(self) -> GtidSet:
        """Transactions of observed members that this one lacks."""
        known = GtidSet()
        for member in self.others:
            known |= member.gtids
        return known - self.own.gtids

    @property
    def epoch(self) -> int:
        """Latest known epoch. The ConfigMap may be lost or outdated."""
        return max(self.store.epoch, self.own.epoch, *(m.epoch for m in self.others))

    @property
    def required_instances(self) -> frozenset[int]:
        """Other instances that may have acknowledged transactions and must be observed."""
        store = self.store
        known = store.members is not None and store.epoch == self.epoch
        return (
            store.known_instances & store.members if known and store.members is not None else store.known_instances
        ) - {self.own.instance}

    @property
    def unseen_instances(self) -> list[int]:
        """Instances with unknown data.

        They may have more transactions, or be in a group.
        """
        seen = {m.instance: m for m in self.others}
        known = {n for n, m in seen.items() if m.state in ("Offline", "Empty")}
        missing = {*self.required_instances, *(m.instance for m in self.online())} - known
        if self.store.leader is not None and self.leader_server_lost:
            missing.add(self.store.leader)
        return sorted(missing)

    @property
    def leader_server_lost(self) -> bool:
        """Return True if the last primary's server was not observed.

        Its instance may have another server by now.
        """
        return bool(self.store.leader_uuid) and self.store.leader_uuid not in {
            m.uuid for m in (*self.others, self.own)
        }


@dataclass(frozen=True)
class MemberDecision:
    """Operation with its reason, for the log and the pod.

    `target` is the affected instance, if there is one.
    """

    operation: Operation
    reason: str
    target: int | None = None


def decide(view: GroupView) -> MemberDecision:
    """Return the next operation."""
    if view.is_stopping:
        return _decide_stop(view)
    match view.own.state:
        case "Empty" | "Stopped" | "Offline" | "Joining" if view.uninspectable_reason:
            return MemberDecision("Wait", f"the API server does not answer: {view.uninspectable_reason}")
        case "Empty":
            return _decide_data(view)
        case "Stopped":
            return MemberDecision("Start", "there is a database and no server")
        case "Starting" | "Cloning":
            return MemberDecision("Wait", "the server is not ready yet")
        case "Failed":
            return MemberDecision("Leave", "the group has put this member out, or it has left by an error")
        case "Offline" | "Joining":
            return _decide_join(view)
        case "Recovering" | "Online" if view.is_superseded:
            return MemberDecision("Leave", "another group was founded since, by somebody's consent")
        case "Recovering":
            return MemberDecision("Wait", "catching up with the group")
        case "Online":
            return _decide_online(view)


def _decide_stop(view: GroupView) -> MemberDecision:
    me = view.own
    if me.state in ("Empty", "Stopped"):
        return MemberDecision("Wait", "stopped")
    candidates = view.online() if me.state == "Online" and me.primary and view.has_majority else []
    if candidates and "HandOver" not in view.attempted:
        return MemberDecision("HandOver", "this pod is about to end", candidates[0].instance)
    if (me.state in IN_GROUP or me.state == "Failed") and "Leave" not in view.attempted:
        return MemberDecision("Leave", "this pod is about to end")
    return MemberDecision("Stop", "this pod is about to end")


def _decide_data(view: GroupView) -> MemberDecision:
    """Decide for a member without data.

    The first instance initialises them once. All others copy them.
    """
    if view.epoch == 0:
        return _decide_initialise(view)
    donors = view.donors()
    if not donors:
        return MemberDecision("Wait", "no member is online that could be copied")
    return MemberDecision("Clone", f"instance {donors[0].instance} is online", donors[0].instance)


def _decide_initialise(view: GroupView) -> MemberDecision:
    """Initialise only if all volumes are known to be empty.

    The record of a group may have been lost.
    """
    seen = {m.instance: m for m in view.others}
    for instance in sorted(view.required_instances - seen.keys()):
        return MemberDecision(
            "Wait", f"no group is known of, and instance {instance} has not been seen: it may have data"
        )
    if any(m.state != "Empty" for m in view.others) or view.own.instance != min(
        view.store.known_instances, default=None
    ):
        return MemberDecision("Wait", "the first instance has not founded the group yet")
    return MemberDecision("Initialise", "there has never been a group, and this is its first instance")


def _decide_online(view: GroupView) -> MemberDecision:
    if not view.has_majority:
        return MemberDecision(
            "Wait", "most of the group does not answer: it takes no writes until they do, or are put out"
        )
    asked = view.store.switchover
    if asked is None or not view.own.primary:
        return MemberDecision("Wait", "online")
    candidates = [m.instance for m in view.online()]
    if asked.to == view.own.instance:
        return MemberDecision("HandOver", "a switchover was asked for", view.own.instance)
    target = asked.to if asked.to is not None else next(iter(candidates), None)
    return MemberDecision("HandOver", "a switchover was asked for", target)


def _decide_join(view: GroupView) -> MemberDecision:
    online = view.online()
    if view.own.instance not in view.store.known_instances:
        return MemberDecision("Wait", "the operator has not said that this instance belongs to the cluster")
    if not online or (view.group_executed is None and view.is_forced):
        return _decide_bootstrap(view)
    if view.group_executed is None:
        return MemberDecision("Wait", f"instance {online[0].instance} says it is online, and does not answer")
    if view.quorum_lost:
        # It would wait for a response and delay a founder, once the remaining members have given up.
        return MemberDecision("Wait", "most of the group does not answer who is left of it, and it takes nobody in")
    if unknown := view.errant_candidates:
        progress = "" if view.errant_gtids >= unknown else ", as far as its members know by now"
        return MemberDecision(
            "Wait", f"it has {len(unknown)} transactions that the group has not: {unknown}{progress}"
        )
    if not view.store.leader_view:
        # Members of another group may still exist, and a member that joins them would be taken for one of the new
        # group.
        return MemberDecision("Wait", "the primary has not written down yet which group it leads")
    if unavailable := view.purged_gtids:
        # Otherwise Group Replication would copy the data, and drop the present ones before it has the copy.
        reason = f"has the binary logs of {len(unavailable)} transactions that this one lacks"
        if not view.all_answered:
            return MemberDecision("Wait", f"nobody in the group who answers {reason}, and not everybody does")
        reason = f"nobody in the group {reason}: its data are replaced by another copy"
        return MemberDecision("Clone", reason, view.donors()[0].instance)
    if view.is_listed:
        # It is refused as long, and who was refused once may try in vain for two minutes.
        return MemberDecision("Wait", "the group has not put out yet who this one was before it ended")
    return MemberDecision("Join", f"instance {online[0].instance} is online")


def _decide_bootstrap(view: GroupView) -> MemberDecision:
    store, me = view.store, view.own
    if view.is_forced:
        return MemberDecision("Found", "a person has decided that this member's data are to be the group's")
    seen = {m.instance: m for m in view.others}
    for instance in sorted(view.required_instances):
        member = seen.get(instance)
        if member is None:
            return MemberDecision("Wait", f"nobody is online, and instance {instance} has not been seen")
        if member.state not in ("Offline", "Empty"):
            return MemberDecision("Wait", f"nobody is online, and instance {instance} is {member.state.lower()}")
    candidates = [*seen.values(), me]
    if view.leader_server_lost:
        return MemberDecision(
            "Wait", f"the data of the last primary, instance {store.leader}, are not among those seen"
        )
    for member in sorted(candidates, key=lambda m: m.instance):
        if not me.gtids >= member.gtids:
            ahead = len(member.gtids - me.gtids)
            return MemberDecision(
                "Wait", f"instance {member.instance} has {ahead} transactions that this one has not"
            )
    # Several members may have all data. The last primary comes first, so that clients find it in the same place. The
    # first one may have died since its report. The version of the ConfigMap ensures that only one founds the group.
    equal = [m for m in candidates if m.gtids >= me.gtids and m.state != "Empty"]
    first = min(equal, key=lambda m: (m.instance != store.leader, m.instance))
    if first.instance != me.instance and view.yields_to_equals:
        return MemberDecision("Wait", f"instance {first.instance} has the same data, and goes first")
    return MemberDecision(
        "Found", "nobody is in a group, all were seen, and no one has a transaction that is not here"
    )
