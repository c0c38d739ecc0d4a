"""Use of CPU, memory and disk in each hour.

The samples are in memory only. After a restart, the hour begins again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

HOUR_SECONDS = 3600
_MINUTE_SECONDS = 60.0
_KEPT_HOURS = 2
_LARGEST_CORES = 9999.0


@dataclass(slots=True)
class HourlyUse:
    """Use in one hour.

    Attributes:
        hour: number of the hour since 1970.
        cpu: minutes by their average number of cores, rounded to two digits.
        memory: most bytes that could not be reclaimed. None if they are not accounted.
        disk: most used bytes of the data volume.
    """

    hour: int
    cpu: Counter[float] = field(default_factory=Counter[float])
    memory: int | None = None
    disk: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the hour for the report."""
        values = {
            "hour": self.hour,
            "cpu": {f"{cores:g}": minutes for cores, minutes in sorted(self.cpu.items())},
            "memory": self.memory,
            "disk": self.disk,
        }
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSample:
    """Present use. A value is None if it is not accounted.

    Attributes:
        at: seconds since 1970.
        cpu_seconds: CPU time since the container's start.
        memory: bytes that cannot be reclaimed.
        disk: used bytes of the data volume.
    """

    at: float
    cpu_seconds: float | None = None
    memory: int | None = None
    disk: int | None = None


@dataclass(slots=True)
class UsageMeter:
    """The present hour and the one before it."""

    hours: list[HourlyUse] = field(default_factory=list[HourlyUse])
    _minute: UsageSample | None = None

    def add(self, sample: UsageSample) -> None:
        """Add a sample. The minute of a CPU average counts in the hour in which it ends."""
        hour = int(sample.at // HOUR_SECONDS)
        if not self.hours or self.hours[-1].hour != hour:
            self.hours = [*self.hours, HourlyUse(hour)][-_KEPT_HOURS:]
        present = self.hours[-1]
        present.memory = _larger(present.memory, sample.memory)
        present.disk = _larger(present.disk, sample.disk)
        if self._minute is None or not 0 <= sample.at - self._minute.at < HOUR_SECONDS:
            # The clock was changed, or the process was stopped.
            self._minute = sample
        elif sample.at - self._minute.at >= _MINUTE_SECONDS:
            cores = _average_cores(self._minute, sample)
            if cores is not None:
                present.cpu[cores] += 1
            self._minute = sample

    def report(self) -> Sequence[dict[str, Any]]:
        """Return the hours for the report."""
        return [hour.to_json() for hour in self.hours]


def _average_cores(first: UsageSample, last: UsageSample) -> float | None:
    if first.cpu_seconds is None or last.cpu_seconds is None:
        return None
    cores = max(last.cpu_seconds - first.cpu_seconds, 0.0) / (last.at - first.at)
    # Two digits bound the number of different values in a report.
    return float(f"{min(cores, _LARGEST_CORES):.1e}") if cores >= 0.001 else 0.0


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
