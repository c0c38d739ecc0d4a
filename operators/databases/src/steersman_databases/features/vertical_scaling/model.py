"""Decisions about CPU and memory of the servers, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from steersman.api.core_v1 import ResourceRequirements
from steersman_databases.api.autopilot.automation import AutomationMode, VerticalScalingSettings
from steersman_databases.core.sizes import format_bytes
from steersman_databases.features.vertical_scaling.record import UsageRecord
from steersman_databases.features.vertical_scaling.resources import (
    RESOURCE_NAMES,
    Amounts,
    ResourceName,
    format_amount,
    is_limited,
    memory_ratio,
    requested,
    within,
)

CPU_PERCENTILE = 0.95
"""Part of the minutes in which the CPU request suffices."""
CPU_MARGIN = 1.15
MEMORY_MARGIN = 1.3
_MEMORY_HALF_LIVES = 2.0  # of the histogram: the highest use in 14 days
LEAST_CHANGE = 0.2
"""Least change, as a part of the present request."""
DAYS_TO_RAISE = 1
"""Days of recorded use that a recommendation rests on."""
DAYS_TO_LOWER = 7
"""Days of recorded use before resources are lowered automatically."""
QUIET_TIME = timedelta(hours=24)
"""Least time between two automatic changes.

Also after a change of the primary.
"""
_CPU_STEP, _MEMORY_STEP = 0.01, float(16 << 20)

ScalingReason = Literal["Suitable", "CollectingData", "Recommended", "Waiting", "Scaling", "AtMaxAllowed"]
HOLDS: Mapping[ScalingReason, bool | None] = {
    "Suitable": True,
    "Scaling": True,
    "Waiting": True,
    "CollectingData": None,
    "Recommended": False,
    "AtMaxAllowed": False,
}
"""Status of the condition by its reason."""
_LABELS: Mapping[ResourceName, str] = {"cpu": "CPU", "memory": "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSituation:
    """Present state of a cluster.

    Attributes:
        mode: effective mode, Recommend or Automatic.
        resources: with which the servers should run now.
        obstacle: why nothing may be disturbed, or "".
        waits_for_window: no maintenance window is open.
        next_window: start of the next window. None without windows.
    """

    mode: AutomationMode
    resources: ResourceRequirements
    now: datetime
    obstacle: str = ""
    waits_for_window: bool = False
    next_window: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """Decision about the resources.

    Attributes:
        message: the decision and its reason.
        evidence: recorded use.
        requests: amounts to request from now on. None without a change.
        next_time: time at which the change is possible, if the decision waits for one.
    """

    reason: ScalingReason
    message: str
    evidence: str = ""
    requests: Amounts | None = None
    next_time: datetime | None = None


def decide(settings: VerticalScalingSettings, record: UsageRecord, situation: ScalingSituation) -> ScalingDecision:
    """Return the decision about the resources."""
    if record.days < DAYS_TO_RAISE:
        message = f"a recommendation needs {DAYS_TO_RAISE} day of recorded use"
        return ScalingDecision(reason="CollectingData", message=message)
    evidence, present = evidence_of(record), requested(situation.resources)
    needed = needed_requests(record, situation.resources)
    changes = _changes(settings, present, needed)
    if not changes:
        return _without_change(settings, present, needed, evidence)
    if situation.mode != "Automatic":
        message = f"recommended: {describe(present, changes)}"
        return ScalingDecision(reason="Recommended", message=message, evidence=evidence)
    due: Amounts = {n: v for n, v in changes.items() if v > present[n] or record.days >= DAYS_TO_LOWER}
    if not due:
        message = f"{describe(present, changes)} needs {DAYS_TO_LOWER} days of recorded use"
        return ScalingDecision(reason="Waiting", message=message, evidence=evidence)
    change = describe(present, due)
    cause, next_time = _wait_for(record, situation)
    if cause:
        message = f"{change} waits: {cause}"
        return ScalingDecision(reason="Waiting", message=message, evidence=evidence, next_time=next_time)
    return ScalingDecision(reason="Scaling", message=change, evidence=evidence, requests={**present, **due})


def needed_requests(record: UsageRecord, resources: ResourceRequirements) -> Amounts:
    """Return the requests by the recorded use, without bounds.

    The memory limit must exceed the use, and the request keeps its ratio to it. A part of the use is a cache that
    follows from the limit, so a request for all of the use would raise the limit again and again.
    """
    found = dict[ResourceName, Decimal]()
    if (cores := record.cpu.percentile(CPU_PERCENTILE)) is not None:
        found["cpu"] = _rounded_up(cores * CPU_MARGIN, _CPU_STEP)
    if (peak := record.memory.highest(_MEMORY_HALF_LIVES)) is not None:
        found["memory"] = _rounded_up(peak * MEMORY_MARGIN, _MEMORY_STEP) * memory_ratio(resources)
    return found


def evidence_of(record: UsageRecord) -> str:
    """Return the recorded use as a clause, with its number of days."""
    days = f"{record.days} day{'' if record.days == 1 else 's'}"
    return f"in {days}: {', '.join(_measurements(record))}"


def describe(present: Amounts, changes: Amounts) -> str:
    """Return the change of requests as a clause."""
    return ", ".join(
        f"{_LABELS[name]} request from {format_amount(name, present[name])} to {format_amount(name, amount)}"
        for name, amount in changes.items()
    )


def _changes(settings: VerticalScalingSettings, present: Amounts, needed: Amounts) -> Amounts:
    targets: Amounts = {name: within(settings, name, needed[name]) for name in present if name in needed}
    return {
        name: target
        for name, target in targets.items()
        if abs(target - present[name]) >= Decimal(str(LEAST_CHANGE)) * present[name]
    }


def _without_change(
    settings: VerticalScalingSettings, present: Amounts, needed: Amounts, evidence: str
) -> ScalingDecision:
    limited: list[ResourceName] = [
        n for n in RESOURCE_NAMES if n in present and n in needed and is_limited(settings, n, needed[n])
    ]
    if not limited:
        return ScalingDecision(reason="Suitable", message="the requests suit the recorded use", evidence=evidence)
    amounts = ", ".join(f"{_LABELS[name]} {format_amount(name, needed[name])}" for name in limited)
    message = f"the recorded use needs a request of {amounts}, which is more than maxAllowed"
    return ScalingDecision(reason="AtMaxAllowed", message=message, evidence=evidence)


def _wait_for(record: UsageRecord, situation: ScalingSituation) -> tuple[str, datetime | None]:
    """Return what the change waits for, and until when. "" to begin now."""
    hours = QUIET_TIME // timedelta(hours=1)
    if record.primary_since is None or situation.now < record.primary_since + QUIET_TIME:
        since = record.primary_since or situation.now
        return f"the primary changed in the last {hours} hours", since + QUIET_TIME
    if record.applied is not None and situation.now < record.applied.at + QUIET_TIME:
        return f"the resources changed in the last {hours} hours", record.applied.at + QUIET_TIME
    if situation.obstacle:
        return situation.obstacle, None
    if situation.waits_for_window:
        return "no maintenance window is open", situation.next_window
    return "", None


def _measurements(record: UsageRecord) -> Iterator[str]:
    if (cores := record.cpu.percentile(CPU_PERCENTILE)) is not None:
        yield f"at most {cores:.2f} cores in {CPU_PERCENTILE:.0%} of the minutes"
    if (peak := record.memory.highest(_MEMORY_HALF_LIVES)) is not None:
        yield f"at most {format_bytes(peak)} of memory"
    if (used := record.disk.highest(_MEMORY_HALF_LIVES)) is not None:
        yield f"at most {format_bytes(used)} on the data volume"


def _rounded_up(amount: float, step: float) -> Decimal:
    return Decimal(math.ceil(amount / step)) * Decimal(str(step))
