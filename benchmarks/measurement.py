"""Measured values and process statistics. Source: proc(5)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured value with its scenario, peer, metric and unit."""

    scenario: str
    peer: str
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A value from one run, before scenario and peer are attached."""

    metric: str
    value: float
    unit: str


def cpu_seconds(pid: int) -> float:
    """Return the user and kernel CPU time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(frozen=True, slots=True)
class ProcessorTicks:
    """CPU ticks of the machine, in total and stolen by its host."""

    total: int
    stolen: int

    @classmethod
    def now(cls) -> ProcessorTicks:
        """Read the ticks since boot."""
        ticks = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
        return cls(sum(ticks), ticks[7])

    def steal_percent_since(self, before: ProcessorTicks) -> float:
        """Return the percentage of CPU time stolen since ``before``."""
        return 100 * (self.stolen - before.stolen) / max(1, self.total - before.total)


def peak_rss_mib(pid: int) -> float:
    """Return the peak resident memory of a process in MiB."""
    return _memory_mib(pid, "VmHWM")


def rss_mib(pid: int) -> float:
    """Return the current resident memory of a process in MiB."""
    return _memory_mib(pid, "VmRSS")


def _memory_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/status has no {field}")
