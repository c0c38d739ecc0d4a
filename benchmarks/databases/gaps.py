"""What a writing client's log says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

Rows = Sequence[tuple[int, float]]
"""Numbers and the moments of their acknowledgement, as they came."""


def acknowledged(lines: Iterable[str]) -> list[tuple[int, float]]:
    """The rows in the writer's output; what else there is are its errors."""
    words = [line.split() for line in lines]
    return [(int(w[0]), float(w[1])) for w in words if len(w) == 2 and w[0].isdecimal()]


def longest_gap(rows: Rows) -> float:
    """The longest time between two acknowledgements."""
    moments = [moment for _, moment in rows]
    return max((later - sooner for sooner, later in pairwise(moments)), default=0.0)


def resumed(rows: Rows, since: float) -> float:
    """When the longest gap after a moment ended; that moment where there was none."""
    moments = [moment for _, moment in rows if moment >= since - 1]
    return max(pairwise(moments), key=lambda pair: pair[1] - pair[0], default=(since, since))[1]
