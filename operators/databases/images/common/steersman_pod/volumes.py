"""Volumes of a pod: exclusive use by one container, and fill levels.

Levels are coarse and have a hysteresis, so that small changes cause no reports.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path

LEVELS = (80, 90, 95)  # percent
FULL = 100
_SPARE_PIECES = 4  # pieces (or a fifth of the volume) that must be free before a volume stops to count as full


class VolumeInUse(Exception):
    """Another container uses the volume. The message says what to do."""


def lock_volume(volume: Path, seconds: float = 60) -> None:
    """Lock the volume for the life of this process and its children.

    Another container may still be ending.

    Raises:
        VolumeInUse: the lock is not free in time.
    """
    if not os.access(volume, os.W_OK):
        raise VolumeInUse(
            f"user {os.getuid()} cannot write to {volume}: set fsGroup 10001 or change the volume's owner"
        )
    lock = os.open(volume / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(lock, True)  # The server keeps the lock, whatever happens to this process.
    end = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise VolumeInUse(f"another server uses {volume}") from None
            time.sleep(0.2)


def usage_level(total: int, free: int, previous: int, piece_bytes: int) -> int:
    """Return the fill level of a volume.

    0 means below the first step, and `FULL` means that one more piece does not fit. Arguments are in bytes.
    """
    if free < piece_bytes or (previous == FULL and free < min(_SPARE_PIECES * piece_bytes, total // 5)):
        return FULL
    now = _level_of(total, free)
    return now if now >= previous else min(previous, _level_of(total, free - max(total // 50, piece_bytes)))


def _level_of(total: int, free: int) -> int:
    return max((step for step in LEVELS if (total - free) * 100 >= step * total), default=0)


def usage_levels(volumes: Mapping[str, Path], previous: Mapping[str, int], piece_bytes: int) -> dict[str, int]:
    """Return the level of each mounted volume.

    Args:
        piece_bytes: size of the pieces by which files grow.
    """
    found: dict[str, int] = {}
    for name, path in volumes.items():
        try:
            previous_level = os.statvfs(path)
        except FileNotFoundError:
            continue
        # Servers cannot use the space that is reserved for root.
        total, free = (
            previous_level.f_blocks * previous_level.f_frsize,
            previous_level.f_bavail * previous_level.f_frsize,
        )
        found[name] = usage_level(total, free, previous.get(name, 0), piece_bytes)
    return found
