"""Counters, gauges and histograms as plain numbers, which become Prometheus' when somebody scrapes.

The Prometheus client takes a fifth of the time that a framework may take to import, and 4 MiB, which a process that
nobody scrapes need not pay.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Distribution:
    """How often values fell below each bound, and their sum: a histogram that a single thread writes."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Adds ``value``."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @classmethod
    def sum(cls, parts: Sequence[Distribution]) -> Distribution:
        """The values of all ``parts``, of which there is one at least and which have the same bounds."""
        whole = cls(parts[0].bounds)
        whole.counts = [sum(counts) for counts in zip(*(part.counts for part in parts), strict=True)]
        whole.total = sum(part.total for part in parts)
        return whole

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and count of all values up to it, the last one ``+Inf``."""
        labels = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(labels, accumulate(self.counts), strict=True))


class Number:
    """One number of a counter or a gauge; safe from any thread."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._lock = threading.Lock()

    def inc(self, amount: float = 1.0) -> None:
        """Adds ``amount``."""
        with self._lock:
            self.value += amount

    def set(self, value: float) -> None:
        """Makes it ``value``."""
        self.value = value


class Values(Distribution):
    """A distribution that any thread may write."""

    __slots__ = ("_lock",)

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Adds ``value``."""
        with self._lock:
            super().observe(value)


Cell = TypeVar("Cell", Number, Values)


class _Family(Generic[Cell]):
    def __init__(self, name: str, text: str, labels: Sequence[str], new: Callable[[], Cell]) -> None:
        self.name = name
        self.text = text
        self._labels = tuple(labels)
        self._new = new
        self._cells: dict[tuple[str, ...], Cell] = {} if labels else {(): new()}

    def labels(self, *values: str) -> Cell:
        """What is counted under ``values``, one for each label."""
        cell = self._cells.get(values)
        if cell is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self.name} has the labels {self._labels}, not {len(values)} of them")
            cell = self._cells.setdefault(values, self._new())
        return cell

    def _all(self) -> Iterator[tuple[list[str], Cell]]:
        return ((list(values), cell) for values, cell in tuple(self._cells.items()))


class Counter(_Family[Number]):
    """Only grows. ``name`` is without ``_total``."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels, Number)

    def inc(self, amount: float = 1.0) -> None:
        """Adds ``amount``, where there are no labels."""
        self.labels().inc(amount)

    def collect(self) -> Iterable[Metric]:
        """What Prometheus' client makes text of."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.text, labels=self._labels)
        for values, cell in self._all():
            family.add_metric(values, cell.value)
        return (family,)


class Gauge(_Family[Number]):
    """Goes up and down."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels, Number)

    def set(self, value: float) -> None:
        """Makes it ``value``, where there are no labels."""
        self.labels().set(value)

    def collect(self) -> Iterable[Metric]:
        """What Prometheus' client makes text of."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.text, labels=self._labels)
        for values, cell in self._all():
            family.add_metric(values, cell.value)
        return (family,)


class Histogram(_Family[Values]):
    """How values are spread over ``buckets``."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]) -> None:
        super().__init__(name, text, labels, lambda: Values(buckets))

    def observe(self, value: float) -> None:
        """Adds ``value``, where there are no labels."""
        self.labels().observe(value)

    def collect(self) -> Iterable[Metric]:
        """What Prometheus' client makes text of."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self.text, labels=self._labels)
        for values, cell in self._all():
            family.add_metric(values, cell.buckets(), cell.total)
        return (family,)
