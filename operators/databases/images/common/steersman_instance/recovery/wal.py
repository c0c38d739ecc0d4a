"""WAL positions, segment names, and the segments of an archive.

Source: src/include/access/xlog_internal.h (XLogFileName) and PostgreSQL's documentation, "WAL Internals".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

DEFAULT_SEGMENT_BYTES = 16 << 20
MIN_SEGMENT_BYTES = 1 << 20
MAX_SEGMENT_BYTES = 1 << 30
MAX_LSN = (1 << 64) - 1

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_SEGMENT_NAME = re.compile(r"[0-9A-F]{24}")


class InvalidWalName(ValueError):
    """The text is neither an LSN nor a WAL segment's name."""


def parse_lsn(text: str) -> int:
    """Return the byte position of an LSN such as ``0/3000060``.

    Raises:
        InvalidWalName: the text is not an LSN.
    """
    if not (found := _LSN.fullmatch(text)):
        raise InvalidWalName(f"{text!r} is not an LSN: write it as PostgreSQL does, for example 0/3000060")
    return (int(found[1], 16) << 32) + int(found[2], 16)


def format_lsn(position: int) -> str:
    """Return a byte position as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A WAL segment.

    ``number`` counts segments from position 0, and is the same on every timeline.
    """

    timeline: int
    number: int


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """The size of WAL segments, which names depend on.

    Raises:
        InvalidWalName: the size is not a power of two from 1 MiB to 1 GiB.
    """

    bytes: int = DEFAULT_SEGMENT_BYTES

    def __post_init__(self) -> None:
        """Validate the size."""
        if not MIN_SEGMENT_BYTES <= self.bytes <= MAX_SEGMENT_BYTES or self.bytes & (self.bytes - 1):
            raise InvalidWalName(f"WAL segments cannot have {self.bytes} bytes")

    def number(self, lsn: int) -> int:
        """Return the segment number of the byte at a position."""
        return lsn // self.bytes

    def start(self, number: int) -> int:
        """Return the position of a segment's first byte."""
        return number * self.bytes

    def name(self, segment: Segment) -> str:
        """Return the file name of a segment."""
        per_file = (1 << 32) // self.bytes
        return f"{segment.timeline:08X}{segment.number // per_file:08X}{segment.number % per_file:08X}"

    def parse(self, name: str) -> Segment:
        """Return the segment of a file name.

        Raises:
            InvalidWalName: the name is not one of a segment of this size.
        """
        per_file = (1 << 32) // self.bytes
        if not _SEGMENT_NAME.fullmatch(name):
            raise InvalidWalName(f"{name[:40]!r} is not the name of a WAL segment")
        timeline, high, low = int(name[:8], 16), int(name[8:16], 16), int(name[16:], 16)
        if not timeline or low >= per_file:
            raise InvalidWalName(f"{name} is not the name of a WAL segment of {self.bytes} bytes")
        return Segment(timeline, high * per_file + low)


DEFAULT_SEGMENT_SIZE = SegmentSize()


@dataclass(frozen=True, slots=True)
class SegmentRanges:
    """The segments of an archive, as ranges per timeline.

    Args:
        ranges: by timeline, inclusive ranges of segment numbers in ascending order, which neither overlap nor touch.
    """

    ranges: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict[int, tuple[tuple[int, int], ...]])

    @classmethod
    def collect(cls, segments: Iterable[Segment]) -> SegmentRanges:
        """Return the ranges of segments in any order."""
        found: dict[int, list[tuple[int, int]]] = {}
        for segment in sorted(set(segments)):
            ranges = found.setdefault(segment.timeline, [])
            if ranges and ranges[-1][1] + 1 == segment.number:
                ranges[-1] = (ranges[-1][0], segment.number)
            else:
                ranges.append((segment.number, segment.number))
        return cls({timeline: tuple(ranges) for timeline, ranges in found.items()})

    def __contains__(self, segment: Segment) -> bool:
        """Return True if the archive holds a segment."""
        return self._range_of(segment) is not None

    def last_of_run(self, segment: Segment) -> int | None:
        """Return the last number of a segment's gapless run, or None.

        None if it is missing.
        """
        found = self._range_of(segment)
        return found[1] if found else None

    def exists_in(self, timeline: int, first: int, last: int) -> bool:
        """Return True if the archive has such a segment.

        It is of a timeline, and in an inclusive range of numbers.
        """
        return any(start <= last and first <= end for start, end in self.ranges.get(timeline, ()))

    def newest(self, timeline: int) -> int | None:
        """Return the highest number of a timeline."""
        ranges = self.ranges.get(timeline)
        return ranges[-1][1] if ranges else None

    def _range_of(self, segment: Segment) -> tuple[int, int] | None:
        ranges = self.ranges.get(segment.timeline, ())
        index = bisect_right(ranges, (segment.number, MAX_LSN)) - 1
        return ranges[index] if index >= 0 and ranges[index][1] >= segment.number else None
