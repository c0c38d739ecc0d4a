"""Members of a cluster: their state, and the requests that they accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from steersman.api.core_v1 import ConfigMap, Pod
from steersman.meta import ObjectKey

MemberState = Literal[
    "Unknown",  # the member has not reported a state yet
    "Starting",  # recovery included
    "Cloning",  # copies the data of another member
    "Running",  # accepts connections; a replica does not stream (yet)
    "Streaming",  # a replica that follows the primary
    "Offline",  # the server runs, but is not in the group
    "Isolated",  # the group has lost quorum: no writes
    "Stopped",
    "Crashed",
    "StartFailed",
]


MAX_CRASHES = 20
"""Number of crashes that a member reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSetting:
    """A parameter that waits for a restart, as the server reports it.

    `previous` is the value that the server still uses.
    """

    name: str
    previous: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredSettings:
    """Parameters that users had set on a server, and the reset's time."""

    time: datetime
    parameters: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One server of a cluster, as it last reported its state.

    Attributes:
        pod: key of the pod. Its name is the member's name, too.
        lag_bytes: distance to the primary, or None if unknown.
        version: full version of the server, such as "17.6".
        synchronous: the member has all committed transactions and may be promoted without loss.
        timeline_diverged: its history differs from the primary's, so that it needs a new copy of the data.
        wal_position: end of its WAL, but only if the primary certainly has all of it and more. None otherwise.
        storage: lower bound of the percentage of use per volume, in coarse steps. At 100 a server cannot write.
        apply_queue: number of transactions that it has received but not applied.
        newer_version: another member runs an older version. Until that changes, requests cannot promote this one.
        errant_gtids: transactions that only this member has, in the engine's notation.
        maybe_errant: it has errant transactions, or may have some.
        rejected: error messages of parameters that the running server refused.
        restored_settings: parameters that users had set last.
        missing_gtids: transactions of other members that would be lost if the cluster continued with its data alone.
        unseen_instances: instances of unknown state that would be lost in this case, or None if not reported.
        restart_deferred: it waits for a restart only for parameters that may wait until the next one.
        state_reason: why it is in its state, as it reports it.
        failing_operation: operation that it retries without success, as it reports it.
        write_error: why the primary accepts no writes, as its own writes show. Empty if they succeed.
        contract: number of the functions that the image has, 0 without a number. None before its first report.
        crashes: times of the last `MAX_CRASHES` crashes since its pod was created, the oldest first.
    """

    pod: ObjectKey
    instance: int
    role: Literal["Primary", "Replica"] = "Replica"
    state: MemberState = "Unknown"
    timeline: int | None = None
    lag_bytes: int | None = None
    synchronous: bool = False
    pending_restart: bool = False
    pending_settings: Sequence[PendingSetting] = ()
    restart_deferred: bool = False
    version: str = ""
    timeline_diverged: bool = False
    wal_position: int | None = None
    storage: Mapping[str, int] = field(default_factory=dict[str, int])
    apply_queue: int | None = None
    newer_version: bool = False
    errant_gtids: str = ""
    maybe_errant: bool = False
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])
    restored_settings: RestoredSettings | None = None
    missing_gtids: str = ""
    unseen_instances: frozenset[int] | None = None
    state_reason: str = ""
    failing_operation: str = ""
    write_error: str = ""
    contract: int | None = None
    crashes: Sequence[datetime] = ()

    @property
    def restart_due(self) -> bool:
        """Return True if a parameter needs a restart now.

        Some parameters may wait until the next restart instead.
        """
        return self.pending_restart and not self.restart_deferred

    @property
    def in_group(self) -> bool:
        """Return True if it serves in a group or lost its quorum."""
        return self.state in ("Running", "Streaming", "Isolated")

    @property
    def disk_full(self) -> bool:
        """Return True if one of its volumes is full."""
        return max(self.storage.values(), default=0) >= 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchoverRequest:
    """A requested switchover that is not complete.

    `to` is an instance, or None for any.
    """

    to: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members of `cluster` and their shared state.

    Attributes:
        leader: instance that holds the leader lock, or held it last if it was not released. Its pod may not exist.
        previous_leader: holder before the lock was released (a stopped cluster), if known.
        leader_term: a text that changes with each new leadership.
        is_initialized: a member has created the data, so that all others must be copies.
        data_identity: PostgreSQL's system identifier, or the name of the MySQL group; empty without data.
        bootstrap_claimed: a member has announced to create the data, and the data are not reported yet.
        lineage: lineage of the data whose leaders and positions the members' state describes.
        epoch: number of times that a new group, for example, started to serve the data.
        switchover_version: version of the ConfigMap on which the last switchover was requested.
        slots_kept_for: instances, existing or not, for which the primary retains WAL until they return.
        slots: replication slots on the primary that its configuration declares.
        settings: the shared configuration as stored, or None if there is none yet.
    """

    cluster: ObjectKey
    members: Sequence[Member] = ()
    leader: int | None = None
    previous_leader: int | None = None
    leader_term: str = ""
    is_initialized: bool = False
    data_identity: str = ""
    bootstrap_claimed: bool = False
    lineage: int = 0
    epoch: int = 0
    switchover_request: SwitchoverRequest | None = None
    switchover_version: str = ""
    slots_kept_for: frozenset[int] = frozenset()
    slots: frozenset[str] = frozenset()
    settings: Mapping[str, Any] | None = None
    dcs_versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """`resourceVersion` of each ConfigMap of the members by name.

    It is the precondition of requests.
    """

    def member(self, instance: int) -> Member | None:
        return next((m for m in self.members if m.instance == instance), None)

    @property
    def last_leader(self) -> int | None:
        """Instance that holds or last held the leader lock, if known."""
        return self.previous_leader if self.leader is None else self.leader

    @property
    def primary(self) -> Member | None:
        """Holder of the leader lock, if it serves as primary."""
        member = None if self.leader is None else self.member(self.leader)
        return member if member is not None and member.role == "Primary" and member.state == "Running" else None


class HaBackend(Protocol):
    """State of an engine's members, and requests to them.

    It holds no state of its own. All requests may be repeated. Their effect shows in `members_of`, never in a
    response.
    """

    def members_of(self, cluster: ObjectKey, pods: Sequence[Pod], dcs_objects: Sequence[ConfigMap]) -> Members:
        """Return the members as Kubernetes objects describe them. No member is contacted.

        Args:
            pods: pods of the cluster.
            dcs_objects: the existing ConfigMaps of `ClusterNames.dcs_of`.
        """
        ...

    def recreated_state(self, cluster: ObjectKey, identity: str) -> tuple[ObjectKey, Mapping[str, str]]:
        """Return the ConfigMap and its annotations, to recreate the members' lost state.

        With them no member initializes an empty volume.

        Args:
            identity: `data_identity` of the data that exist.
        """
        ...

    async def configure(self, members: Members, settings: Mapping[str, Any]) -> bool:
        """Write the shared configuration if it differs from `members.settings`.

        Returns True if it did.

        Raises:
            Conflict: another client wrote since `members` was observed.
        """
        ...

    async def request_switchover(self, members: Members, to: int | None) -> None:
        """Request a switchover to the instance `to`, or to the best one.

        Raises:
            Conflict: another client wrote since `members` was observed.
        """
        ...

    async def clear_initialize(self, members: Members) -> None:
        """Accept the next leader's data, although another member created the cluster.

        Called while no member runs.
        """
        ...

    async def begin_lineage(self, members: Members, lineage: int) -> None:
        """Forget leaders and positions of data that a restore in place replaced.

        Called while no member runs. It can be repeated until `members.lineage` shows it.

        Raises:
            Conflict: another client wrote since `members` was observed.
        """
        ...

    async def record_lineage(self, members: Members, lineage: int) -> None:
        """Record the lineage of running members, and forget nothing."""
        ...

    async def reserve_timeline(self, members: Members, newest: int) -> int:
        """Return the number of a new timeline, which no promotion will use.

        Args:
            newest: a known timeline.
        """
        ...

    async def restart_server(self, members: Members, member: Member) -> None:
        """Restart the server of `member` in its pod. Raises EngineError."""
        ...

    async def reload(self, members: Members, member: Member) -> None:
        """Reload certificates and the member's own configuration. Raises ServerUnreachable."""
        ...
