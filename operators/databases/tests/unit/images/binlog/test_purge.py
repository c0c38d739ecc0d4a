"""Which binary logs of a server may go."""

from __future__ import annotations

import pytest

from database_support.unit.binlog_events import UUID
from steersman_instance.archive.store_file import OnVolumeFull
from steersman_instance.binlog.purge import KEEP_SECONDS, BinaryLog, Purge, plan_purge
from steersman_instance.gtids import NO_GTIDS, GtidSet

NOW = 1_000_000.0
OLD = NOW - KEEP_SECONDS


def up_to(last: int) -> GtidSet:
    return GtidSet.parse(f"{UUID}:1-{last}") if last else NO_GTIDS


def files(*modified: float) -> list[BinaryLog]:
    """Return binary logs with ten transactions each."""
    return [BinaryLog(f"binlog.{n}", up_to(10 * n), at) for n, at in enumerate(modified)]


@pytest.mark.parametrize(
    ("stored", "used", "policy", "expected"),
    [
        (up_to(40), 0.5, "StopWrites", Purge("binlog.2", NO_GTIDS)),
        (up_to(40), 0.8, "StopWrites", Purge("binlog.3", NO_GTIDS)),
        (up_to(15), 0.5, "StopWrites", Purge("binlog.1", NO_GTIDS)),
        (NO_GTIDS, 0.99, "StopWrites", None),
        (NO_GTIDS, 0.94, "DropArchive", None),
        (up_to(15), 0.95, "DropArchive", Purge("binlog.3", GtidSet.parse(f"{UUID}:16-30"))),
    ],
)
def test_purge_keeps_what_is_recent_or_not_stored(
    stored: GtidSet, used: float, policy: OnVolumeFull, expected: Purge | None
) -> None:
    assert plan_purge(files(OLD, OLD, NOW, NOW), stored, used, NOW, policy) == expected


def test_purge_never_takes_the_active_or_an_unreadable_file() -> None:
    assert plan_purge(files(OLD), up_to(100), 0.99, NOW, "DropArchive") is None
    unreadable = [*files(OLD), BinaryLog("binlog.1", None, OLD), *files(OLD)]
    assert plan_purge(unreadable, up_to(100), 0.99, NOW, "DropArchive") is None
