"""Agents of three instances that are interrupted anywhere: there are never two groups, and no founder lacks a write.

The group itself is modelled as MySQL promises it: who has a majority of its view serves; what was acknowledged is on
the primary's disk, and with the others in memory alone until they have written it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from steersman_agent.decision import Decision, Member, State, Store, View, decide
from steersman_agent.gtids import GtidSet

GROUP = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
SIZE = 3
STEPS = 600


def gtids(of: set[int]) -> GtidSet:
    return GtidSet.parse(",".join(f"{GROUP}:{n}" for n in of))


@dataclass
class Group:
    """One that was founded, with the members of its present view; the first of them is its primary."""

    view: list[int]


@dataclass
class Instance:
    """A pod: its volume, its server, what it has published, and what its agent is about."""

    number: int
    durable: set[int] | None = None
    memory: set[int] = field(default_factory=set[int])
    running: bool = False
    group: Group | None = None
    uuid: str = ""
    published: Member | None = None
    # What the agent has read and decided so far: each of its steps is one rule, so that anything may come between.
    store: Store | None = None
    version: int = 0
    decision: Decision | None = None
    steps: list[str] = field(default_factory=list[str])

    def crash(self) -> None:
        """The container ends and is started again. What it had published stays."""
        self.running = False
        self.memory.clear()
        if self.group is not None and self.number in self.group.view and len(self.group.view) == 1:
            self.group.view.clear()
        self.group = None
        self.forget()

    def forget(self) -> None:
        self.store, self.decision, self.steps = None, None, []


class World:
    """The pods, the store, and the groups there have been."""

    def __init__(self, *, hasty: bool) -> None:
        # Who may found goes first by a rule, which both know. What keeps two groups apart must not be that rule.
        self.hasty = hasty
        self.pods = [Instance(n) for n in range(SIZE)]
        self.store = Store(instances=frozenset(range(SIZE)))
        self.version = 0
        self.groups: list[Group] = []
        self.acknowledged: set[int] = set()
        self.lost_volumes = False
        self.made = 0

    # What MySQL does.

    def alive(self, group: Group) -> list[int]:
        """Those of the view that are still there."""
        return [n for n in group.view if self.pods[n].group is group]

    def serves(self, group: Group) -> bool:
        return len(self.alive(group)) * 2 > len(group.view)

    def state(self, pod: Instance) -> State:
        if pod.durable is None:
            return "Empty"
        if not pod.running:
            return "Stopped"
        return "Offline" if pod.group is None else "Online"

    def member(self, pod: Instance, state: State | None = None) -> Member:
        state = state or self.state(pod)
        primary = state == "Online" and pod.group is not None and pod.group.view[:1] == [pod.number]
        has = gtids((pod.durable or set()) | pod.memory)
        return Member(instance=pod.number, state=state, primary=primary, uuid=pod.uuid, gtids=has)

    def write(self) -> None:
        """A client writes through a primary that has its majority."""
        serving = [g for g in self.groups if self.serves(g)]
        if not serving:
            return
        group = serving[0]
        primary = self.pods[self.alive(group)[0]]
        self.made += 1
        # A new primary applies what it has received before it takes writes (BEFORE_ON_PRIMARY_FAILOVER).
        self.flush(primary.number)
        assert primary.durable is not None
        primary.durable.add(self.made)
        for number in self.alive(group):
            if number != primary.number:
                self.pods[number].memory.add(self.made)
        self.acknowledged.add(self.made)

    def flush(self, number: int) -> None:
        """What a replica has in memory gets to its disk."""
        pod = self.pods[number]
        if pod.durable is not None:
            pod.durable |= pod.memory
            pod.memory.clear()

    def expel(self, number: int) -> None:
        """The group puts out who does not answer."""
        group = next((g for g in self.groups if number in g.view and self.serves(g)), None)
        if group is not None and self.pods[number].group is not group:
            group.view.remove(number)
            self.elected(group)

    def elected(self, group: Group) -> None:
        """A new primary says so in the store, when it can; it always can here."""
        if group.view:
            leader = self.pods[group.view[0]]
            self.put(replace(self.store, leader=leader.number, leader_uuid=leader.uuid))

    def put(self, store: Store) -> None:
        if store != self.store:
            self.store, self.version = store, self.version + 1

    def crash(self, number: int) -> None:
        pod = self.pods[number]
        pod.crash()

    def delete_pod(self, number: int) -> None:
        """The next one has the volume, and has said nothing yet."""
        self.crash(number)
        self.pods[number].published = None

    def lose_volume(self, number: int) -> None:
        """At most one in all; the pod is another then."""
        if self.lost_volumes:
            return
        pod = self.pods[number]
        pod.crash()
        pod.durable, pod.uuid, pod.published = None, "", None
        self.lost_volumes = True

    # What the agent does, a step at a time.

    def publish(self, number: int) -> None:
        """Says what it finds of itself; who is about to join has said so, and takes nothing back meanwhile."""
        pod = self.pods[number]
        if not pod.steps:
            pod.published = self.member(pod)

    def read_store(self, number: int) -> None:
        pod = self.pods[number]
        if not pod.steps:
            pod.store, pod.version = self.store, self.version

    def list_pods(self, number: int) -> None:
        """And decides what to do; then does it in steps."""
        pod = self.pods[number]
        if pod.store is None or pod.steps:
            return
        others = [m for p in self.pods if p is not pod and (m := p.published) is not None]
        serving = [g for g in self.groups if self.serves(g)]
        group = self.member(self.pods[self.alive(serving[0])[0]]).gtids if serving else None
        majority = pod.group is not None and self.serves(pod.group)
        view = View(me=self.member(pod), store=pod.store, members=others, majority=majority, group=group)
        pod.decision = decide(view)
        if self.hasty and "goes first" in pod.decision.because:
            pod.decision = Decision("Found", "nobody may have to wait for politeness")
        pod.steps = {
            "Initialise": ["initialise"],
            "Clone": ["clone"],
            "Start": ["start"],
            "Found": ["say joining", "swap", "found"],
            "Join": ["say joining", "join"],
        }.get(pod.decision.deed, [])
        pod.store = None

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
            "swap": self.swap,
            "found": self.found,
            "join": self.join,
        }[step](pod)

    def initialise(self, pod: Instance) -> None:
        pod.durable, pod.uuid = set(), f"server-{pod.number}-{self.version}"

    def clone(self, pod: Instance) -> None:
        assert pod.decision is not None and pod.decision.to is not None
        donor = self.pods[pod.decision.to]
        if self.state(donor) == "Online" and donor.group is not None and self.serves(donor.group):
            pod.durable = set(donor.durable or ()) | donor.memory
            pod.uuid = f"server-{pod.number}-{self.version}-clone"

    def start(self, pod: Instance) -> None:
        pod.running = True

    def say_joining(self, pod: Instance) -> None:
        pod.published = self.member(pod, "Joining")

    def swap(self, pod: Instance) -> None:
        """Refused if anybody has written since it was read."""
        if self.version != pod.version:
            pod.forget()
            return
        self.put(replace(self.store, epoch=self.store.epoch + 1, leader=pod.number, leader_uuid=pod.uuid))

    def found(self, pod: Instance) -> None:
        group = Group([pod.number])
        pod.group = group
        self.groups.append(group)
        if not self.lost_volumes:
            assert self.acknowledged <= (pod.durable or set()), "a founder lacks what was acknowledged"

    def join(self, pod: Instance) -> None:
        serving = [g for g in self.groups if self.serves(g)]
        if not serving or pod.group is not None:
            return
        group = serving[0]
        if pod.number in group.view:
            return  # Its former self has to be put out first.
        primary = self.pods[self.alive(group)[0]]
        if ((pod.durable or set()) | pod.memory) - ((primary.durable or set()) | primary.memory):
            return  # MySQL refuses who has more than the group.
        pod.memory |= (primary.durable or set()) - (pod.durable or set())
        group.view.append(pod.number)
        pod.group = group

    def one_group(self) -> None:
        assert len([g for g in self.groups if self.alive(g) and self.serves(g)]) <= 1, "two groups serve"

    def settle(self) -> None:
        """Left alone, they come together again: nobody waits for ever, unless data were lost."""
        if self.lost_volumes:
            return
        for _ in range(40):
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
                while pod.steps:
                    self.act(pod.number)
                self.publish(pod.number)
                self.read_store(pod.number)
                self.list_pods(pod.number)
        assert [self.state(pod) for pod in self.pods] == ["Online"] * SIZE, [
            (pod.number, self.state(pod), pod.decision) for pod in self.pods
        ]
        held = [(pod.durable or set()) | pod.memory for pod in self.pods]
        assert all(self.acknowledged <= one for one in held)

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


@pytest.mark.parametrize("seed", range(60))
def test_founding(seed: int) -> None:
    chance, world = random.Random(seed), World(hasty=seed % 2 == 0)
    for _ in range(STEPS):
        number = chance.randrange(SIZE)
        match chance.randrange(100):
            case 0 | 1:
                for each in range(SIZE):
                    world.crash(each)
            case 2 | 3 | 4:
                world.crash(number)
            case 5 if seed % 3 == 0:
                world.lose_volume(number)
            case 6:
                world.delete_pod(number)
            case 7 | 8 | 9:
                world.expel(number)
            case 10 | 11 | 12 | 13 | 14 | 15:
                world.write()
            case 16 | 17 | 18:
                world.flush(number)
            case _:
                world.agent(number)
        world.one_group()
    world.settle()
