"""Purges the server's binary logs once the archive has them.

The server itself must not expire them: it would purge what is not stored yet. So with `spec.backup` the operator sets
`binlog_expire_logs_seconds` to 0, and this module does it on every member.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..archive.store_file import OnVolumeFull
from ..gtids import GtidSet
from . import events
from .stream import LocalServer

KEEP_SECONDS = 21600.0  # a member that was unreachable for less than this catches up by them
LOW_ROOM_RATIO = 0.8  # of the volume: stored binary logs are purged at once
FULL_RATIO = 0.95
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BinaryLog:
    """A binary log file of the server.

    Args:
        previous: transactions in all older files, purged ones included; None if the file cannot be read.
        modified_at: seconds since 1970.
    """

    name: str
    previous: GtidSet | None
    modified_at: float


@dataclass(frozen=True, slots=True)
class Purge:
    """Purge every file before ``to``. ``lost`` are transactions that no archive has then."""

    to: str
    lost: GtidSet


def plan_purge(
    files: Sequence[BinaryLog], stored: GtidSet, used_ratio: float, now: float, on_volume_full: OnVolumeFull
) -> Purge | None:
    """Choose what to purge.

    Args:
        files: oldest first; the server writes to the last one.
        stored: transactions in the archive.
        used_ratio: how much of the volume is used, from 0 to 1.
        now: seconds since 1970.
    """
    found: Purge | None = None
    for older, newer in itertools.pairwise(files):
        if newer.previous is None:
            break
        if stored >= newer.previous:
            expired = now - older.modified_at >= KEEP_SECONDS
            if not expired and used_ratio < LOW_ROOM_RATIO:
                break
            found = Purge(newer.name, GtidSet())
        elif used_ratio >= FULL_RATIO and on_volume_full == "DropArchive":
            found = Purge(newer.name, newer.previous - stored)
        else:
            break
    return found


def read_binary_logs(server: LocalServer, data: Path) -> list[BinaryLog]:
    """Return the server's binary logs, oldest first. Raises ServerUnavailable."""
    names = [Path(str(row[0])).name for row in server.query("SHOW BINARY LOGS")]
    return [BinaryLog(name, _previous(data / name), _modified_at(data / name)) for name in names]


def used_ratio(volume: Path) -> float:
    """Return the used fraction of a volume's usable space."""
    usage = shutil.disk_usage(volume)
    room = usage.used + usage.free
    return usage.used / room if room else 0.0


def _previous(path: Path) -> GtidSet | None:
    """Return the set of previous GTIDs of a file. It is the file's second event."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if not head.startswith(events.MAGIC):
            return None
        position = len(events.MAGIC)
        for _ in range(2):
            size = events.HEADER.unpack_from(head, position)[3]
            event = events.parse_event(head[position : position + size])
            if event.kind == events.PREVIOUS_GTIDS:
                return events.previous_gtids(event)
            position += size
    except (OSError, ValueError, IndexError, events.BinaryLogDamaged, events.struct.error):
        return None
    return None


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
