"""Steps of the planner. Each can be interrupted and planned again from the state that it left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from redis_operator.api.v1.rediscluster import Phase
from redis_operator.nodes import Slots
from redis_operator.plan.members import Member


@dataclass(frozen=True, slots=True)
class Done:
    """The cluster has its desired state."""

    reason = "AsDeclared"
    phase: ClassVar[Phase] = "Ready"

    @property
    def message(self) -> str:
        return "all slots are served, and every node is as declared"


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for another component or for the user. ``message`` says for what."""

    reason: str
    message: str
    phase: Phase = "Waiting"


@dataclass(frozen=True, slots=True)
class Meet:
    """``target`` adds other nodes by their current addresses."""

    target: Member
    others: tuple[Member, ...]
    reason = "NodesMeet"
    phase: ClassVar[Phase] = "Forming"

    @property
    def message(self) -> str:
        return f"{self.target.name} meets {member_names(self.others)}"


@dataclass(frozen=True, slots=True)
class Forget:
    """``members`` forget a removed node and its slots."""

    members: tuple[Member, ...]
    node_id: str
    reason = "NodeForgotten"
    phase: ClassVar[Phase] = "Scaling"

    @property
    def message(self) -> str:
        return f"{member_names(self.members)} forget the removed node {self.node_id}"


@dataclass(frozen=True, slots=True)
class AddSlots:
    """Assigns slots without an owner to masters."""

    shares: tuple[tuple[Member, Slots], ...]
    reason = "SlotsAssigned"
    phase: ClassVar[Phase] = "Forming"

    @property
    def message(self) -> str:
        assigned = (f"{len(slots)} to {m.name}" for m, slots in self.shares)
        return f"slots without an owner are assigned: {', '.join(assigned)}"


@dataclass(frozen=True, slots=True)
class Move:
    """Moves slots with their keys from one master to another."""

    source: Member
    target: Member
    slots: tuple[int, ...]
    reason = "SlotsMoved"
    phase: ClassVar[Phase] = "Scaling"

    @property
    def message(self) -> str:
        return f"{len(self.slots)} slots with their keys move from {self.source.name} to {self.target.name}"


@dataclass(frozen=True, slots=True)
class Release:
    """``target`` cancels the move of slots whose counterpart no longer exists."""

    target: Member
    slots: tuple[int, ...]
    reason = "MoveEnded"
    phase: ClassVar[Phase] = "Scaling"

    @property
    def message(self) -> str:
        return f"{self.target.name} no longer moves {len(self.slots)} slots"


@dataclass(frozen=True, slots=True)
class Failover:
    """A replica replaces its master, without coordination if it is ``lost``."""

    target: Member
    cause: str
    lost: bool = False
    phase: Phase = "Scaling"
    reason = "FailedOver"

    @property
    def message(self) -> str:
        return f"{self.target.name} takes the place of its master: {self.cause}"


@dataclass(frozen=True, slots=True)
class Replicate:
    """Assigns nodes as replicas. Each pair is a node and its new master."""

    pairs: tuple[tuple[Member, Member], ...]
    reason = "ReplicaAssigned"
    phase: ClassVar[Phase] = "Forming"

    @property
    def message(self) -> str:
        return ", ".join(f"{m.name} becomes a replica of {master.name}" for m, master in self.pairs)


@dataclass(frozen=True, slots=True)
class Reset:
    """``target`` leaves the cluster and becomes an empty master.

    A ``hard`` reset also changes its node ID.
    """

    target: Member
    hard: bool
    reason = "NodeReset"
    phase: ClassVar[Phase] = "Scaling"

    @property
    def message(self) -> str:
        return (
            f"{self.target.name} leaves the cluster" if self.hard else f"{self.target.name} becomes an empty master"
        )


@dataclass(frozen=True, slots=True)
class ScaleIn:
    """Removes the pods beyond the declared number, which have left the cluster."""

    replicas: int
    reason = "ScaledIn"
    phase: ClassVar[Phase] = "Scaling"

    @property
    def message(self) -> str:
        return f"the StatefulSet has {self.replicas} replicas"


@dataclass(frozen=True, slots=True)
class Replace:
    """Deletes a pod. The StatefulSet controller recreates it with the declared configuration."""

    target: Member
    reason = "PodReplaced"
    phase: ClassVar[Phase] = "Updating"

    @property
    def message(self) -> str:
        return f"pod {self.target.name} is recreated with the declared configuration"


Step = Done | Wait | Meet | Forget | AddSlots | Move | Release | Failover | Replicate | Reset | ScaleIn | Replace


def member_names(members: Iterable[Member]) -> str:
    """Return the names of the members, separated by commas."""
    return ", ".join(m.name for m in members)
