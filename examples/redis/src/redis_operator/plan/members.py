"""Input of the planner: pods with the reports of their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from redis_operator.nodes import ALL_SLOTS, Address, NodeEntry, NodeReport, Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Desired state of the cluster.

    Attributes:
        replicas: the declared number of nodes.
        pods: the replicas of the StatefulSet. More than ``replicas`` until leaving nodes are empty.
        replicas_per_master: the minimum number of replicas of each master.
        abandoned_nodes: node IDs of lost nodes whose slots may be assigned again without their keys.
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
        name: the name of the pod.
        uid: the UID of the pod.
        ordinal: the ordinal of the pod.
        address: the address of the pod. None until it has an IP.
        node_name: the Kubernetes node of the pod.
        leaving: True if the ordinal is beyond the declared number of nodes.
        ready: True if the kubelet reports the pod as ready.
        outdated: True if image or configuration differ from the declared ones.
        rejects_password: True if the node is reachable and rejects the password.
        report: the report of the node. None if the node is unreachable.
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
        """Return True if it knows no other node."""
        return self.report is not None and not self.report.others


@dataclass(frozen=True)
class ClusterView:
    """All members, with facts that follow from their reports."""

    goal: Goal
    members: tuple[Member, ...]

    @cached_property
    def reachable(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.report is not None)

    @cached_property
    def remaining(self) -> tuple[Member, ...]:
        """Reachable members that stay."""
        return tuple(m for m in self.reachable if not m.leaving)

    @cached_property
    def leaving(self) -> tuple[Member, ...]:
        """Reachable members that leave and are still part of the cluster."""
        return tuple(m for m in self.reachable if m.leaving and not m.is_isolated)

    @cached_property
    def active(self) -> tuple[Member, ...]:
        return self.remaining + self.leaving

    @cached_property
    def by_id(self) -> dict[str, Member]:
        return {m.id: m for m in self.reachable}

    @cached_property
    def all_reachable(self) -> bool:
        """Return True if every declared and every existing pod is reachable."""
        return not self.has_unreachable and len(self.remaining) >= self.goal.replicas

    @cached_property
    def has_unreachable(self) -> bool:
        """Return True if an existing or expected pod is unreachable."""
        return len(self.reachable) < max(len(self.members), self.goal.pods)

    @cached_property
    def unknown_nodes(self) -> dict[str, NodeEntry]:
        """Known nodes that match no reachable pod, by node ID."""
        reports = [m.report for m in self.active if m.report is not None]
        entries = (entry for report in reports for entry in report.others.values())
        return {entry.id: entry for entry in entries if entry.id not in self.by_id}

    @cached_property
    def unknown_nodes_with_slots(self) -> list[NodeEntry]:
        """Unknown nodes that own slots or are the target of a move."""
        receiving = {target for m in self.active for target in m.myself.migrating.values()}
        return [entry for entry in self.unknown_nodes.values() if entry.slots or entry.id in receiving]

    def replicas_of(self, node: str) -> list[Member]:
        return [m for m in self.active if not m.is_master and m.myself.master == node]


def unowned_slots(view: ClusterView) -> Slots:
    """Return the slots that no member and no unknown node owns."""
    unknown_slots = (entry.slots for entry in view.unknown_nodes.values())
    return ALL_SLOTS - Slots.union(m.myself.slots for m in view.active) - Slots.union(unknown_slots)


def count_replicas(members: Iterable[Member]) -> Counter[str]:
    """Return the number of replicas of each master, by node ID."""
    return Counter(m.myself.master for m in members if not m.is_master)
