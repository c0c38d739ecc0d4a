"""Ring of points with a fixed size."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence


class Ring:
    """The last points of several series. NaN stands for a missing value.

    Args:
        series: number of values of a point.
        points: number of points that are kept.

    Attributes:
        count: number of points that were appended.
    """

    def __init__(self, series: int, points: int) -> None:
        # Four bytes a value, allocated once.
        self._columns = [array("f", [math.nan]) * points for _ in range(series)]
        self._points = points
        self.count = 0

    def append(self, point: Sequence[float]) -> None:
        """Append a point. It replaces the oldest one if the ring is full."""
        for column, value in zip(self._columns, point, strict=True):
            column[self.count % self._points] = value
        self.count += 1

    def last(self, series: int, limit: int) -> list[float]:
        """Return at most `limit` values of a series, oldest first."""
        column = self._columns[series]
        kept = min(self.count, self._points, limit)
        return [column[number % self._points] for number in range(self.count - kept, self.count)]


def mean(values: Sequence[float]) -> float:
    """Return the mean of the values that are not missing, or NaN."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
