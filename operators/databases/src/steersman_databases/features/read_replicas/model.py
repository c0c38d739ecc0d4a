"""Decisions about read replicas: number by load, and next change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from steersman.meta import Quantity
from steersman_databases.api.read_replicas import ReadReplicaReason, ReadReplicaSettings, ReadReplicasStatus

SCALE_IN_MARGIN = 0.9
"""Fraction of the target below which one read replica is removed.

The others must stay below it. Otherwise it would be added again.
"""
STARTUP_TIME = timedelta(minutes=5)
"""Time that a new pod has to report its state. One that does not, such as an unschedulable one, blocks no other."""


UNSCHEDULABLE_TIME = timedelta(minutes=15)
"""Time after which an unschedulable pod gets another volume.

Its node may be lost, with the volume.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReplicaReport:
    """Report of a read replica's program.

    Attributes:
        state: Waiting, Copying, Starting, Streaming, Disconnected or Stopping.
        cpu_cores: average use in the last minute.
        connections: of clients.
    """

    state: str
    cpu_cores: float | None = None
    connections: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReplica:
    """A read replica with its objects.

    Attributes:
        exists: its StatefulSet exists.
        ready: its pod serves reads.
        outdated: its pod was created for another template.
        age: of its pod, or of its StatefulSet without a pod.
        unscheduled: time for which its pod cannot be scheduled, on an existing volume.
        report: None if it does not respond.
    """

    number: int
    exists: bool = True
    ready: bool = False
    outdated: bool = False
    age: timedelta = timedelta(0)
    unscheduled: timedelta = timedelta(0)
    report: ReadReplicaReport | None = None

    @property
    def is_settling(self) -> bool:
        """Return True if it copies, catches up, or is new."""
        if self.ready or not self.exists:
            return False
        if self.age < STARTUP_TIME:
            return True
        return self.report is not None and self.report.state in ("Copying", "Starting")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLoad:
    """Load of the ready read replicas.

    Attributes:
        ready: their numbers.
        values: what they reported, in the unit of `target`.
    """

    ready: frozenset[int]
    values: Sequence[float]
    target: float
    unit: str
    problem: str = ""

    @property
    def is_known(self) -> bool:
        """Return True if at least one reports its load."""
        return not self.problem and bool(self.values)

    @property
    def calls_for_more(self) -> bool:
        """Return True if the average is above the target.

        Read replicas without a report count as idle.
        """
        return sum(self.values) / len(self.ready) > self.target

    def calls_for_fewer(self, desired: int) -> bool:
        """Return True if all but the last one could bear the load.

        They must be ready, and count as loaded without a report. The last one, which is removed, need not be
        ready: a pod that cannot be scheduled does not keep the number up.
        """
        total = sum(self.values) + self.target * (len(self.ready) - len(self.values))
        others = max(desired - 1, 1)
        return self.ready.issuperset(range(desired - 1)) and total / others < SCALE_IN_MARGIN * self.target

    @property
    def description(self) -> str:
        """The load in a clause."""
        if not self.is_known:
            return self.problem or "no read replica reports its load"
        average = sum(self.values) / len(self.values)
        replicas = "1 read replica" if len(self.values) == 1 else f"{len(self.values)} read replicas"
        return (
            f"the average of {replicas} is {average:.0f}{self.unit}, and the target is {self.target:.0f}{self.unit}"
        )


def observed_load(
    settings: ReadReplicaSettings, replicas: Iterable[ReadReplica], requests: Mapping[str, int | str]
) -> ObservedLoad | None:
    """Return the load by the declared target, or None without a target.

    Args:
        requests: requested resources of a server, or its limits.
    """
    target = settings.target
    if target is None:
        return None
    serving = [r for r in replicas if r.ready]
    ready = frozenset(r.number for r in serving)
    reports = [r.report for r in serving if r.report is not None]
    if target.connections is not None:
        values = [float(r.connections) for r in reports if r.connections is not None]
        return ObservedLoad(ready=ready, values=values, target=target.connections, unit=" connections")
    requested = float(Quantity(str(requests["cpu"])).value) if "cpu" in requests else 0.0
    percent = [r.cpu_cores / requested * 100 for r in reports if r.cpu_cores is not None and requested]
    problem = "" if requested else "target.cpuPercent needs a CPU request or limit in spec.resources"
    cpu_percent = target.cpu_percent or 0
    return ObservedLoad(
        ready=ready, values=percent, target=cpu_percent, unit=" % of the requested CPU", problem=problem
    )


def next_status(
    settings: ReadReplicaSettings,
    previous: ReadReplicasStatus,
    load: ObservedLoad | None,
    *,
    settling: bool,
    now: datetime,
) -> ReadReplicasStatus:
    """Return the status with the desired number.

    It changes by one at a time. The windows are those of `previous`, so a restart of the operator changes nothing.

    Args:
        load: None without a target.
        settling: a read replica is being copied or has not caught up, so none is added.
    """
    status = _next(settings, previous, load, settling=settling, now=now)
    # The load changes all the time. Its description stays until there is another reason.
    same = (status.reason, status.desired) == (previous.reason, previous.desired)
    return replace(status, message=previous.message) if same and previous.message else status


def _next(
    settings: ReadReplicaSettings,
    previous: ReadReplicasStatus,
    load: ObservedLoad | None,
    *,
    settling: bool,
    now: datetime,
) -> ReadReplicasStatus:
    declared = max(settings.min, min(previous.desired or settings.min, settings.largest))
    status = replace(previous, desired=declared)
    if load is None or settings.min == settings.largest:
        return _without_windows(status, "Fixed", f"the declared number is {declared}")
    if not load.is_known or not load.ready:
        return _without_windows(status, "LoadUnknown", load.description)
    if load.calls_for_more:
        return _scale_out(settings, replace(status, scale_in_since=None), load, settling=settling, now=now)
    if load.calls_for_fewer(declared):
        return _scale_in(settings, replace(status, scale_out_since=None), load, now=now)
    return _without_windows(status, "AtTarget", load.description)


def _scale_out(
    settings: ReadReplicaSettings, status: ReadReplicasStatus, load: ObservedLoad, *, settling: bool, now: datetime
) -> ReadReplicasStatus:
    desired, since = status.desired or settings.min, status.scale_out_since or now
    status = replace(status, scale_out_since=since, message=load.description)
    if desired >= settings.largest:
        return replace(status, reason="AtMaximum")
    if settling:
        return replace(status, reason="WaitingForCopy")
    if now - since < settings.stabilization.scale_out.timedelta:
        return replace(status, reason="Stabilizing")
    return replace(
        status,
        desired=desired + 1,
        reason="ScaledOut",
        last_scale_time=now,
        scale_out_since=None,
        scale_in_since=None,
    )


def _scale_in(
    settings: ReadReplicaSettings, status: ReadReplicasStatus, load: ObservedLoad, *, now: datetime
) -> ReadReplicasStatus:
    desired, since = status.desired or settings.min, status.scale_in_since or now
    status = replace(status, scale_in_since=since, message=load.description)
    if desired <= settings.min:
        return replace(status, reason="AtMinimum")
    if now - since < settings.stabilization.scale_in.timedelta:
        return replace(status, reason="Stabilizing")
    return replace(
        status,
        desired=desired - 1,
        reason="ScaledDown",
        last_scale_time=now,
        scale_out_since=None,
        scale_in_since=None,
    )


def _without_windows(status: ReadReplicasStatus, reason: ReadReplicaReason, message: str) -> ReadReplicasStatus:
    return replace(status, reason=reason, message=message, scale_out_since=None, scale_in_since=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Next changes of the objects. At most one pod is added or recreated at a time.

    Attributes:
        remove: numbers of read replicas that are not desired.
        create: number of the next new one.
        recreate: number of the one whose pod has an outdated template.
        replace: number of the one that gets another volume.
    """

    remove: tuple[int, ...] = ()
    create: int | None = None
    recreate: int | None = None
    replace: int | None = None


def next_changes(desired: int, replicas: Sequence[ReadReplica], *, stored: int | None = None) -> Changes:
    """Return the next changes for this number of read replicas.

    Args:
        stored: desired number in the last stored status. A lower number removes read replicas only after it is
            stored. Otherwise a crash in between would add them again, with new copies.
    """
    remove = [r.number for r in replicas if r.number >= max(desired, stored or 0)]
    kept = [r for r in replicas if r.number < desired and r.exists]
    settling = any(r.is_settling for r in kept)
    missing = sorted(set(range(desired)) - {r.number for r in kept})
    create = missing[0] if missing and not settling else None
    # One that does not serve loses nothing. The last that serves is recreated, too: the instances serve reads.
    outdated = sorted((r.ready, r.number) for r in kept if r.outdated)
    recreate = outdated[0][1] if outdated and create is None and (not settling or not outdated[0][0]) else None
    stranded = next((r.number for r in kept if r.unscheduled >= UNSCHEDULABLE_TIME), None)
    return Changes(remove=tuple(sorted(remove)), create=create, recreate=recreate, replace=stranded)
