"""Values of series, derived from the samples of collectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..catalog import TimedSamples

Readings = Mapping[str, TimedSamples]
"""Fresh samples by the name of the metric."""
Unit = Literal["count", "per_second", "bytes", "bytes_per_second", "seconds", "ratio", "cores"]


class Source(Protocol):
    """Derives one value from each set of readings."""

    def value(self, readings: Readings) -> float:
        """Return the present value. NaN if it is not known."""
        ...


@dataclass(frozen=True)
class Series:
    """A series of the history. Engines use the same name for the same meaning."""

    name: str
    unit: Unit
    source: Source


@dataclass(frozen=True, kw_only=True)
class Level:
    """Sum or maximum of gauges.

    Args:
        metrics: names of the gauges.
        label: values of the first label to include. Defaults to all.
    """

    metrics: Sequence[str]
    label: Sequence[str] = ()
    combine: Literal["sum", "max"] = "sum"

    def value(self, readings: Readings) -> float:
        """See `Source.value`."""
        values = [
            sample.value
            for timed in _present(self.metrics, readings)
            for sample in timed.samples
            if not self.label or sample.labels[0] in self.label
        ]
        if not values:
            return math.nan
        return math.fsum(values) if self.combine == "sum" else max(values)


@dataclass(frozen=True, kw_only=True)
class Used:
    """Used bytes of a volume."""

    volume: str

    def value(self, readings: Readings) -> float:
        """See `Source.value`."""
        size, available = (
            Level(metrics=(f"steersman_volume_{name}_bytes",), label=(self.volume,)).value(readings)
            for name in ("size", "available")
        )
        return size - available


@dataclass(kw_only=True)
class Rate:
    """Increase of counters each second. The counters are of one collector.

    A counter that is lower than before was reset, and the rate is not known. A label that is new does not count yet.
    """

    metrics: Sequence[str]
    _at: float | None = None
    _values: Mapping[tuple[str, tuple[str, ...]], float] = field(
        default_factory=dict[tuple[str, tuple[str, ...]], float]
    )
    _rate: float = math.nan

    def value(self, readings: Readings) -> float:
        """See `Source.value`. The rate stays the same until the collector has run again."""
        present = _present(self.metrics, readings)
        at = present[0].at if present else None
        if at is None or at != self._at:
            values = {
                (sample.metric.name, sample.labels): sample.value for timed in present for sample in timed.samples
            }
            self._rate = self._since(at, values)
            self._at, self._values = at, values
        return self._rate

    def _since(self, at: float | None, values: Mapping[tuple[str, tuple[str, ...]], float]) -> float:
        if at is None or self._at is None or at <= self._at:
            return math.nan
        increases = [value - self._values[key] for key, value in values.items() if key in self._values]
        if not increases or min(increases) < 0:
            return math.nan
        return math.fsum(increases) / (at - self._at)


@dataclass(frozen=True, kw_only=True)
class HitRatio:
    """Share of requests that were not misses. Not known without requests."""

    misses: Rate
    requests: Rate

    def value(self, readings: Readings) -> float:
        """See `Source.value`."""
        misses, requests = self.misses.value(readings), self.requests.value(readings)
        return max(1 - misses / requests, 0.0) if requests > 0 else math.nan


def _present(metrics: Iterable[str], readings: Readings) -> Sequence[TimedSamples]:
    return [readings[name] for name in metrics if name in readings]
