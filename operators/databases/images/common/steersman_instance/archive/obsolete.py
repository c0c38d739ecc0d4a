"""WAL files that no recovery needs.

A replica would otherwise wait for them forever.

PostgreSQL hands over files in the order of their names. One that never arrives in the store would keep all later
ones.
"""

from __future__ import annotations

from pathlib import Path

from ..recovery.timelines import MAX_HISTORY_BYTES, Fork, InvalidHistory, parse_history
from ..recovery.wal import InvalidWalName, SegmentSize
from .segments import is_segment


def reserves_timeline_only(data: Path, name: str) -> bool:
    """Return True for a history file without ancestors.

    The timeline has no WAL.

    Patroni leaves such files for numbers that another member has reserved, and replicas copy them.
    """
    if not name.endswith(".history"):
        return False
    return _ancestors(data / "pg_wal" / name) == ()


def is_past_end_of_timeline(data: Path, name: str) -> bool:
    """Return True for a segment that ends after its timeline did.

    A replica that follows a failover hands over the incomplete last segment of the previous timeline. The primary
    stores it as ``.partial`` or not at all. The new timeline has a segment of the same number with all WAL up to that
    point.
    """
    if not is_segment(name):
        return False
    try:
        size = SegmentSize((data / "pg_wal" / name).stat().st_size)
        segment = size.parse(name)
    except (OSError, InvalidWalName):
        return False
    for fork in _current_ancestors(data):
        if fork.timeline == segment.timeline:
            return segment.number >= size.number(fork.end)
    return False


def _current_ancestors(data: Path) -> tuple[Fork, ...]:
    """Return the ancestors of the newest timeline: numbers are never given twice."""
    for file in sorted((data / "pg_wal").glob("????????.history"), reverse=True):
        if ancestors := _ancestors(file):
            return ancestors
    return ()


def _ancestors(file: Path) -> tuple[Fork, ...] | None:
    """Return None for a file that cannot be read."""
    try:
        with file.open(errors="replace") as content:
            return parse_history(int(file.stem, 16), content.read(MAX_HISTORY_BYTES + 1))
    except (OSError, ValueError, InvalidHistory):
        return None
