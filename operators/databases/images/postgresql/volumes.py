#!/usr/bin/python3 -I
"""steersman-volumes: tells at this pod how full its volumes are, each time that one crosses a step.

It runs beside Patroni for the container's life. Steps are coarse, and one that was crossed is left only with room to
spare: a volume that breathes writes nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

VOLUMES = {"data": Path("/var/lib/steersman/data"), "wal": Path("/var/lib/steersman/wal")}
STEPS = (80, 90, 95)  # percent
FULL = 100
SEGMENT = 16 << 20  # of WAL, in bytes, by default: a server that cannot make the next one stops
_SPARE = 4  # segments that there must be room for, or a fifth of it, until a volume counts as full no more
_EVERY = 3.0  # seconds between two looks
_TOLD_WITHIN = 30.0  # seconds; then it is looked again, and what is so by then is told


def level(total: int, free: int, former: int = 0, segment: int = SEGMENT) -> int:
    """The step that a volume is at: 0 below the first, `FULL` where there is no room to go on. In bytes."""
    if free < segment or (former == FULL and free < min(_SPARE * segment, total // 5)):
        return FULL
    now = _step(total, free)
    return now if now >= former else min(former, _step(total, free - max(total // 50, segment)))


def _step(total: int, free: int) -> int:
    return max((step for step in STEPS if (total - free) * 100 >= step * total), default=0)


def segment_size() -> int | None:
    """The size that segments of WAL have, once there are data to tell."""
    command = ["pg_controldata", str(VOLUMES["data"] / "pgdata")]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"^Bytes per WAL segment: *(\d+)", told, re.MULTILINE)
    return int(found[1]) if found else None


def look(volumes: Mapping[str, Path], former: Mapping[str, int], size: int) -> dict[str, int]:
    """The step of each volume that is mounted, for segments of this size."""
    found: dict[str, int] = {}
    for name, path in volumes.items():
        try:
            seen = os.statvfs(path)
        except FileNotFoundError:
            continue
        # What is kept for root does not help a server.
        total, free = seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize
        found[name] = level(total, free, former.get(name, 0), size)
    return found


def tell(levels: Mapping[str, int]) -> bool:
    """Whether it stands at the pod now."""
    command = ["steersman-role", "note", json.dumps(levels)]
    try:
        return subprocess.run(command, timeout=_TOLD_WITHIN, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    """Looks for ever. What goes wrong ends it, and steersman-start has it started again."""
    told, seen, size = None, dict[str, int](), None
    while True:
        size = size or segment_size()
        seen = look(VOLUMES, seen, size or SEGMENT)
        if seen != told and tell(seen):
            told = seen
        time.sleep(_EVERY)


if __name__ == "__main__":
    main()
