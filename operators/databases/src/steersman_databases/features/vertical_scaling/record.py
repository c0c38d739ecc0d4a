"""Recorded use and the applied recommendation of a cluster, in one ConfigMap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

import msgspec

from steersman_databases.features.vertical_scaling.histogram import Histogram, Scale
from steersman_databases.features.vertical_scaling.reports import HourlyUse, busiest

CPU_SCALE = Scale(0.01, 1.1, 116)
"""Cores, up to 576."""
MEMORY_SCALE = Scale(float(32 << 20), 1.05, 240)
"""Bytes, up to 3.6 TiB."""
DISK_SCALE = Scale(float(32 << 20), 1.1, 160)
"""Bytes, up to 116 TiB."""
LIMIT_BYTES = 8192
MOST_HOURS = 28 * 24
"""Largest number of counted hours. Earlier samples have at most a sixteenth of their weight."""


class AppliedResources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An applied recommendation.

    Attributes:
        requests: cpu and memory, as quantities. Empty after a change of the declaration.
        base: hash of the `spec.resources` that it replaces.
        description: change and evidence.
    """

    requests: Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=32)]], msgspec.Meta(max_length=2)] = {}
    base: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    description: Annotated[str, msgspec.Meta(max_length=1024)] = ""


_Weights = dict[int, Annotated[float, msgspec.Meta(ge=0)]]


class _Stored(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    hour: int = 0
    hours: Annotated[int, msgspec.Meta(ge=0, le=MOST_HOURS)] = 0
    cpu: _Weights = {}
    memory: _Weights = {}
    disk: _Weights = {}
    primary: str = ""
    primary_since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    applied: AppliedResources | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """Recorded use of a cluster's busiest server.

    Attributes:
        hour: the last recorded hour, since 1970.
        hours: number of recorded hours, less those without a report.
        cpu: cores, with the weight of an hour.
        memory: largest use in each hour, in bytes.
        disk: largest use in each hour, in bytes.
        primary: the last primary, or "".
        primary_since: time since when it was observed as the primary.
        applied: None if the declared resources apply.
    """

    hour: int = 0
    hours: int = 0
    cpu: Histogram = field(default_factory=lambda: Histogram(CPU_SCALE))
    memory: Histogram = field(default_factory=lambda: Histogram(MEMORY_SCALE))
    disk: Histogram = field(default_factory=lambda: Histogram(DISK_SCALE))
    primary: str = ""
    primary_since: datetime | None = None
    applied: AppliedResources | None = None

    @property
    def days(self) -> int:
        """Complete days of recorded hours."""
        return self.hours // 24

    def with_primary(self, primary: str, now: datetime) -> UsageRecord:
        """Return the record with the observed primary.

        Without one, the last stays.
        """
        if not primary or primary == self.primary:
            return self
        return replace(self, primary=primary, primary_since=now)

    def with_hours(self, reported: Iterable[HourlyUse], before: int) -> UsageRecord:
        """Return the record with the new hours of all servers.

        Args:
            before: the first hour that is not complete.
        """
        by_hour = dict[int, list[HourlyUse]]()
        for use in reported:
            if self.hour < use.hour < before:
                by_hour.setdefault(use.hour, []).append(use)
        record = self
        for hour in sorted(by_hour):
            if (use := busiest(by_hour[hour])) is not None:
                record = record._with_hour(use)
        return record

    def _with_hour(self, use: HourlyUse) -> UsageRecord:
        elapsed = use.hour - self.hour if self.hour else 1
        cpu, memory, disk = (each.decayed(elapsed) for each in (self.cpu, self.memory, self.disk))
        for cores, minutes in use.cpu.items():
            cpu = cpu.with_sample(cores, minutes / 60)
        return replace(
            self,
            hour=use.hour,
            hours=min(max(self.hours - (elapsed - 1), 0) + 1, MOST_HOURS),
            cpu=cpu,
            memory=memory if use.memory is None else memory.with_sample(use.memory),
            disk=disk if use.disk is None else disk.with_sample(use.disk),
        )

    def to_json(self) -> str:
        """Return the content of the ConfigMap, at most `LIMIT_BYTES`."""
        found: dict[str, object] = {
            "hour": self.hour,
            "hours": self.hours,
            "cpu": self.cpu.to_json(),
            "memory": self.memory.to_json(),
            "disk": self.disk.to_json(),
            "primary": self.primary,
            "primarySince": self.primary_since,
            "applied": self.applied,
        }
        return msgspec.json.encode({key: value for key, value in found.items() if value}).decode()


def parse_record(text: str) -> UsageRecord:
    """Return the record. It is empty if the text is too long or malformed: recording begins again."""
    if not text or len(text) > LIMIT_BYTES:
        return UsageRecord()
    try:
        found = msgspec.json.decode(text, type=_Stored)
    except (msgspec.DecodeError, RecursionError):
        return UsageRecord()
    return UsageRecord(
        hour=found.hour,
        hours=found.hours,
        cpu=Histogram(CPU_SCALE, _within(CPU_SCALE, found.cpu)),
        memory=Histogram(MEMORY_SCALE, _within(MEMORY_SCALE, found.memory)),
        disk=Histogram(DISK_SCALE, _within(DISK_SCALE, found.disk)),
        primary=found.primary,
        primary_since=found.primary_since,
        applied=found.applied,
    )


def _within(scale: Scale, weights: Mapping[int, float]) -> Mapping[int, float]:
    return {bucket: weight for bucket, weight in weights.items() if 0 <= bucket < scale.buckets}
