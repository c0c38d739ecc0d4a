"""Decisions about the growth of volumes, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from steersman_databases.api.autopilot.automation import AutogrowSettings, AutomationMode
from steersman_databases.core.sizes import format_bytes
from steersman_databases.features.storage.usage import Volume, VolumeUsage

EMERGENCY_PERCENT = 95
"""Least use of a volume that grows during the cooldown."""
RESIZE_SECONDS = 30.0
"""Time that a resize may take.

A volume that is full earlier at its present rate grows at once.
"""
MAX_FILL_RATE = 0.02
"""Highest rate for a growth in time, as a part per second."""
_RESERVE_SECONDS = 600.0  # for which a growth suffices at the present rate
RESIZE_OVERDUE = timedelta(minutes=5)
"""Time after which an incomplete resize is reported."""
_STEP = 0.2  # of the capacity
_DAY_SECONDS = 86400
_MIB, _GIB = 1 << 20, 1 << 30
_WHOLE_GIB_FROM = 10 * _GIB

GrowthReason = Literal[
    "Idle",
    "Growing",
    "CoolingDown",
    "UsageUnknown",
    "Recommended",
    "AtMaxSize",
    "WALRetained",
    "FillsTooFast",
    "NotExpandable",
    "QuotaExceeded",
    "ResizeIncomplete",
]
SEVERITY: Sequence[GrowthReason] = (
    "FillsTooFast",
    "QuotaExceeded",
    "NotExpandable",
    "ResizeIncomplete",
    "AtMaxSize",
    "WALRetained",
    "Recommended",
    "CoolingDown",
    "Growing",
    "UsageUnknown",
    "Idle",
)
"""Reasons, the most important first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthDecision:
    """Decision about the volumes of one name.

    Attributes:
        message: decision and evidence.
        volume: the PVC that needs room.
        grow_to: size in bytes to request for all PVCs. None to do nothing.
        evidence: why it needs room.
        next_time: end of the cooldown.
    """

    reason: GrowthReason
    message: str
    volume: Volume | None = None
    grow_to: int | None = None
    evidence: str = ""
    next_time: datetime | None = None


def decide(
    settings: AutogrowSettings,
    volumes: Sequence[Volume],
    now: datetime,
    *,
    size: int,
    mode: AutomationMode = "Automatic",
    not_expandable: str = "",
) -> GrowthDecision:
    """Return the decision about the volumes of one name. Cluster health does not matter.

    Args:
        size: common size of the volumes in bytes: the declared one, or the largest request.
        mode: effective mode, Recommend or Automatic.
        not_expandable: why the volumes cannot grow, or "".
    """
    if not any(volume.usage for volume in volumes):
        return GrowthDecision(reason="UsageUnknown", message="no instance reports the use of its volume")
    if not (needy := _needy(settings, volumes)):
        if not_expandable:
            return GrowthDecision(reason="NotExpandable", message=not_expandable)
        return GrowthDecision(reason="Idle", message="no volume needs to grow")
    ready = [each for each in needy if not each[0].is_growing(size)]
    volume, usage, evidence = (ready or needy)[0]
    decision = (
        _grow(settings, volumes, (volume, usage, evidence), now, size)
        if ready
        else _wait_for_resize(volume, evidence, now)
    )
    if decision.grow_to is not None:
        target = format_size(decision.grow_to)
        if not_expandable:
            decision = replace(decision, reason="NotExpandable", message=not_expandable, grow_to=None)
        elif mode == "Recommend":
            message = f"{decision.message}. Recommended size: {target}"
            decision = replace(decision, reason="Recommended", message=message, grow_to=None)
        else:
            decision = replace(decision, message=f"{decision.message}. Growing to {target}")
    if (usage.fill_rate or 0) > MAX_FILL_RATE * usage.size:
        message = f"{decision.message}. It fills faster than a volume can be resized, so writes may be refused"
        decision = replace(decision, reason="FillsTooFast", message=message)
    return replace(decision, volume=volume, evidence=evidence)


def next_size(settings: AutogrowSettings, volume: Volume, usage: VolumeUsage) -> int:
    """Return the size to grow to in bytes, at most `max_size`.

    The step is 20 % of the capacity, or less if the measured growth needs less in the forecast. It is more if the
    volume would otherwise need to grow again during the cooldown, or within 10 minutes at the present rate. It at
    most doubles the volume, except for `min_step`.
    """
    capacity = volume.capacity or volume.requested
    # A file system is smaller than its volume.
    ratio = capacity / usage.size
    daily = max(usage.daily_growth or 0.0, 0.0)
    cooldown = daily * settings.cooldown.seconds / _DAY_SECONDS
    needed = max(cooldown, (usage.fill_rate or 0.0) * _RESERVE_SECONDS)

    def missing(used: float) -> float:
        return used * ratio * 100 / settings.at_percent - capacity

    step = _STEP * capacity
    if usage.daily_growth is not None:
        step = min(step, missing(usage.used + daily * settings.forecast.seconds / _DAY_SECONDS))
    step = max(step, missing(usage.used), needed * ratio)
    step = max(min(step, capacity), int(settings.min_step))
    return min(_rounded_up(capacity + step), int(settings.max_size))


def format_size(size: int) -> str:
    """Return the size as a quantity, such as 12Gi."""
    for unit, suffix in ((_GIB, "Gi"), (_MIB, "Mi"), (1 << 10, "Ki")):
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def _needy(settings: AutogrowSettings, volumes: Sequence[Volume]) -> Sequence[tuple[Volume, VolumeUsage, str]]:
    """Return the volumes that need room, the fullest first."""
    found = [(v, v.usage, _evidence(settings, v.usage)) for v in volumes if v.usage is not None]
    return sorted((each for each in found if each[2]), key=lambda each: (-each[1].percent, each[0].name))


def _evidence(settings: AutogrowSettings, usage: VolumeUsage) -> str:
    """Return why the volume needs room, or "" if it does not."""
    used = f"{int(usage.percent)} % used"
    seconds, daily = usage.seconds_to_full, usage.daily_growth or 0.0
    if seconds is not None and (seconds <= RESIZE_SECONDS or usage.percent >= settings.at_percent):
        return f"{used}, full in {_format_time(seconds)} at {format_bytes(usage.fill_rate or 0)}/s"
    if usage.percent >= settings.at_percent:
        return used
    if daily > 0 and usage.available / daily * _DAY_SECONDS < settings.forecast.seconds:
        seconds = usage.available / daily * _DAY_SECONDS
        return f"{used}, full in {_format_time(seconds)} at {format_bytes(daily)} a day"
    return ""


def _wait_for_resize(volume: Volume, evidence: str, now: datetime) -> GrowthDecision:
    since = None if volume.growth is None else volume.growth.at
    message = f"PVC {volume.name} is being resized: {evidence}"
    if volume.resize_error:
        message = f"the resize of PVC {volume.name} failed: {volume.resize_error}"
        return GrowthDecision(reason="ResizeIncomplete", message=message)
    if since is not None and now - since > RESIZE_OVERDUE:
        message = f"PVC {volume.name} was resized at {since:%H:%M:%S}, and its file system has not grown"
        return GrowthDecision(reason="ResizeIncomplete", message=message)
    return GrowthDecision(reason="Growing", message=message)


def _grow(
    settings: AutogrowSettings,
    volumes: Sequence[Volume],
    needy: tuple[Volume, VolumeUsage, str],
    now: datetime,
    size: int,
) -> GrowthDecision:
    """Decide about a volume that needs room and has its size."""
    volume, usage, evidence = needy
    is_emergency = usage.percent >= EMERGENCY_PERCENT or usage.fill_rate is not None
    target = next_size(settings, volume, usage)
    name = f"PVC {volume.name} is {evidence}"
    if target <= size:
        return GrowthDecision(reason="AtMaxSize", message=f"{name}, and autogrow.maxSize is {settings.max_size}")
    records = [v.growth.at for v in volumes if v.growth is not None]
    # A time in the future is not the operator's.
    times = [time for time in records if time is not None and time <= now]
    end = max(times) + settings.cooldown.timedelta if times else now
    if now < end and not is_emergency:
        message = f"{name}. The cooldown ends at {end:%Y-%m-%d %H:%M} UTC"
        return GrowthDecision(reason="CoolingDown", message=message, next_time=end)
    if usage.retained_by:
        amount = f" {usage.retained}" if usage.retained else " WAL"
        name = f"{name}. {usage.retained_by} retains{amount}"
        grown_before = volume.growth is not None and volume.growth.retained_by == usage.retained_by
        if grown_before and not is_emergency:
            message = f"{name}. The volume grew once for it and grows again only if it is nearly full"
            return GrowthDecision(reason="WALRetained", message=message)
    reason: GrowthReason = "WALRetained" if usage.retained_by else "Growing"
    return GrowthDecision(reason=reason, message=name, grow_to=target)


def _rounded_up(size: float) -> int:
    unit = _GIB if size >= _WHOLE_GIB_FROM else _MIB
    return -int(-size // unit) * unit


def _format_time(seconds: float) -> str:
    for unit, name in ((_DAY_SECONDS, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
