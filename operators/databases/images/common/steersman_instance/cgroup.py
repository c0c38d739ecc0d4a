"""CPU time and memory of this container, from its control group.

Source: Linux, "Control Group v2", cpu.stat and memory.stat; "CPU Accounting Controller" and "Memory Resource
Controller" of version 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_COUNTER = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)


def used_seconds(root: Path = ROOT) -> float | None:
    """Return the container's CPU time since its start.

    None if it is not accounted.
    """
    if (microseconds := _counters(root / "cpu.stat").get("usage_usec")) is not None:
        return microseconds / 1e6
    for controller in ("cpuacct", "cpu,cpuacct"):
        try:
            return int((root / controller / "cpuacct.usage").read_text()) / 1e9
        except (OSError, ValueError):
            continue
    return None


def used_memory(root: Path = ROOT) -> int | None:
    """Return the bytes that the kernel cannot reclaim.

    They are private and shared memory, without the page cache. None if it is not accounted.
    """
    if (counters := _counters(root / "memory.stat")) and "anon" in counters:
        return counters["anon"] + counters.get("shmem", 0)
    if (counters := _counters(root / "memory/memory.stat")) and "total_rss" in counters:
        return counters["total_rss"] + counters.get("total_shmem", 0)
    return None


def _counters(file: Path) -> Mapping[str, int]:
    try:
        return {name: int(value) for name, value in _COUNTER.findall(file.read_text())}
    except OSError:
        return {}
