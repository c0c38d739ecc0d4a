"""GTID sets as MySQL writes them.

Source: MySQL 9.7 Reference Manual, "GTID Sets": `uuid[:tag]:interval[:interval]...`, joined by commas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Interval = tuple[int, int]
"""First and last transaction number, both included."""


@dataclass(frozen=True)
class GtidSet:
    """A set of transactions.

    Args:
        intervals: by origin, `uuid` or `uuid:tag`. The intervals of an origin are sorted and do not touch.
    """

    intervals: Mapping[str, tuple[Interval, ...]] = field(default_factory=dict[str, tuple[Interval, ...]])

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Parse MySQL's text form. Raises ValueError."""
        found: dict[str, list[Interval]] = {}
        for part in filter(None, (one.strip() for one in text.split(","))):
            source, *rest = (word.strip().lower() for word in part.split(":"))
            origin = source
            for word in rest:
                if not word[:1].isdigit():
                    # A tag: transactions with it are numbered separately.
                    origin = f"{source}:{word}"
                    continue
                first, _, last = word.partition("-")
                found.setdefault(origin, []).append((int(first), int(last or first)))
        return cls({origin: _merge_intervals(intervals) for origin, intervals in found.items()})

    @classmethod
    def up_to(cls, last: str) -> GtidSet:
        """Return a transaction and all earlier ones of its origin.

        The set is empty for empty text. Raises ValueError.
        """
        return cls({origin: ((1, numbers[-1][1]),) for origin, numbers in cls.parse(last).intervals.items()})

    def add(self, origin: str, number: int) -> GtidSet:
        """Return this set with one more transaction."""
        intervals = self.intervals.get(origin, ())
        if intervals and intervals[-1][1] + 1 == number:
            # Nearly every transaction of a binary log is the next of its origin.
            return GtidSet({**self.intervals, origin: (*intervals[:-1], (intervals[-1][0], number))})
        return GtidSet({**self.intervals, origin: _merge_intervals([*intervals, (number, number)])})

    def has(self, origin: str, number: int) -> bool:
        """Return True if the transaction is in the set."""
        return any(first <= number <= last for first, last in self.intervals.get(origin, ()))

    @property
    def sources(self) -> frozenset[str]:
        """UUIDs of groups and servers, without tags."""
        return frozenset(origin.partition(":")[0] for origin in self.intervals)

    def __or__(self, other: GtidSet) -> GtidSet:
        origins = {*self.intervals, *other.intervals}
        return GtidSet(
            {o: _merge_intervals([*self.intervals.get(o, ()), *other.intervals.get(o, ())]) for o in origins}
        )

    def __sub__(self, other: GtidSet) -> GtidSet:
        left = {o: _subtract_intervals(have, other.intervals.get(o, ())) for o, have in self.intervals.items()}
        return GtidSet({origin: intervals for origin, intervals in left.items() if intervals})

    def __and__(self, other: GtidSet) -> GtidSet:
        return self - (self - other)

    def __ge__(self, other: GtidSet) -> bool:
        """Return True if this set contains `other`."""
        return not other - self

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __len__(self) -> int:
        return sum(last - first + 1 for intervals in self.intervals.values() for first, last in intervals)

    def __str__(self) -> str:
        return ",".join(
            f"{origin}:{_format_intervals(intervals)}" for origin, intervals in sorted(self.intervals.items())
        )


NO_GTIDS = GtidSet()
"""The empty set."""


def _format_intervals(intervals: Iterable[Interval]) -> str:
    return ":".join(str(first) if first == last else f"{first}-{last}" for first, last in intervals)


def _merge_intervals(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    joined: list[Interval] = []
    for first, last in sorted(intervals):
        if last < first or first < 1:
            raise ValueError(f"{first}-{last} is not an interval of transactions")
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _subtract_intervals(have: Iterable[Interval], taken: Iterable[Interval]) -> tuple[Interval, ...]:
    left = list(have)
    for first, last in taken:
        pieces = [((a, min(b, first - 1)), (max(a, last + 1), b)) for a, b in left]
        left = [(a, b) for pair in pieces for a, b in pair if a <= b]
    return tuple(left)
