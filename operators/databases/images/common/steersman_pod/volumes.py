"""A pod's volumes: held by one container at a time, and how full they are.

Steps are coarse, and one that was crossed is left only with room to spare: a volume that breathes tells nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path

STEPS = (80, 90, 95)  # percent
FULL = 100
_SPARE = 4  # pieces that there must be room for, or a fifth of it, until a volume counts as full no more


class Taken(Exception):
    """The volume cannot be had; says why, and what to do."""


def take_volume(volume: Path, seconds: float = 60) -> None:
    """Holds it for life, child processes too; another container may still be leaving it. Raises Taken."""
    if not os.access(volume, os.W_OK):
        raise Taken(f"user {os.getuid()} cannot write to {volume}: set fsGroup 10001 or change the volume's owner")
    lock = os.open(volume / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(lock, True)  # Whoever serves holds it on, whatever becomes of this process.
    end = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise Taken(f"another server uses {volume}") from None
            time.sleep(0.2)


def level(total: int, free: int, former: int, piece: int) -> int:
    """The step that a volume is at: 0 below the first, `FULL` without room for one more piece. In bytes."""
    if free < piece or (former == FULL and free < min(_SPARE * piece, total // 5)):
        return FULL
    now = _step(total, free)
    return now if now >= former else min(former, _step(total, free - max(total // 50, piece)))


def _step(total: int, free: int) -> int:
    return max((step for step in STEPS if (total - free) * 100 >= step * total), default=0)


def levels(volumes: Mapping[str, Path], former: Mapping[str, int], piece: int) -> dict[str, int]:
    """The step of each volume that is mounted, where files grow by pieces of this size."""
    found: dict[str, int] = {}
    for name, path in volumes.items():
        try:
            seen = os.statvfs(path)
        except FileNotFoundError:
            continue
        # What is kept for root does not help a server.
        total, free = seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize
        found[name] = level(total, free, former.get(name, 0), piece)
    return found
