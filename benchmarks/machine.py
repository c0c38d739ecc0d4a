"""The machine: who runs on which core, and what a reader must know of it to judge the figures."""

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
    """Which cores are whose.

    Attributes:
        operator: the only core of the operator under test.
        others: those of API server, etcd and the measuring program; never the operator's, unless there is but one.
    """

    operator: int
    others: frozenset[int]


def assign_cores() -> Cores:
    """The last core that this process may use is the operator's; all before it are the others'."""
    *others, last = sorted(os.sched_getaffinity(0))
    return Cores(last, frozenset(others) or frozenset({last}))


def pin(pids: Iterable[int], allowed: Iterable[int]) -> None:
    """Lets the processes, each thread of them, run on these cores only. Source: sched_setaffinity(2)."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), allowed)


def description() -> str:
    """One line: processor, cores, memory, system."""
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    total = re.search(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    memory = f"{int(total[1]) / 2**20:.0f} GiB" if total else "unknown memory"
    processor = model[1].strip() if model else platform.machine()
    kernel = platform.release().partition("-")[0]
    return f"{os.cpu_count()} cores of {processor}, {memory}, Linux {kernel}"
