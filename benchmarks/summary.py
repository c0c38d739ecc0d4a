"""Statistics over several runs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Summary:
    """Median and spread of one metric over all runs."""

    scenario: str
    peer: str
    metric: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median value."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """Lowest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """Highest value."""
        return max(self.values)


def summarise(measurements: Iterable[Measurement]) -> list[Summary]:
    """Summarise each metric of each peer, in order of first appearance."""
    values: defaultdict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for m in measurements:
        values[m.scenario, m.peer, m.metric, m.unit].append(m.value)
    return [Summary(*identity, tuple(summaries)) for identity, summaries in values.items()]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of the values.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("the percentile of an empty list is undefined")
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(int(rank), 1) - 1]
