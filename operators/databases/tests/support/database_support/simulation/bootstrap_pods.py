"""What `founding_world` is made of: groups, pods with their volumes, and what a person has consented to."""

from __future__ import annotations

from dataclasses import dataclass, field

from steersman_agent.group.decision import GroupMember, GroupState, GroupView, MemberDecision
from steersman_agent.group.leader import GroupEpoch


@dataclass(eq=False)
class BootstrappedGroup:
    """One that was founded, with the members of its present view; the first of them is its primary."""

    epoch: int
    name: str
    view: list[int]
    number: int = 1

    @property
    def view_id(self) -> str:
        return f"{self.epoch + 1000}:{self.number}"

    def without(self, number: int) -> None:
        self.view.remove(number)
        self.number += 1


class VolumeEpoch(GroupEpoch):
    """The epoch that a volume remembers."""

    def __init__(self) -> None:
        self.epoch = 0

    def enter(self, epoch: int) -> None:
        self.epoch = epoch


@dataclass(frozen=True)
class RecoveryConsent:
    """A person's, with the loss as it was told."""

    epoch: int
    instance: int
    lacks: frozenset[int]
    unseen: frozenset[int]


@dataclass
class SimulatedInstance:
    """A pod: its volume, its server, what it has published, and what its agent is about.

    Transactions are told apart by what they write, not by how they are numbered.
    """

    number: int
    durable: set[int] | None = None
    memory: set[int] = field(default_factory=set[int])
    running: bool = False
    group: BootstrappedGroup | None = None
    uuid: str = ""
    published: GroupMember | None = None
    acknowledged_consent: RecoveryConsent | None = None
    group_epoch: VolumeEpoch = field(default_factory=VolumeEpoch)
    # What the agent has read and decided so far: each of its steps is one rule, so that anything may come between.
    # `name` is the group's as the store has it.
    store: GroupState | None = None
    version: int = 0
    name: str = ""
    view: GroupView | None = None
    decision: MemberDecision | None = None
    steps: list[str] = field(default_factory=list[str])

    def crash(self) -> None:
        """The container ends and is started again. What it had published stays."""
        self.running = False
        self.memory.clear()
        if self.group is not None and self.number in self.group.view and len(self.group.view) == 1:
            self.group.view.clear()
        self.group = None
        self.restart()

    def restart(self) -> None:
        self.store, self.view, self.decision, self.steps = None, None, None, []
