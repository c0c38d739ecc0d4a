"""Who the members of a cluster are, what they do, and how they are asked to do something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from steersman.api.core_v1 import ConfigMap, Pod
from steersman.meta import ObjectKey

MemberState = Literal[
    "Unknown",  # it has not said anything yet
    "Starting",  # recovery included
    "Cloning",  # it copies another member's data
    "Running",  # it serves; as a replica it does not stream (yet)
    "Streaming",  # a replica that follows the primary
    "Offline",  # it runs, and is in no group
    "Isolated",  # most of its group does not answer: it takes no writes
    "Stopped",
    "Crashed",
    "StartFailed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSetting:
    """A parameter that waits for the server's restart, as the server tells it; ``former`` is what it runs with."""

    name: str
    former: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Parameters that somebody else had set at a server, and when it was given again what is declared."""

    time: datetime
    parameters: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One server of a cluster, as it last said of itself. ``pod`` is its name too.

    ``lag_bytes`` is behind the primary; None where nobody knows. ``version`` is the server's full one, "17.6".
    ``synchronous``: it has all that was committed, and may be promoted without loss. ``diverged``: its history is not
    the primary's any more, and only a new copy helps. ``behind`` is where its log ends, where the primary's surely
    holds all of it and more; None otherwise. ``storage`` is the percentage of each volume that it uses at least, in
    coarse steps; at 100 a server can write no more. ``queued`` are transactions that it has received and not applied.
    ``newer``: another of its group runs an older version, and as long as one does, this one is not made the primary
    by request. ``errant`` are transactions that the others have not, as its engine writes them; ``apart``: it has
    some, or may have. ``refused`` are
    parameters that the server did not take as it ran, with its words; ``restored`` those that somebody else had set
    last. ``lacks`` and ``unseen`` are what would be lost
    if the cluster went on with its data alone: transactions that others have, and instances of which nobody knows;
    ``unseen`` is None where it has not said.
    ``because`` is why it does what it does, and ``failing`` what it tries in vain, in its own words.
    """

    pod: ObjectKey
    instance: int
    role: Literal["Primary", "Replica"] = "Replica"
    state: MemberState = "Unknown"
    timeline: int | None = None
    lag_bytes: int | None = None
    synchronous: bool = False
    pending_restart: bool = False
    pending: Sequence[PendingSetting] = ()
    version: str = ""
    diverged: bool = False
    behind: int | None = None
    storage: Mapping[str, int] = field(default_factory=dict[str, int])
    queued: int | None = None
    newer: bool = False
    errant: str = ""
    apart: bool = False
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    restored: Restored | None = None
    lacks: str = ""
    unseen: frozenset[int] | None = None
    because: str = ""
    failing: str = ""

    @property
    def in_group(self) -> bool:
        """Whether it serves with others, or did until it lost them."""
        return self.state in ("Running", "Streaming", "Isolated")

    @property
    def full(self) -> bool:
        """Whether one of its volumes is."""
        return max(self.storage.values(), default=0) >= 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchoverRequest:
    """A switchover that was asked for and has not begun, or not ended. ``to`` is an instance, None any."""

    to: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members of ``cluster`` and what they agreed on.

    ``leader`` is the instance that holds the lock, or held it last when nobody released it: its pod may be gone.
    ``former_leader`` is who held it before it was released (a stopped cluster), where that is known.
    ``initialized``: some member has made the data, all others must be copies of them. ``begun``: one said that it
    makes them, and nobody has said since that they are there.
    ``leadership`` is another text each time that somebody begins to lead.
    ``asked`` is the version of the store that the last switchover was asked for on.
    ``kept`` are the instances, there or not, for which the primary keeps its log until they come back.
    ``epoch`` counts how often the data began to be served anew, by a group of members for example.
    ``settings`` is the shared configuration as stored, None where there is none yet.
    """

    cluster: ObjectKey
    members: Sequence[Member] = ()
    leader: int | None = None
    former_leader: int | None = None
    leadership: str = ""
    initialized: bool = False
    begun: bool = False
    epoch: int = 0
    switchover: SwitchoverRequest | None = None
    asked: str = ""
    kept: frozenset[int] = frozenset()
    settings: Mapping[str, Any] | None = None
    store_versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """``resourceVersion`` of each ConfigMap of the store by name: what requests are conditional on."""

    def member(self, instance: int) -> Member | None:
        return next((m for m in self.members if m.instance == instance), None)

    @property
    def last_leader(self) -> int | None:
        """Who holds the lock, or held it last, as far as that is known."""
        return self.former_leader if self.leader is None else self.leader

    @property
    def primary(self) -> Member | None:
        """The holder of the lock, if it says that it serves as primary."""
        member = None if self.leader is None else self.member(self.leader)
        return member if member is not None and member.role == "Primary" and member.state == "Running" else None


class Topology(Protocol):
    """What the members of an engine's clusters are and do. It holds no state of its own.

    What it is asked to do is a request that may be made again; that it happened is seen by `observe`, never by an
    answer.
    """

    def observe(self, cluster: ObjectKey, pods: Sequence[Pod], store: Sequence[ConfigMap]) -> Members:
        """The members as the objects of Kubernetes tell them: no member is called.

        Args:
            pods: the cluster's.
            store: those of `ClusterNames.store_of` that are there.
        """
        ...

    async def configure(self, members: Members, settings: Mapping[str, Any]) -> bool:
        """Write `ClusterEngine.settings` where they differ from ``members.settings``; says whether they did.

        Raises Conflict if somebody else wrote since ``members`` was observed.
        """
        ...

    async def switch_over(self, members: Members, to: int | None) -> None:
        """Ask the primary to hand over to the instance ``to``, or to the best. Raises as `configure` does."""
        ...

    async def forget_data(self, members: Members) -> None:
        """Let the next leader's data be the cluster's, although others made them: asked while no member runs."""
        ...

    async def restart_server(self, members: Members, member: Member) -> None:
        """Restart the server of ``member`` in its pod. Raises EngineError."""
        ...

    async def reload(self, members: Members, member: Member) -> None:
        """Read files again: certificates, and the member's own configuration. Raises ServerUnreachable."""
        ...
