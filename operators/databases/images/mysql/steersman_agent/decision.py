"""What a member of a group does next, as a pure function of what it sees. The operator takes no part in it.

A group lives as long as a majority of it does, and MySQL sees to that. What is left to decide is who may found one:
the first, and another after all members have left. Two at once would be two histories of the same data. So:

- Who is about to join or found a group first says so on its pod. One that says `Offline` is in none, and cannot be
  before it has said something else.
- All pods are read at one moment, in one list. If everybody was offline then, no group lived.
- Before the list, the store is read, and founding begins with a write to it that is refused if anybody else has
  written since. So of two that come to the same result, one founds.
- Only that member may whose transactions contain those of all others, and the last primary must be among them: what
  it has acknowledged the others may have had in memory alone.
- Who is about to join or found a group for the first time writes himself down as a member before. So an instance that
  is not written down has nothing that anybody was told is kept, and nobody waits for it: it may never come. Where it
  is not known who was a member, everybody counts. That no group was ever founded proves nothing: who reads that may
  read a store that was lost and made anew. So a cluster begins with one instance, and the others come when it serves.
- A person may have one founded without all of that. Others may still be in a group then that nobody saw: they leave
  it as soon as they read of the new one. Nobody joins a group before its founder has said which it is. Such a group
  has another name, and so numbers no transaction as one that was given up.

Sources: MySQL 9.7 Reference Manual, "Group Replication"; the same rule by hand in "Restarting a Group".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .gtids import GtidSet

State = Literal[
    "Empty",  # no data
    "Stopped",  # data, and no server
    "Starting",  # the server is not there yet
    "Cloning",  # it takes another member's data
    "Offline",  # the server runs, and is in no group
    "Joining",  # about to be in a group
    "Recovering",  # in a group, and behind
    "Online",
    "Failed",  # it left the group, with an error
]
Deed = Literal["Initialise", "Clone", "Start", "Found", "Join", "Leave", "HandOver", "Stop", "Wait"]
IN_GROUP = frozenset({"Joining", "Recovering", "Online"})


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member as it says itself, on its pod.

    `uuid` is its server's, `gtids` all that it has, applied or not, `epoch` that of the group it was in last. `name`
    is its pod's in DNS. `queued` is about how many transactions it has received and not applied.
    """

    instance: int
    state: State
    primary: bool = False
    uuid: str = ""
    address: str = ""
    name: str = ""
    gtids: GtidSet = field(default_factory=GtidSet)
    epoch: int = 0
    queued: int = 0


@dataclass(frozen=True, kw_only=True)
class Store:
    """What the members agree on, and what the operator asks of them.

    `epoch` counts the groups that were founded. `instances` are all that have data or will, `members` those that have
    ever been in a group, None where that is not known. `leader` was the last primary, `leader_uuid` its server,
    `leader_view` the name of the view of the group in which it said so. `consent` is the instance that a person lets
    found a group with what it has.
    """

    epoch: int = 0
    instances: frozenset[int] = frozenset()
    members: frozenset[int] | None = None
    leader: int | None = None
    leader_uuid: str = ""
    leader_view: str = ""
    consent: int | None = None
    switchover: Switchover | None = None

    def with_member(self, instance: int) -> Store:
        """The same, where this one is or is about to be in a group."""
        # Where nobody knows who was, all may have been; from then on it is known who comes after.
        known = self.members if self.members is not None else self.instances
        return replace(self, members=known | {instance}) if known else self


@dataclass(frozen=True)
class Switchover:
    """Somebody else should be primary: the instance `to`, or any."""

    to: int | None


@dataclass(frozen=True, kw_only=True)
class View:
    """All that a member knows at one moment.

    `me` is what it finds of itself now, `members` what all pods said in one list, its own left out. `majority`: it
    reaches more than half of its group. `group` is what online members have, asked while we are in no group, and
    `purged` what each of them has no binary logs of; `everybody`: nobody else is in the group; `blocked`:
    none of them reaches most of it; `listed`: it counts this one as a member still. `errant` is what we have and it
    surely has not. `superseded`: if it is in a group, another was founded since.
    `blind` says why neither store nor members could be read: then whoever serves goes on, and nobody joins or founds.
    `tried` is what was done since it is to stop: nothing is waited for twice. `patient`: who has the same data may
    go first. `failed_donors` are instances of which no copy could be had, who failed last at the end.
    """

    me: Member
    store: Store = field(default_factory=Store)
    members: Sequence[Member] = ()
    majority: bool = False
    group: GtidSet | None = None
    purged: Sequence[GtidSet] = ()
    everybody: bool = True
    blocked: bool = False
    listed: bool = False
    errant: GtidSet = field(default_factory=GtidSet)
    superseded: bool = False
    stopping: bool = False
    tried: frozenset[Deed] = frozenset()
    blind: str = ""
    patient: bool = True
    failed_donors: Sequence[int] = ()

    def online(self) -> list[Member]:
        """The others that say they are in the group: replicas first, and of those who has least left to apply.

        Until a new primary has applied what it received, it lets nobody write.
        """
        online = (m for m in self.members if m.state == "Online")
        return sorted(online, key=lambda m: (m.primary, m.queued, m.instance))

    def donors(self) -> list[Member]:
        """The others that could be copied: first those that have not failed to be, then who did longest ago."""
        failed = {instance: n for n, instance in enumerate(self.failed_donors)}
        return sorted(self.online(), key=lambda m: failed.get(m.instance, -1))

    @property
    def unknown(self) -> GtidSet:
        """What this one has and the group has not, as far as somebody could be asked."""
        return GtidSet() if self.group is None else self.me.gtids - self.group

    @property
    def unavailable(self) -> GtidSet:
        """What this one lacks and nobody who answers could send: empty if one of them can send all of it."""
        lacking = [purged - self.me.gtids for purged in self.purged]
        return min(lacking, key=len, default=GtidSet())

    @property
    def by_consent(self) -> bool:
        """Whether a person lets it found a group with what it has, whatever others have."""
        return self.store.consent == self.me.instance

    @property
    def outage(self) -> bool:
        """Whether it waits with its data for somebody to found a group.

        Who says that it is online and does not answer may have said so before it died.
        """
        return self.me.state == "Offline" and not self.blind and self.group is None

    @property
    def lacks(self) -> GtidSet:
        """What the others that were seen have and this one has not."""
        known = GtidSet()
        for member in self.members:
            known |= member.gtids
        return known - self.me.gtids

    @property
    def epoch(self) -> int:
        """Of the last group that anybody here knows of: the store may have been lost, or be an old one."""
        return max(self.store.epoch, self.me.epoch, *(m.epoch for m in self.members))

    @property
    def wanted(self) -> frozenset[int]:
        """The others that must be seen: who may have something that clients were told is kept."""
        store = self.store
        known = store.members is not None and store.epoch == self.epoch
        return (store.instances & store.members if known and store.members is not None else store.instances) - {
            self.me.instance
        }

    @property
    def unseen(self) -> list[int]:
        """The instances whose data are not known: they may have more, or be in a group."""
        seen = {m.instance: m for m in self.members}
        known = {n for n, m in seen.items() if m.state in ("Offline", "Empty")}
        missing = {*self.wanted, *(m.instance for m in self.online())} - known
        if self.store.leader is not None and self.lost_leader:
            missing.add(self.store.leader)
        return sorted(missing)

    @property
    def lost_leader(self) -> bool:
        """Whether the last primary's server is not among those seen: its number may have another by now."""
        return bool(self.store.leader_uuid) and self.store.leader_uuid not in {
            m.uuid for m in (*self.members, self.me)
        }


@dataclass(frozen=True)
class Decision:
    """What to do and why, for its log and its pod. `to` is the instance that is meant, where one is."""

    deed: Deed
    because: str
    to: int | None = None


def decide(view: View) -> Decision:
    """The one thing to do next."""
    if view.stopping:
        return _stop(view)
    match view.me.state:
        case "Empty" | "Stopped" | "Offline" | "Joining" if view.blind:
            return Decision("Wait", f"the API server does not answer: {view.blind}")
        case "Empty":
            return _fill(view)
        case "Stopped":
            return Decision("Start", "there is a database and no server")
        case "Starting" | "Cloning":
            return Decision("Wait", "the server is not ready yet")
        case "Failed":
            return Decision("Leave", "the group has put this member out, or it has left by an error")
        case "Offline" | "Joining":
            return _enter(view)
        case "Recovering" | "Online" if view.superseded:
            return Decision("Leave", "another group was founded since, by somebody's consent")
        case "Recovering":
            return Decision("Wait", "catching up with the group")
        case "Online":
            return _serve(view)


def _stop(view: View) -> Decision:
    me = view.me
    if me.state in ("Empty", "Stopped"):
        return Decision("Wait", "stopped")
    heirs = view.online() if me.state == "Online" and me.primary and view.majority else []
    if heirs and "HandOver" not in view.tried:
        return Decision("HandOver", "this pod is about to end", heirs[0].instance)
    if (me.state in IN_GROUP or me.state == "Failed") and "Leave" not in view.tried:
        return Decision("Leave", "this pod is about to end")
    return Decision("Stop", "this pod is about to end")


def _fill(view: View) -> Decision:
    """No data: made once, by the first instance of all. Everybody else has copies."""
    if view.epoch == 0:
        return _initialise(view)
    donors = view.donors()
    if not donors:
        return Decision("Wait", "no member is online that could be copied")
    return Decision("Clone", f"instance {donors[0].instance} is online", donors[0].instance)


def _initialise(view: View) -> Decision:
    """All volumes must be known to be empty: that no group is known of may be since the store was lost."""
    seen = {m.instance: m for m in view.members}
    for instance in sorted(view.wanted - seen.keys()):
        return Decision("Wait", f"no group is known of, and instance {instance} has not been seen: it may have data")
    if any(m.state != "Empty" for m in view.members) or view.me.instance != min(view.store.instances, default=None):
        return Decision("Wait", "the first instance has not founded the group yet")
    return Decision("Initialise", "there has never been a group, and this is its first instance")


def _serve(view: View) -> Decision:
    if not view.majority:
        return Decision("Wait", "most of the group does not answer: it takes no writes until they do, or are put out")
    asked = view.store.switchover
    if asked is None or not view.me.primary:
        return Decision("Wait", "online")
    heirs = [m.instance for m in view.online()]
    if asked.to == view.me.instance:
        return Decision("HandOver", "a switchover was asked for", view.me.instance)
    chosen = asked.to if asked.to is not None else next(iter(heirs), None)
    return Decision("HandOver", "a switchover was asked for", chosen)


def _enter(view: View) -> Decision:
    online = view.online()
    if view.me.instance not in view.store.instances:
        return Decision("Wait", "the operator has not said that this instance belongs to the cluster")
    if not online or (view.group is None and view.by_consent):
        return _found(view)
    if view.group is None:
        return Decision("Wait", f"instance {online[0].instance} says it is online, and does not answer")
    if view.blocked:
        # It would wait for an answer, and be in the way of whoever may found a group once this one has given up.
        return Decision("Wait", "most of the group does not answer who is left of it, and it takes nobody in")
    if unknown := view.unknown:
        so_far = "" if view.errant >= unknown else ", as far as its members know by now"
        return Decision("Wait", f"it has {len(unknown)} transactions that the group has not: {unknown}{so_far}")
    if not view.store.leader_view:
        # Members of another group may still be there, and who joins them would not be told from the new one's.
        return Decision("Wait", "the primary has not written down yet which group it leads")
    if unavailable := view.unavailable:
        # Who joins nevertheless is copied by Group Replication, which drops the data before it has others.
        because = f"has the binary logs of {len(unavailable)} transactions that this one lacks"
        if not view.everybody:
            return Decision("Wait", f"nobody in the group who answers {because}, and not everybody does")
        because = f"nobody in the group {because}: its data are replaced by another copy"
        return Decision("Clone", because, view.donors()[0].instance)
    if view.listed:
        # It is refused as long, and who was refused once may try in vain for two minutes.
        return Decision("Wait", "the group has not put out yet who this one was before it ended")
    return Decision("Join", f"instance {online[0].instance} is online")


def _found(view: View) -> Decision:
    store, me = view.store, view.me
    if view.by_consent:
        return Decision("Found", "a person has decided that this member's data are to be the group's")
    seen = {m.instance: m for m in view.members}
    for instance in sorted(view.wanted):
        member = seen.get(instance)
        if member is None:
            return Decision("Wait", f"nobody is online, and instance {instance} has not been seen")
        if member.state not in ("Offline", "Empty"):
            return Decision("Wait", f"nobody is online, and instance {instance} is {member.state.lower()}")
    present = [*seen.values(), me]
    if view.lost_leader:
        return Decision("Wait", f"the data of the last primary, instance {store.leader}, are not among those seen")
    for member in sorted(present, key=lambda m: m.instance):
        if not me.gtids >= member.gtids:
            more = len(member.gtids - me.gtids)
            return Decision("Wait", f"instance {member.instance} has {more} transactions that this one has not")
    # Several may have everything: the last primary goes first, so that clients find it where it was. Who is to go
    # first may have died since he said so; that two do not is no matter of politeness, but of the store's version.
    equal = [m for m in present if m.gtids >= me.gtids and m.state != "Empty"]
    first = min(equal, key=lambda m: (m.instance != store.leader, m.instance))
    if first.instance != me.instance and view.patient:
        return Decision("Wait", f"instance {first.instance} has the same data, and goes first")
    return Decision("Found", "nobody is in a group, all were seen, and no one has a transaction that is not here")
