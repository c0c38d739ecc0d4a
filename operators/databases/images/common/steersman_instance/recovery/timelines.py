"""Timelines of a database: history files, ancestry, and their WAL.

A promotion begins a timeline, and its history file names the ancestors with the positions at which each was left. An
archive may hold timelines that no later one descends from: they were abandoned by a failover or a recovery.

Source: src/backend/access/transam/timeline.c (readTimeLineHistory) and xlogrecovery.c (XLogFileReadAnyTLI).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .wal import MAX_LSN, InvalidWalName, Segment, SegmentRanges, SegmentSize, parse_lsn

MAX_HISTORY_BYTES = 1 << 20


class InvalidHistory(ValueError):
    """A history file is malformed."""


@dataclass(frozen=True, slots=True)
class Fork:
    """An ancestor and the position at which the next timeline began."""

    timeline: int
    end: int


@dataclass(frozen=True, slots=True)
class Span:
    """Positions of a lineage on one timeline.

    They include ``start`` and exclude ``end``.
    """

    timeline: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Walk:
    """The gapless WAL of an archive from one segment on.

    Args:
        segments: inclusive runs of one timeline each, in the order of replay.
        missing: the first missing segment, if WAL follows it; None where the archive simply ends.
        ends_in: the segment that would come next.
    """

    segments: tuple[tuple[Segment, int], ...]
    missing: Segment | None
    ends_in: Segment


@dataclass(frozen=True, slots=True)
class Lineage:
    """A timeline with its ancestors, oldest first, and their positions."""

    spans: tuple[Span, ...]

    @property
    def timeline(self) -> int:
        """The timeline that the lineage leads to."""
        return self.spans[-1].timeline

    def contains(self, timeline: int, lsn: int) -> bool:
        """Return True if the lineage has this position.

        It may be the end of the timeline's span.
        """
        return any(span.timeline == timeline and span.start <= lsn <= span.end for span in self.spans)

    def timeline_at(self, lsn: int) -> int:
        """Return the timeline that has the byte at a position."""
        return next((span.timeline for span in self.spans if span.start <= lsn < span.end), self.timeline)

    def walk(self, ranges: SegmentRanges, size: SegmentSize, timeline: int, number: int) -> Walk:
        """Follow archived WAL from a segment on, as PostgreSQL does.

        The segment in which a timeline begins is read from that timeline: it has the WAL before the switch as well.
        """
        runs: list[tuple[Segment, int]] = []
        pieces = [piece for piece in self._pieces(size) if piece[0] >= timeline]
        for index, (current, first, last) in enumerate(pieces):
            position = max(first, number)
            if position > last:
                continue
            end = ranges.last_of_run(Segment(current, position))
            if end is not None:
                runs.append((Segment(current, position), min(end, last)))
            if end is None or end < last:
                gap = Segment(current, position if end is None else end + 1)
                later = ranges.exists_in(current, gap.number, last) or any(
                    ranges.exists_in(*piece) for piece in pieces[index + 1 :]
                )
                return Walk(tuple(runs), gap if later else None, gap)
        raise AssertionError("the last timeline has no end")

    def _pieces(self, size: SegmentSize) -> Iterator[tuple[int, int, int]]:
        """Yield each timeline with its first and last segment number."""
        for index, span in enumerate(self.spans):
            following = self.spans[index + 1] if index + 1 < len(self.spans) else None
            yield span.timeline, size.number(span.start), size.number(following.start) - 1 if following else MAX_LSN


@dataclass(frozen=True, slots=True)
class Timelines:
    """The timelines of an archive.

    Args:
        histories: ancestors of each timeline that has a history file, oldest first.
        known: numbers of all timelines that have WAL, a backup or a history file with ancestors.
    """

    histories: Mapping[int, tuple[Fork, ...]] = field(default_factory=dict[int, tuple[Fork, ...]])
    known: frozenset[int] = frozenset()

    @property
    def newest(self) -> int | None:
        """The timeline that was begun last: numbers are never given twice."""
        return max(self.known, default=None)

    def has_history(self, timeline: int) -> bool:
        """Return True if the ancestors are known. Timeline 1 has none."""
        return timeline == 1 or timeline in self.histories

    def parent(self, timeline: int) -> Fork | None:
        """Return the parent of a timeline and the position, or None."""
        spans = self.lineage(timeline).spans
        return Fork(spans[-2].timeline, spans[-2].end) if len(spans) > 1 else None

    def lineage(self, timeline: int) -> Lineage:
        """Return the ancestors of a timeline with their positions.

        A recovery that stops before its target timeline begins names that timeline as an ancestor without WAL.
        Such ancestors are left out.
        """
        spans: list[Span] = []
        start, ancestors = 0, self.histories.get(timeline, ())
        ends: list[int] = []
        earliest = MAX_LSN
        for fork in reversed(ancestors):
            earliest = min(earliest, fork.end)
            ends.append(earliest)
        for fork, end in zip(ancestors, reversed(ends), strict=True):
            if end > start:
                spans.append(Span(fork.timeline, start, end))
                start = end
        spans.append(Span(timeline, start, MAX_LSN))
        return Lineage(tuple(spans))

    def children(self, timeline: int) -> tuple[int, ...]:
        """Return the timelines that began directly from a timeline, in ascending order."""
        return tuple(
            child for child in sorted(self.histories) if (fork := self.parent(child)) and fork.timeline == timeline
        )


def parse_history(timeline: int, text: str) -> tuple[Fork, ...]:
    """Return the ancestors that a history file names, oldest first.

    A file without ancestors only reserves a number, and gives an empty tuple.

    Raises:
        InvalidHistory: a line is malformed, or an ancestor is not older than its successor.
    """
    if len(text) > MAX_HISTORY_BYTES:
        raise InvalidHistory(f"{timeline:08X}.history has more than {MAX_HISTORY_BYTES} bytes")
    found: list[Fork] = []
    for line in text.splitlines():
        fields = line.split(None, 2)
        if not fields or fields[0].startswith("#"):
            continue
        try:
            fork = Fork(int(fields[0], 10), parse_lsn(fields[1]))
        except (IndexError, ValueError, InvalidWalName):
            raise InvalidHistory(f"{timeline:08X}.history has a malformed line") from None
        if not (found[-1].timeline if found else 0) < fork.timeline < timeline:
            raise InvalidHistory(f"{timeline:08X}.history names its ancestors in the wrong order")
        found.append(fork)
    return tuple(found)
