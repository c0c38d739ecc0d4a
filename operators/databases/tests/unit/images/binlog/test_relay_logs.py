"""Relay logs from chunks: whole transactions, in order, up to the target."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

import pytest

from database_support.unit.binlog_events import UUID, Transaction, session
from steersman_instance.binlog import events
from steersman_instance.binlog.chunks import Chunk
from steersman_instance.binlog.relay_logs import RelayLogWriter
from steersman_instance.gtids import NO_GTIDS, GtidSet
from steersman_instance.recovery.gtid_plan import BeforeGtid, GtidTarget, ThroughGtid
from steersman_instance.recovery.target import AtTime, Latest

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ALL = [Transaction(number, committed_at=number * 1_000_000) for number in range(1, 7)]


def one(number: int) -> GtidSet:
    return NO_GTIDS.add(UUID, number)


def written(directory: Path, chunks: Iterable[Chunk], target: GtidTarget, start: GtidSet = NO_GTIDS) -> list[int]:
    """Return the numbers of the transactions in the relay logs, after checking that these are complete."""
    writer = RelayLogWriter(directory / "relay", start, target, file_bytes=400)
    for chunk in chunks:
        writer.add(chunk)
        if writer.ended:
            break
    batch = writer.finish_batch()
    if batch is None:
        return []
    found: list[int] = []
    reached, remaining = start, 0
    for name in (directory / "relay/relay.index").read_text().split():
        content = Path(name).read_bytes()
        assert content.startswith(events.MAGIC)
        kinds = list(events.split_events(content[4:]))
        assert [each.kind for each in kinds[:2]] == [events.FORMAT_DESCRIPTION, events.PREVIOUS_GTIDS]
        for each in kinds[2:]:
            if each.kind == events.GTID:
                assert remaining == 0
                begun = events.transaction_start(each)
                found.append(begun.number)
                reached, remaining = reached.add(begun.origin, begun.number), begun.length
            remaining -= len(each.data)
        assert remaining == 0
    assert batch.reached == reached
    return found


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Latest(), [1, 2, 3, 4, 5, 6]),
        (AtTime(EPOCH + datetime.timedelta(seconds=3)), [1, 2, 3]),
        (AtTime(EPOCH + datetime.timedelta(seconds=3, microseconds=-1)), [1, 2]),
        (BeforeGtid(one(4)), [1, 2, 3]),
        (ThroughGtid(one(4)), [1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("cuts", [(), (1, 5, 8, 13), range(1, 18)])
def test_relay_logs_end_exactly_at_the_target(
    tmp_path: Path, target: GtidTarget, expected: list[int], cuts: range
) -> None:
    assert written(tmp_path, session("a", NO_GTIDS, ALL, cuts), target) == expected


def test_relay_logs_leave_out_what_the_server_has(tmp_path: Path) -> None:
    start = one(1) | one(2) | one(4)
    assert written(tmp_path, session("a", NO_GTIDS, ALL, (4, 7)), Latest(), start) == [3, 5, 6]


def test_transaction_cut_by_a_crash_comes_from_the_next_session(tmp_path: Path) -> None:
    crashed = session("a", NO_GTIDS, ALL, (3, 7))[:2]
    later = session("b", crashed[-1].header.after, ALL[2:], (2,))
    assert written(tmp_path, [*crashed, *later], Latest()) == [1, 2, 3, 4, 5, 6]


def test_transactions_of_an_abandoned_primary_are_not_written(tmp_path: Path) -> None:
    writer = RelayLogWriter(tmp_path / "relay", NO_GTIDS, Latest(), history=one(1) | one(2) | one(5))
    for chunk in session("a", NO_GTIDS, ALL, (4,)):
        writer.add(chunk)
    batch = writer.finish_batch()
    assert batch is not None
    assert batch.reached == one(1) | one(2) | one(5)


def test_next_batch_has_files_of_its_own(tmp_path: Path) -> None:
    first, second = session("a", NO_GTIDS, ALL, (9,))
    writer = RelayLogWriter(tmp_path / "relay", NO_GTIDS, Latest())
    writer.add(first)
    assert writer.finish_batch() is not None
    writer.next_batch()
    writer.add(second)
    batch = writer.finish_batch()
    assert batch is not None
    assert batch.reached == GtidSet.parse(f"{UUID}:1-6")
    assert [path.name for path in sorted((tmp_path / "relay").iterdir())] == ["relay.000001", "relay.index"]
