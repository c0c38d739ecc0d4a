"""What can be done next. Each step may be cut off anywhere and be planned again from what is then there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from redis_operator.api.v1.rediscluster import Phase
from redis_operator.nodes import Slots
from redis_operator.plan.members import Member


@dataclass(frozen=True, slots=True)
class Done:
    """All is as it should be."""

    reason = "AsDeclared"
    phase: ClassVar[Phase] = "Ready"

    @property
    def message(self) -> str:
        return "all slots are served, and every node is as declared"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done until something else happens; ``message`` says what, and what the user can do."""

    reason: str
    message: str
    phase: Phase = "Waiting"


@dataclass(frozen=True, slots=True)
class Meet:
    """``at`` gets to know others, by their addresses of today."""

    target: Member
    others: tuple[Member, ...]
    reason = "NodesMeet"
    phase: ClassVar[Phase] = "Forming"

    @property
    def message(self) -> str:
        return f"{self.target.name} meets {member_names(self.others)}"


@dataclass(frozen=True, slots=True)
class Forget:
    """``at`` all forget a node that is gone, and its slots where it has any."""

    members: tuple[Member, ...]
    node_id: str
    reason = "NodeForgotten"
    phase: ClassVar[Phase] = "Scaling"

    @property
    def message(self) -> str:
        return f"{member_names(self.members)} forget node {self.node_id}, which is gone"


@dataclass(frozen=True, slots=True)
class AddSlots:
    """Slots that nobody has go to masters."""

    shares: tuple[tuple[Member, Slots], ...]
    reason = "SlotsAssigned"
    phase: ClassVar[Phase] = "Forming"

    @property
    def message(self) -> str:
        assigned = (f"{len(slots)} to {m.name}" for m, slots in self.shares)
        return f"slots that nobody had are given: {', '.join(assigned)}"


@dataclass(frozen=True, slots=True)
class Move:
    """Slots go from one master to another, with their keys."""

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
    """``at`` ends the move of slots that were to go nowhere any more."""

    target: Member
    slots: tuple[int, ...]
    reason = "MoveEnded"
    phase: ClassVar[Phase] = "Scaling"

    @property
    def message(self) -> str:
        return f"{self.target.name} no longer moves {len(self.slots)} slots"


@dataclass(frozen=True, slots=True)
class Failover:
    """A replica takes the place of its master: in concert with it, or without it where it is ``lost``."""

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
    """Nodes become replicas, each of the master beside it."""

    pairs: tuple[tuple[Member, Member], ...]
    reason = "ReplicaAssigned"
    phase: ClassVar[Phase] = "Forming"

    @property
    def message(self) -> str:
        return ", ".join(f"{m.name} becomes a replica of {master.name}" for m, master in self.pairs)


@dataclass(frozen=True, slots=True)
class Reset:
    """``at`` leaves the cluster and becomes an empty master: a new node (``hard``), or the same."""

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
    """The pods beyond the goal are no part of the cluster any more, and can go."""

    replicas: int
    reason = "ScaledIn"
    phase: ClassVar[Phase] = "Scaling"

    @property
    def message(self) -> str:
        return f"only {self.replicas} pods are left"


@dataclass(frozen=True, slots=True)
class Replace:
    """A pod is deleted; the StatefulSet makes it again, as it is now wanted."""

    target: Member
    reason = "PodReplaced"
    phase: ClassVar[Phase] = "Updating"

    @property
    def message(self) -> str:
        return f"pod {self.target.name} is replaced by one as now declared"


Step = Done | Wait | Meet | Forget | AddSlots | Move | Release | Failover | Replicate | Reset | ScaleIn | Replace


def member_names(members: Iterable[Member]) -> str:
    """For a sentence."""
    return ", ".join(m.name for m in members)
