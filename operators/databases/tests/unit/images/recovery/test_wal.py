"""Names and ranges of WAL segments, and lineages, against sets and examples of PostgreSQL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman_instance.recovery.timelines import Fork, InvalidHistory, Timelines, parse_history
from steersman_instance.recovery.wal import (
    InvalidWalName,
    Segment,
    SegmentRanges,
    SegmentSize,
    format_lsn,
    parse_lsn,
)

SIZES = st.integers(20, 30).map(lambda exponent: SegmentSize(1 << exponent))
SEGMENTS = st.builds(Segment, st.integers(1, 4), st.integers(0, 30))
MIB = 1 << 20


@given(SIZES, st.integers(1, 2**32 - 1), st.integers(0, 2**40))
def test_segment_name_round_trip(size: SegmentSize, timeline: int, number: int) -> None:
    per_file = (1 << 32) // size.bytes
    segment = Segment(timeline, number % (per_file << 20))
    assert size.parse(size.name(segment)) == segment


@given(st.integers(0, 2**64 - 1))
def test_lsn_round_trip(position: int) -> None:
    assert parse_lsn(format_lsn(position)) == position


def test_segment_names_match_postgresql() -> None:
    """As pg_walfile_name prints them."""
    assert SegmentSize().name(Segment(1, SegmentSize().number(parse_lsn("1/FF000028")))) == "0000000100000001000000FF"
    assert SegmentSize(64 * MIB).name(Segment(2, SegmentSize(64 * MIB).number(parse_lsn("1/0")))) == (
        "000000020000000100000000"
    )


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "0/123456789", "x/0", "0/0 "])
def test_malformed_lsn_is_refused(text: str) -> None:
    with pytest.raises(InvalidWalName):
        parse_lsn(text)


@pytest.mark.parametrize(
    "name",
    ["", "00000001", "000000000000000000000001", "0000000100000000000001FF", "00000001000000000000000g", "1" * 25],
)
def test_malformed_segment_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidWalName):
        SegmentSize().parse(name)


@pytest.mark.parametrize("size", [0, 1, 3 * MIB, 512 * 1024, 2 << 30])
def test_invalid_segment_size_is_refused(size: int) -> None:
    with pytest.raises(InvalidWalName):
        SegmentSize(size)


@given(st.frozensets(SEGMENTS), SEGMENTS)
def test_segment_ranges_match_sets(segments: frozenset[Segment], probe: Segment) -> None:
    ranges = SegmentRanges.collect(segments)
    assert (probe in ranges) == (probe in segments)
    numbers = {segment.number for segment in segments if segment.timeline == probe.timeline}
    assert ranges.newest(probe.timeline) == max(numbers, default=None)
    assert ranges.exists_in(probe.timeline, probe.number, 20) == any(probe.number <= n <= 20 for n in numbers)
    last = ranges.last_of_run(probe)
    if probe in segments:
        assert last is not None
        assert set(range(probe.number, last + 1)) <= numbers
        assert last + 1 not in numbers
    else:
        assert last is None


def test_history_file_of_postgresql_is_parsed() -> None:
    text = "1\t0/3000060\tno recovery target specified\n\n2\t0/5000000\tbefore 2026-01-01 00:00:00+00\n"
    assert parse_history(3, text) == (Fork(1, 0x3000060), Fork(2, 0x5000000))


def test_history_file_that_reserves_a_number_has_no_ancestors() -> None:
    assert parse_history(3, "# reserved: elsewhere\n") == ()


@pytest.mark.parametrize("text", ["1", "x\t0/1\n", "1\tx\n", "3\t0/1\n", "2\t0/1\n1\t0/2\n", "0\t0/1\n"])
def test_malformed_history_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidHistory):
        parse_history(3, text)


def test_lineage_leaves_out_ancestors_without_wal() -> None:
    """A recovery with target timeline 2 that ended before timeline 2 began."""
    lineage = Timelines({3: (Fork(1, 50), Fork(2, 30))}, frozenset({1, 2, 3})).lineage(3)
    assert [(span.timeline, span.start) for span in lineage.spans] == [(1, 0), (3, 30)]
    assert lineage.contains(1, 30)
    assert not lineage.contains(1, 31)
    assert lineage.timeline_at(30) == 3


def test_walk_reads_the_segment_of_a_switch_from_the_new_timeline() -> None:
    size = SegmentSize(MIB)
    lineage = Timelines({2: (Fork(1, 3 * MIB + 5),)}, frozenset({1, 2})).lineage(2)
    segments = [Segment(1, 1), Segment(1, 2), Segment(1, 3), Segment(2, 3), Segment(2, 4)]
    walk = lineage.walk(SegmentRanges.collect(segments), size, 1, 1)
    assert walk.segments == ((Segment(1, 1), 2), (Segment(2, 3), 4))
    assert (walk.missing, walk.ends_in) == (None, Segment(2, 5))


def test_walk_reports_a_gap_only_if_wal_follows() -> None:
    size = SegmentSize(MIB)
    lineage = Timelines().lineage(1)
    walk = lineage.walk(SegmentRanges.collect([Segment(1, 1), Segment(1, 3)]), size, 1, 1)
    assert (walk.segments, walk.missing) == (((Segment(1, 1), 1),), Segment(1, 2))
    assert lineage.walk(SegmentRanges.collect([Segment(1, 1)]), size, 1, 1).missing is None
