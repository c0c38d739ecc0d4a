"""The nodes of a cluster as its plan sees them: pods, and what Redis says in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from redis_operator.nodes import ALL_SLOTS, Address, NodeEntry, NodeReport, Slots


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
    replicas_per_master: int = 1
    abandoned_nodes: frozenset[str] = frozenset()

    @property
    def masters(self) -> int:
        return self.replicas // (1 + self.replicas_per_master)


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
    node_name: str = ""
    leaving: bool = False
    ready: bool = True
    outdated: bool = False
    rejects_password: bool = False
    report: NodeReport | None = None

    @property
    def myself(self) -> NodeEntry:
        assert self.report is not None
        return self.report.myself

    @property
    def id(self) -> str:
        return self.myself.id

    @property
    def is_master(self) -> bool:
        return self.myself.is_master

    @property
    def is_isolated(self) -> bool:
        """Whether it knows no other node."""
        return self.report is not None and not self.report.others


@dataclass(frozen=True)
class ClusterView:
    """All members, and what follows from their reports."""

    goal: Goal
    members: tuple[Member, ...]

    @cached_property
    def reachable(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.report is not None)

    @cached_property
    def remaining(self) -> tuple[Member, ...]:
        """Those that answer and will not go."""
        return tuple(m for m in self.reachable if not m.leaving)

    @cached_property
    def leaving(self) -> tuple[Member, ...]:
        """Those that answer, will go, and are still part of the cluster."""
        return tuple(m for m in self.reachable if m.leaving and not m.is_isolated)

    @cached_property
    def active(self) -> tuple[Member, ...]:
        return self.remaining + self.leaving

    @cached_property
    def by_id(self) -> dict[str, Member]:
        return {m.id: m for m in self.reachable}

    @cached_property
    def all_reachable(self) -> bool:
        """Whether every pod that there should be answers, and every other that there is."""
        return not self.has_unreachable and len(self.remaining) >= self.goal.replicas

    @cached_property
    def has_unreachable(self) -> bool:
        """Whether a pod does not answer: one that there is, or one that will be made again with its volume."""
        return len(self.reachable) < max(len(self.members), self.goal.pods)

    @cached_property
    def unknown_nodes(self) -> dict[str, NodeEntry]:
        """Nodes that members know and that are no pod of ours any more, or one that does not answer; by their ids."""
        reports = [m.report for m in self.active if m.report is not None]
        entries = (entry for report in reports for entry in report.others.values())
        return {entry.id: entry for entry in entries if entry.id not in self.by_id}

    @cached_property
    def unknown_nodes_with_slots(self) -> list[NodeEntry]:
        """Strangers that have keys: of their slots, or of slots that are on the way to them."""
        receiving = {target for m in self.active for target in m.myself.migrating.values()}
        return [entry for entry in self.unknown_nodes.values() if entry.slots or entry.id in receiving]

    def replicas_of(self, node: str) -> list[Member]:
        return [m for m in self.active if not m.is_master and m.myself.master == node]


def unowned_slots(view: ClusterView) -> Slots:
    """Slots that nobody has: no member, by what it says itself, and no stranger, by what others say."""
    unknown_slots = (entry.slots for entry in view.unknown_nodes.values())
    return ALL_SLOTS - Slots.union(m.myself.slots for m in view.active) - Slots.union(unknown_slots)


def count_replicas(members: Iterable[Member]) -> Counter[str]:
    """How many replicas each master has, by its id."""
    return Counter(m.myself.master for m in members if not m.is_master)
