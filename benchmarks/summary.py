"""What many runs say together."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Summary:
    """One figure over all runs: the median, and the spread from the lowest to the highest."""

    scenario: str
    peer: str
    metric: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The highest value."""
        return max(self.values)


def summarise(measurements: Iterable[Measurement]) -> list[Summary]:
    """One summary of each figure of each peer, in the order in which they first came."""
    values: defaultdict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for m in measurements:
        values[m.scenario, m.peer, m.metric, m.unit].append(m.value)
    return [Summary(*identity, tuple(summaries)) for identity, summaries in values.items()]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not exceeded by ``percent`` of all (the nearest rank).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values, so no percentile")
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(int(rank), 1) - 1]
