"""The nodes of a cluster as its plan sees them: pods, and what Redis says in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from redis_operator.nodes import ALL, Address, Entry, Report, Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the user wants.

    Attributes:
        replicas: how many nodes there are.
        pods: how many the StatefulSet makes meanwhile: more, until those that leave may go.
        per_master: how many replicas each master has at least.
        given_up: ids of lost nodes whose slots may be served anew, empty.
    """

    replicas: int
    pods: int
    per_master: int = 1
    given_up: frozenset[str] = frozenset()

    @property
    def masters(self) -> int:
        return self.replicas // (1 + self.per_master)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod of the cluster.

    Attributes:
        ordinal: its number; pods beyond the goal are ``leaving``.
        address: None before it has one.
        place: the Kubernetes node that it runs on.
        ready: what the kubelet thinks of it.
        outdated: it runs another image or configuration than the one that is wanted.
        rejects: it answers, and does not take our password.
        report: what Redis says in it; None where it does not answer.
    """

    name: str
    uid: str = ""
    ordinal: int
    address: Address | None
    place: str = ""
    leaving: bool = False
    ready: bool = True
    outdated: bool = False
    rejects: bool = False
    report: Report | None = None

    @property
    def me(self) -> Entry:
        assert self.report is not None
        return self.report.me

    @property
    def id(self) -> str:
        return self.me.id

    @property
    def is_master(self) -> bool:
        return self.me.is_master

    @property
    def alone(self) -> bool:
        """Whether it knows no other node."""
        return self.report is not None and not self.report.others


@dataclass(frozen=True)
class View:
    """All members, and what follows from their reports."""

    goal: Goal
    members: tuple[Member, ...]

    @cached_property
    def reached(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.report is not None)

    @cached_property
    def staying(self) -> tuple[Member, ...]:
        """Those that answer and will not go."""
        return tuple(m for m in self.reached if not m.leaving)

    @cached_property
    def leaving(self) -> tuple[Member, ...]:
        """Those that answer, will go, and are still part of the cluster."""
        return tuple(m for m in self.reached if m.leaving and not m.alone)

    @cached_property
    def active(self) -> tuple[Member, ...]:
        return self.staying + self.leaving

    @cached_property
    def by_id(self) -> dict[str, Member]:
        return {m.id: m for m in self.reached}

    @cached_property
    def complete(self) -> bool:
        """Whether every pod that there should be answers, and every other that there is."""
        return not self.away and len(self.staying) >= self.goal.replicas

    @cached_property
    def away(self) -> bool:
        """Whether a pod does not answer: one that there is, or one that will be made again with its volume."""
        return len(self.reached) < max(len(self.members), self.goal.pods)

    @cached_property
    def strangers(self) -> dict[str, Entry]:
        """Nodes that members know and that are no pod of ours any more, or one that does not answer; by their ids."""
        reports = [m.report for m in self.active if m.report is not None]
        known = (entry for report in reports for entry in report.others.values())
        return {entry.id: entry for entry in known if entry.id not in self.by_id}

    @cached_property
    def needed(self) -> list[Entry]:
        """Strangers that have keys: of their slots, or of slots that are on the way to them."""
        receiving = {target for m in self.active for target in m.me.migrating.values()}
        return [entry for entry in self.strangers.values() if entry.slots or entry.id in receiving]

    def replicas_of(self, node: str) -> list[Member]:
        return [m for m in self.active if not m.is_master and m.me.master == node]


def unowned(view: View) -> Slots:
    """Slots that nobody has: no member, by what it says itself, and no stranger, by what others say."""
    strangers = (entry.slots for entry in view.strangers.values())
    return ALL - Slots.union(m.me.slots for m in view.active) - Slots.union(strangers)


def count_replicas(members: Iterable[Member]) -> Counter[str]:
    """How many replicas each master has, by its id."""
    return Counter(m.me.master for m in members if not m.is_master)
