"""Read replicas of a cluster: instances that never become primary."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from steersman.meta import Duration, Field, FrozenStruct, Rule, exactly_one_of, schema

ReadReplicaReason = Literal[
    "Fixed",
    "AtTarget",
    "Stabilizing",
    "ScaledOut",
    "ScaledDown",
    "WaitingForCopy",
    "AtMaximum",
    "AtMinimum",
    "LoadUnknown",
    "Hibernated",
]
MAX_SENDERS = 9
"""Instances and read replicas of a cluster. A server has 10 WAL senders, and a base copy uses two."""


def _duration(least: str, most: str) -> tuple[Rule, ...]:
    rule = f"duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
    return (Rule(rule=rule, message=f"must be from {least} to {most}"),)


@schema(rules=[exactly_one_of("cpuPercent", "connections")])
class ReadReplicaTarget(FrozenStruct):
    """Target load of a read replica, which determines their number."""

    cpu_percent: Annotated[int, Field(ge=1, le=1000, format="int32")] | None = None
    """Average CPU use in percent of the requested CPU.

    Without a request it is in percent of the limit.
    """
    connections: Annotated[int, Field(ge=1, le=100000, format="int32")] | None = None
    """Average number of client connections."""


class ReadReplicaStabilization(FrozenStruct):
    """Time for which the load must call for another number."""

    scale_out: Annotated[Duration, Field(max_length=32, rules=_duration("0s", "24h"))] = Duration("3m")
    """Time before a read replica is added."""
    scale_in: Annotated[Duration, Field(max_length=32, rules=_duration("0s", "168h"))] = Duration("30m")
    """Time before a read replica is removed."""


@schema(
    rules=[
        Rule(
            rule="!has(self.max) || self.max >= self.min",
            message="max must be at least min",
            field_path=".max",
        ),
        Rule(
            rule="!has(self.max) || self.max == self.min || has(self.target)",
            message="a range from min to max needs a target",
            field_path=".target",
        ),
    ]
)
class ReadReplicaSettings(FrozenStruct):
    """Read replicas, and how their number follows the load."""

    min: Annotated[int, Field(ge=1, le=8, format="int32")] = 1
    """Least number of read replicas."""
    max: Annotated[int, Field(ge=1, le=8, format="int32")] | None = None
    """Largest number. Defaults to min, which fixes the number."""
    target: ReadReplicaTarget | None = None
    """Load of a read replica that the number aims at. Needed for a range."""
    max_lag: Annotated[Duration, Field(max_length=32, rules=_duration("10s", "24h"))] = Duration("30s")
    """Largest replication lag for reads, at least 10s. A read replica with more lag leaves the Service -ro."""
    stabilization: ReadReplicaStabilization = ReadReplicaStabilization()
    """Time for which the load must call for another number."""

    @property
    def largest(self) -> int:
        """The largest number, default included."""
        return self.min if self.max is None else max(self.min, self.max)


class ReadReplicasStatus(FrozenStruct):
    """Read replicas as they are."""

    desired: int | None = None
    """Number that the load calls for, within min and max."""
    ready: int | None = None
    """Number that serves reads."""
    last_scale_time: datetime | None = None
    """Time of the last change of the desired number by load."""
    reason: ReadReplicaReason | None = None
    """Reason for the number of read replicas.

    Fixed, AtTarget, Stabilizing, ScaledOut, ScaledDown, WaitingForCopy, AtMaximum, AtMinimum, LoadUnknown or
    Hibernated.
    """
    message: str | None = None
    """Observed load and target, or the problem."""
    scale_out_since: datetime | None = None
    """Time since when the load calls for more."""
    scale_in_since: datetime | None = None
    """Time since when the load calls for fewer."""
