"""CPU affinity and description of the machine."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cores:
    """Assignment of cores to processes.

    Attributes:
        operator: core reserved for the operator under test.
        others: cores of the API server, etcd and the benchmark. Excludes the operator's core if there are several.
    """

    operator: int
    others: frozenset[int]


def assign_cores() -> Cores:
    """Assign the last usable core to the operator."""
    *others, last = sorted(os.sched_getaffinity(0))
    return Cores(last, frozenset(others) or frozenset({last}))


def pin(pids: Iterable[int], allowed: Iterable[int]) -> None:
    """Pin all threads of the processes to cores. Source: sched_setaffinity(2)."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), allowed)


def description() -> str:
    """Describe processor, cores, memory and system in one line."""
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    total = re.search(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    memory = f"{int(total[1]) / 2**20:.0f} GiB" if total else "unknown memory"
    processor = model[1].strip() if model else platform.machine()
    kernel = platform.release().partition("-")[0]
    return f"{os.cpu_count()} cores of {processor}, {memory}, Linux {kernel}"
