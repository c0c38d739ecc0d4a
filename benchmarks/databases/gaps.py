"""What a writing client's log says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def longest_gap(rows: Sequence[tuple[int, float]]) -> float:
    """The longest time between two acknowledgements."""
    moments = [moment for _, moment in rows]
    return max((later - sooner for sooner, later in pairwise(moments)), default=0.0)
