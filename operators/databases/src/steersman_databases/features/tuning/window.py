"""Figures of a primary over time: samples, and the periods between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table, as the server estimates them."""

    dead: float
    live: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Figures of a primary at one time.

    Attributes:
        at: time of the sample.
        server: identity of the running server. A restart changes it.
        counters: values that only rise while the server runs.
        gauges: other values, and parameters by their names.
        tables: tables with the most dead rows.
    """

    at: datetime
    server: str
    counters: Mapping[str, float]
    gauges: Mapping[str, float]
    tables: Mapping[str, TableRows] = field(default_factory=dict[str, TableRows])


@dataclass(frozen=True, slots=True)
class Period:
    """Time between two samples of one server."""

    start: Sample
    end: Sample

    @property
    def seconds(self) -> float:
        """Length of the period."""
        return (self.end.at - self.start.at).total_seconds()

    def increase(self, counter: str) -> float:
        """Return the increase of a counter. One without a value is 0."""
        return self.end.counters.get(counter, 0.0) - self.start.counters.get(counter, 0.0)

    def rise(self, gauge: str) -> float:
        """Return the change of a gauge, which may be negative."""
        return self.end.gauges.get(gauge, 0.0) - self.start.gauges.get(gauge, 0.0)


def periods_of(samples: Sequence[Sample]) -> Sequence[Period]:
    """Return the periods between consecutive samples.

    There is none across a restart, a change of the primary or a reset of the counters.
    """
    return [Period(start, end) for start, end in pairwise(samples) if _is_continuous(start, end)]


def _is_continuous(start: Sample, end: Sample) -> bool:
    return (
        start.server == end.server
        and start.at < end.at
        and start.counters.keys() == end.counters.keys()
        and all(end.counters[name] >= value for name, value in start.counters.items())
    )


@dataclass(frozen=True, slots=True)
class Window:
    """The periods that a rule judges. It is not empty."""

    periods: Sequence[Period]

    @property
    def seconds(self) -> float:
        """Observed time."""
        return sum(period.seconds for period in self.periods)

    @property
    def hours(self) -> int:
        """Number of different hours that were observed."""
        return self.hours_with(lambda _: True)

    @property
    def last(self) -> Sample:
        """The latest sample."""
        return self.periods[-1].end

    def total(self, counter: str) -> float:
        """Return the increase of a counter in all periods."""
        return sum(period.increase(counter) for period in self.periods)

    def peak(self, gauge: str) -> float:
        """Return the highest value of a gauge."""
        return max(period.end.gauges.get(gauge, 0.0) for period in self.periods)

    def hours_with(self, condition: Callable[[Period], bool]) -> int:
        """Return the number of hours in which a period meets the condition."""
        begin = self.periods[0].start.at
        return len({(period.start.at - begin) // timedelta(hours=1) for period in self.periods if condition(period)})

    def share_of_time(self, condition: Callable[[Period], bool]) -> float:
        """Return the part of the observed time in which the condition held."""
        return sum(period.seconds for period in self.periods if condition(period)) / self.seconds

    def dead_rows(self, table: str) -> Iterator[float]:
        """Yield the known dead rows of a table, oldest first."""
        for period in self.periods:
            if (rows := period.end.tables.get(table)) is not None:
                yield rows.dead
