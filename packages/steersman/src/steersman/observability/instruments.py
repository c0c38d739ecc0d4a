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


class HistogramValue:
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
    def merge(cls, parts: Sequence[HistogramValue]) -> HistogramValue:
        """The values of all ``parts``, of which there is one at least and which have the same bounds."""
        merged = cls(parts[0].bounds)
        merged.counts = [sum(counts) for counts in zip(*(part.counts for part in parts), strict=True)]
        merged.total = sum(part.total for part in parts)
        return merged

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and count of all values up to it, the last one ``+Inf``."""
        labels = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(labels, accumulate(self.counts), strict=True))


class NumberValue:
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


class SynchronizedHistogramValue(HistogramValue):
    """A distribution that any thread may write."""

    __slots__ = ("_lock",)

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Adds ``value``."""
        with self._lock:
            super().observe(value)


Child = TypeVar("Child", NumberValue, SynchronizedHistogramValue)


class _MetricFamily(Generic[Child]):
    def __init__(self, name: str, documentation: str, labels: Sequence[str], new_child: Callable[[], Child]) -> None:
        self.name = name
        self.documentation = documentation
        self._labels = tuple(labels)
        self._new_child = new_child
        self._children: dict[tuple[str, ...], Child] = {} if labels else {(): new_child()}

    def labels(self, *values: str) -> Child:
        """What is counted under ``values``, one for each label."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self.name} has the labels {self._labels}, not {len(values)} of them")
            child = self._children.setdefault(values, self._new_child())
        return child

    def _samples(self) -> Iterator[tuple[list[str], Child]]:
        return ((list(values), cell) for values, cell in tuple(self._children.items()))


class Counter(_MetricFamily[NumberValue]):
    """Only grows. ``name`` is without ``_total``."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, documentation, labels, NumberValue)

    def inc(self, amount: float = 1.0) -> None:
        """Adds ``amount``, where there are no labels."""
        self.labels().inc(amount)

    def collect(self) -> Iterable[Metric]:
        """What Prometheus' client makes text of."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.documentation, labels=self._labels)
        for values, child in self._samples():
            family.add_metric(values, child.value)
        return (family,)


class Gauge(_MetricFamily[NumberValue]):
    """Goes up and down."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, documentation, labels, NumberValue)

    def set(self, value: float) -> None:
        """Makes it ``value``, where there are no labels."""
        self.labels().set(value)

    def collect(self) -> Iterable[Metric]:
        """What Prometheus' client makes text of."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.documentation, labels=self._labels)
        for values, child in self._samples():
            family.add_metric(values, child.value)
        return (family,)


class Histogram(_MetricFamily[SynchronizedHistogramValue]):
    """How values are spread over ``buckets``."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> None:
        super().__init__(name, documentation, labels, lambda: SynchronizedHistogramValue(buckets))

    def observe(self, value: float) -> None:
        """Adds ``value``, where there are no labels."""
        self.labels().observe(value)

    def collect(self) -> Iterable[Metric]:
        """What Prometheus' client makes text of."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self.documentation, labels=self._labels)
        for values, child in self._samples():
            family.add_metric(values, child.buckets(), child.total)
        return (family,)
