"""Agents of three instances, their servers, the store and the operator, a step at a time.

The group itself is modelled as MySQL promises it: who has a majority of its view serves; what was acknowledged is on
the primary's disk, and with the others in memory alone until they have written it. A primary gives a transaction the
next number that is free under its group's name, and by these numbers servers know what they have.

The operator says who belongs to the cluster, one more after the other. What happens besides, in some worlds: an
instance never runs; the store is deleted and made anew; a volume is lost; a person consents that one goes on with
what it has, while others may be in a group that it cannot reach. Then what is lost was named, and whoever is in the
group that was given up leads nobody any more.
"""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import replace

from database_support.simulation.bootstrap_pods import (
    BootstrappedGroup,
    RecoveryConsent,
    SimulatedInstance,
    VolumeEpoch,
)
from steersman_agent.group.decision import GroupMember, GroupState, GroupView, MemberState, decide
from steersman_agent.group.group_status import is_older_view
from steersman_agent.operations import next_group_name
from steersman_instance.gtids import GtidSet

SIZE = 3


class BootstrapHarness:
    """The pods, the store, and the groups there have been."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        # Who may found goes first by a rule, which both know. What keeps two groups apart must not be that rule.
        self.impatient = seed % 2 == 0
        self.loses_volumes = seed % 3 == 0
        self.consents = seed % 5 in (2, 3)
        self.loses_store = seed % 5 == 4
        # With the store it is lost who was a member: then a person has to say that an instance has nothing.
        self.never_runs = frozenset({SIZE - 1} if seed % 4 == 1 and not self.loses_store else ())
        self.pods = [SimulatedInstance(n) for n in range(SIZE)]
        self.present = frozenset({0})
        self.store: GroupState | None = GroupState(known_instances=self.present)
        self.version = 0
        self.name, self.named = "first", 1
        self.groups: list[BootstrappedGroup] = []
        self.acknowledged: set[int] = set()
        self.lost_volumes = False
        self.cut_off: set[int] = set()
        self.made = 0
        self.numbers: dict[int, tuple[str, int]] = {}
        self.declared: RecoveryConsent | None = None
        self.consented: RecoveryConsent | None = None
        self.observed: tuple[int, RecoveryConsent | None] | None = None
        self.used: list[RecoveryConsent] = []
        self.valid_from = 0

    # What MySQL does.

    def alive(self, group: BootstrappedGroup) -> list[int]:
        """Those of the view that are still there."""
        return [n for n in group.view if self.pods[n].group is group]

    def given_up(self, group: BootstrappedGroup) -> bool:
        """Whether a person let another be founded since, even while this one was only about to be founded."""
        return group.epoch < self.valid_from

    def serves(self, group: BootstrappedGroup) -> bool:
        return len(self.alive(group)) * 2 > len(group.view)

    def state(self, pod: SimulatedInstance) -> MemberState:
        if pod.durable is None:
            return "Empty"
        if not pod.running:
            return "Stopped"
        return "Offline" if pod.group is None else "Online"

    def has(self, pod: SimulatedInstance) -> set[int]:
        return (pod.durable or set()) | pod.memory

    def gtids(self, of: Set[int]) -> GtidSet:
        """How servers number these transactions."""
        return GtidSet.parse(",".join(f"{name}:{number}" for name, number in (self.numbers[n] for n in of)))

    def leads(self, pod: SimulatedInstance) -> bool:
        """Whether it is primary, with its majority."""
        return pod.group is not None and self.serves(pod.group) and self.alive(pod.group)[0] == pod.number

    def member(self, pod: SimulatedInstance, state: MemberState | None = None) -> GroupMember:
        state, epoch = state or self.state(pod), pod.group_epoch.epoch
        primary, has = state == "Online" and self.leads(pod), self.gtids(self.has(pod))
        return GroupMember(instance=pod.number, state=state, primary=primary, uuid=pod.uuid, gtids=has, epoch=epoch)

    def write(self) -> None:
        """A client writes through a primary that has its majority."""
        serving = [g for g in self.groups if self.serves(g)]
        if not serving:
            return
        group = self.chance.choice(serving)
        primary = self.pods[self.alive(group)[0]]
        self.made += 1
        # A new primary applies what it has received before it takes writes (BEFORE_ON_PRIMARY_FAILOVER).
        self.flush(primary.number)
        assert primary.durable is not None
        used = {number for name, number in (self.numbers[n] for n in primary.durable) if name == group.name}
        self.numbers[self.made] = group.name, next(n for n in range(1, self.made + 1) if n not in used)
        primary.durable.add(self.made)
        for number in self.alive(group):
            if number != primary.number:
                self.pods[number].memory.add(self.made)
        if not self.given_up(group):
            self.acknowledged.add(self.made)

    def flush(self, number: int) -> None:
        """What a replica has in memory gets to its disk."""
        pod = self.pods[number]
        if pod.durable is not None:
            pod.durable |= pod.memory
            pod.memory.clear()

    def expel(self, number: int) -> None:
        """The group puts out who does not answer."""
        for group in self.groups:
            if number in group.view and self.serves(group) and self.pods[number].group is not group:
                group.without(number)

    def put(self, store: GroupState, name: str = "") -> None:
        name = name or self.name
        if (store, name) != (self.store, self.name):
            self.store, self.name, self.version = store, name, self.version + 1

    def crash(self, number: int) -> None:
        pod = self.pods[number]
        pod.crash()

    def delete_pod(self, number: int) -> None:
        """The next one has the volume, and has said nothing yet."""
        self.crash(number)
        self.pods[number].published = self.pods[number].acknowledged_consent = None

    def lose_volume(self, number: int) -> None:
        """At most one in all; the pod is another then."""
        if self.lost_volumes:
            return
        pod = self.pods[number]
        pod.crash()
        pod.durable, pod.uuid, pod.published, pod.acknowledged_consent, pod.group_epoch = (
            None,
            "",
            None,
            None,
            VolumeEpoch(),
        )
        self.lost_volumes = True

    def cut(self, number: int) -> None:
        """Ends, or begins: then those with a lower number reach neither the store nor who is on the other side.

        Their servers go on. Those on this side have lost them.
        """
        if self.cut_off:
            self.cut_off.clear()
        else:
            self.cut_off |= set(range(number))
            for each in range(number, SIZE):
                self.crash(each)

    def acts(self, number: int) -> bool:
        """Whether its agent does anything."""
        return number in self.present - self.never_runs - self.cut_off

    # What the operator does, and a person.

    def operate(self) -> None:
        """Looks, or writes what follows from what was seen, if nobody has written since."""
        if self.store is None:
            # Made anew, the ConfigMap is another.
            self.named += 1
            self.name = f"made-{self.named}"
            self.put(GroupState(known_instances=self.present))
        elif self.observed is None:
            choices = self.choices()
            over = any(not (c.lacks or c.unseen) for c in choices)
            wanted = self.declared if self.declared in choices and not over else None
            self.observed = self.version, wanted
        else:
            (version, wanted), self.observed = self.observed, None
            if version == self.version:
                store = self.store
                if store.epoch and len(self.present) < SIZE:
                    self.present |= {len(self.present)}
                self.consented = wanted
                self.put(
                    replace(
                        store,
                        known_instances=self.present,
                        forced_recovery_instance=None if wanted is None else wanted.instance,
                    )
                )

    def choices(self) -> list[RecoveryConsent]:
        """What would be lost, as those tell it who wait. They may be cut off from others who are in a group."""
        return [
            p.acknowledged_consent
            for p in self.pods
            if p.acknowledged_consent is not None and self.store and p.acknowledged_consent.epoch == self.store.epoch
        ]

    def consent(self) -> None:
        """A person reads what would be lost. Nobody withdraws what was declared once."""
        if choices := [c for c in self.choices() if c.lacks or c.unseen]:
            self.declared = self.chance.choice(choices)

    # What the agent does, a step at a time.

    def publish(self, number: int) -> None:
        """Says what it finds of itself; who is about to join has said so, and takes nothing back meanwhile."""
        pod = self.pods[number]
        if not pod.steps:
            pod.published = self.member(pod)
            if pod.published.state != "Offline":
                pod.acknowledged_consent = None

    def read_store(self, number: int) -> None:
        pod = self.pods[number]
        if not pod.steps:
            pod.store, pod.version, pod.name = self.store, self.version, self.name

    def list_pods(self, number: int) -> None:
        """And decides what to do; then does it in steps."""
        pod = self.pods[number]
        if pod.store is None or pod.steps:
            return
        pod.view = view = self.view_of(pod, pod.store)
        pod.decision = decide(view)
        pod.acknowledged_consent = self.loss_of(view) if view.in_outage else None
        pod.steps = {
            "Initialise": ["initialise"],
            "Clone": ["clone"],
            "Start": ["start"],
            "Found": ["say joining", "swap", "found"],
            "Join": ["say joining", "record", "join"],
            "Leave": ["leave"],
        }.get(pod.decision.operation, ["look as leader", "lead"] if view.own.primary else [])
        pod.store = None

    def view_of(self, pod: SimulatedInstance, store: GroupState) -> GroupView:
        others = [m for p in self.pods if p is not pod and (m := p.published) is not None]
        reached, group = self.reached(pod), GtidSet()
        for one in reached:
            group |= self.member(self.pods[self.alive(one)[0]]).gtids
        me, view_id = self.member(pod), "" if pod.group is None else pod.group.view_id
        return GroupView(
            own=me,
            store=store,
            others=others,
            has_majority=pod.group is not None and self.serves(pod.group),
            group_executed=group if reached and me.state == "Offline" else None,
            quorum_lost=not any(map(self.serves, reached)),
            is_superseded=pod.group is not None and pod.group_epoch.is_superseded(store, view_id),
            yields_to_equals=not self.impatient,
        )

    def reached(self, pod: SimulatedInstance) -> list[BootstrappedGroup]:
        """The groups of which it finds a member, whether or not they serve."""
        return [g for g in self.groups if (alive := self.alive(g)) and self.cut_off.isdisjoint(alive)]

    def loss_of(self, view: GroupView) -> RecoveryConsent:
        lacks = frozenset(n for n in range(1, self.made + 1) if view.missing_gtids >= self.gtids({n}))
        return RecoveryConsent(view.store.epoch, view.own.instance, lacks, frozenset(view.unseen_instances))

    def act(self, number: int) -> None:
        """The next step of what was decided."""
        pod = self.pods[number]
        if not pod.steps:
            return
        step = pod.steps.pop(0)
        {
            "initialise": self.initialise,
            "clone": self.clone,
            "start": self.start,
            "say joining": self.say_joining,
            "swap": self.write_store,
            "found": self.bootstrap,
            "join": self.join,
            "record": self.record,
            "leave": self.leave,
            "look as leader": self.look_as_leader,
            "lead": self.publish_leader,
        }[step](pod)

    def initialise(self, pod: SimulatedInstance) -> None:
        pod.durable, pod.uuid = set(), f"server-{pod.number}-{self.version}"

    def clone(self, pod: SimulatedInstance) -> None:
        assert pod.decision is not None and pod.decision.target is not None
        donor = self.pods[pod.decision.target]
        if donor.group in self.reached(pod) and self.serves(donor.group):
            pod.durable = self.has(donor)
            pod.uuid = f"server-{pod.number}-{self.version}-clone"

    def start(self, pod: SimulatedInstance) -> None:
        pod.running = True

    def say_joining(self, pod: SimulatedInstance) -> None:
        pod.published = self.member(pod, "Joining")

    def compare_and_swap(self, pod: SimulatedInstance, store: GroupState, name: str = "") -> bool:
        """Refused if anybody has written since it was read."""
        if self.version != pod.version or self.store is None:
            pod.restart()
            return False
        self.put(store, name)
        return True

    def write_store(self, pod: SimulatedInstance) -> None:
        view = pod.view
        assert view is not None
        pod.name = next_group_name(view, pod.name)
        to = replace(
            view.store.with_member(pod.number),
            epoch=view.epoch + 1,
            leader=pod.number,
            leader_uuid=pod.uuid,
            leader_view="",
            forced_recovery_instance=None,
        )
        if not self.compare_and_swap(pod, to, pod.name):
            return
        pod.group_epoch.enter(to.epoch)
        if not self.lost_volumes:
            assert to.epoch > max((g.epoch for g in self.groups), default=0), "an epoch is used again"
        missing = self.acknowledged - (pod.durable or set())
        if view.is_forced:
            self.check_consent(view.store.epoch, missing)
            self.acknowledged -= missing
            self.valid_from = to.epoch
        elif not self.lost_volumes:
            assert not missing, "a founder lacks what was acknowledged"

    def check_consent(self, epoch: int, missing: set[int]) -> None:
        """It was for this outage, and what is lost with it was named. Whoever may be in a group is given up."""
        given = self.consented
        assert given is not None and given.epoch == epoch, "an outdated consent is used"
        if not self.lost_volumes:
            elsewhere = {n for number in given.unseen for n in self.has(self.pods[number])}
            assert missing <= given.lacks | elsewhere, "something is lost that was not named"
        self.used.append(given)

    def bootstrap(self, pod: SimulatedInstance) -> None:
        group = BootstrappedGroup(pod.group_epoch.epoch, pod.name, [pod.number])
        pod.group = group
        self.groups.append(group)

    def record(self, pod: SimulatedInstance) -> None:
        """Who joins for the first time is written down before."""
        assert pod.view is not None
        to = pod.view.store.with_member(pod.number)
        if to == pod.view.store or self.compare_and_swap(pod, to):
            pod.group_epoch.enter(to.epoch)

    def join(self, pod: SimulatedInstance) -> None:
        """Whatever group's members it finds."""
        reached = self.reached(pod)
        if not reached or pod.group is not None:
            return
        group = self.chance.choice(reached)
        if not self.serves(group):
            return
        if pod.number in group.view:
            return  # Its former self has to be put out first.
        primary = self.pods[self.alive(group)[0]]
        if not self.member(primary).gtids >= self.member(pod).gtids:
            return  # MySQL refuses who has more than the group.
        # It can tell by their numbers alone.
        assert self.has(pod) <= self.has(primary), "who has what was given up is taken for one of the group"
        pod.memory |= self.has(primary) - (pod.durable or set())
        group.view.append(pod.number)
        group.number += 1
        pod.group = group

    def leave(self, pod: SimulatedInstance) -> None:
        if pod.group is not None and self.serves(pod.group):
            pod.group.without(pod.number)
        pod.group = None

    def look_as_leader(self, pod: SimulatedInstance) -> None:
        """After it has read the store, as its agent does."""
        known, group = pod.view.store if pod.view else GroupState(), pod.group
        if (
            group is None
            or not self.leads(pod)
            or is_older_view(group.view_id, known.leader_view)
            or pod.group_epoch.is_superseded(known, group.view_id)
        ):
            pod.restart()

    def publish_leader(self, pod: SimulatedInstance) -> None:
        """From here on clients find it."""
        view, group = pod.view, pod.group
        if view is None or group is None:
            return
        to = replace(
            view.store.with_member(pod.number),
            epoch=max(view.store.epoch, pod.group_epoch.epoch, 1),
            leader=pod.number,
            leader_uuid=pod.uuid,
            leader_view=group.view_id,
            forced_recovery_instance=None,
        )
        if self.compare_and_swap(pod, to, group.name):
            assert not self.given_up(group), "clients are led to a group that was given up"

    def one_group(self) -> None:
        serving = [g for g in self.groups if self.serves(g) and not self.given_up(g)]
        assert len(serving) <= 1, "two groups serve"

    def converge(self) -> None:
        """Left alone, they come together again with all data: nobody waits for ever, unless some are gone."""
        self.cut_off.clear()
        for _ in range(60):
            self.operate()
            for pod in self.pods:
                for group in self.groups:
                    if pod.number in group.view and pod.group is not group:
                        # A majority puts it out; without one, everybody leaves after a time.
                        if self.serves(group):
                            self.expel(pod.number)
                        else:
                            for number in self.alive(group):
                                self.pods[number].group = None
                            group.view.clear()
                if not self.acts(pod.number):
                    continue
                while pod.steps:
                    self.act(pod.number)
                for _ in range(2):
                    self.agent(pod.number)
        if self.lost_volumes:
            return
        for pod in (pod for pod in self.pods if pod.group is not None and self.serves(pod.group)):
            assert self.acknowledged <= self.has(pod), "who is in the group lacks what was acknowledged"
        if self.used:
            return
        whole = [pod for pod in self.pods if pod.number not in self.never_runs]
        assert [self.state(pod) for pod in whole] == ["Online"] * len(whole), [
            (pod.number, self.state(pod), pod.decision) for pod in whole
        ]

    def agent(self, number: int) -> None:
        """The next thing that an agent does, whatever that is."""
        pod = self.pods[number]
        if pod.steps:
            self.act(number)
        elif pod.store is not None:
            self.list_pods(number)
        else:
            self.publish(number)
            self.read_store(number)
