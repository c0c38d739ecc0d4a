"""One figure, and what the system says of a process. Source: proc(5)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure: ``peer`` is what was measured, ``metric`` which of its properties, ``unit`` as people write it."""

    scenario: str
    peer: str
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Figure:
    """What one run gave: a property of the peer that ran, yet without a scenario and a name."""

    metric: str
    value: float
    unit: str


def cpu_seconds(pid: int) -> float:
    """What the process has used of the processors, in user and kernel mode together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(frozen=True, slots=True)
class ProcessorTicks:
    """What the machine's processors have been used for, in ticks, and how many of them its host gave to others."""

    total: int
    stolen: int

    @classmethod
    def now(cls) -> ProcessorTicks:
        """Since the machine was started."""
        ticks = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
        return cls(sum(ticks), ticks[7])

    def steal_percent_since(self, before: ProcessorTicks) -> float:
        """In percent of all their time."""
        return 100 * (self.stolen - before.stolen) / max(1, self.total - before.total)


def peak_rss_mib(pid: int) -> float:
    """The most memory that the process ever had resident, in MiB."""
    return _memory_mib(pid, "VmHWM")


def rss_mib(pid: int) -> float:
    """The memory that the process has resident now, in MiB."""
    return _memory_mib(pid, "VmRSS")


def _memory_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/status has no {field}")
