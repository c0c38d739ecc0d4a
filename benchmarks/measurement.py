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


def cpu_seconds(pid: int) -> float:
    """What the process has used of the processors, in user and kernel mode together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_rss_mib(pid: int) -> float:
    """The most memory that the process ever had resident, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/status has no VmHWM")
