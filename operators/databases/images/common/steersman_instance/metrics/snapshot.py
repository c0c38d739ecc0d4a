"""Latest values of all collectors, with age and series limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

from .catalog import Collector, Metric, Reading, Sample, TimedSamples, counter

SERIES_LIMIT = 2000
"""Most series of an instance, without those about the exporter itself."""
STALE_AFTER_INTERVALS = 3

SUCCESS = Metric("steersman_exporter_collector_success", "1 if the last run succeeded in time.", ("collector",))
AGE = Metric("steersman_exporter_collector_age_seconds", "Time since the last run that succeeded.", ("collector",))
DURATION = Metric(
    "steersman_exporter_collector_duration_seconds", "Duration of the last run that succeeded.", ("collector",)
)
DROPPED = Metric("steersman_exporter_dropped_series", "Series that a limit left out.")
FAILURES = counter("steersman_exporter_collector_failures_total", "Runs that failed.", ("collector",))
OWN_METRICS = (SUCCESS, AGE, DURATION, DROPPED, FAILURES)


@dataclass
class _State:
    collector: Collector[Any]
    reading: Reading = field(default_factory=lambda: Reading(()))
    succeeded_at: float | None = None
    duration_seconds: float = 0.0
    failures: int = 0
    last_failed: bool = False

    def is_fresh(self, now: float) -> bool:
        limit = STALE_AFTER_INTERVALS * self.collector.interval_seconds
        return self.succeeded_at is not None and now - self.succeeded_at <= limit


class Snapshot:
    """A collector for `prometheus_client`. Threads write to it, and scrapes read from it.

    Args:
        collectors: all collectors. Where there are too many series, the last ones lose theirs.
        up: metric that is 1 while the values of a collector, named by its key, are fresh, else 0.
        labels: labels that all series have.
        limit: most series of the collectors.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        collectors: Sequence[Collector[Any]],
        *,
        up: Mapping[str, Metric],
        labels: Mapping[str, str],
        limit: int = SERIES_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = {one.name: _State(one) for one in collectors}
        if len(self._states) != len(collectors):
            raise ValueError("two collectors have the same name")
        self._up = up
        self._labels = labels
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()

    def store(self, collector: str, reading: Reading, duration_seconds: float) -> None:
        """Replace the values of a collector."""
        with self._lock:
            state = self._states[collector]
            state.reading, state.succeeded_at = reading, self._clock()
            state.duration_seconds, state.last_failed = duration_seconds, False

    def fail(self, collector: str) -> None:
        """Record a failed run. Earlier values are served until they are stale."""
        with self._lock:
            state = self._states[collector]
            state.failures += 1
            state.last_failed = True

    def collect(self) -> Iterator[Family]:
        """Yield the families of one scrape."""
        with self._lock:
            samples = self._samples(self._clock())
        families: dict[str, Family] = {}
        for sample in samples:
            metric = sample.metric
            if metric.name not in families:
                families[metric.name] = _family(metric, (*metric.labels, *self._labels))
            # The common base class of both families does not declare the method.
            family: Any = families[metric.name]
            family.add_metric((*sample.labels, *self._labels.values()), sample.value)
        yield from families.values()

    def readings(self) -> Mapping[str, TimedSamples]:
        """Return the fresh samples of each metric, by its name."""
        with self._lock:
            now = self._clock()
            fresh = [(state.succeeded_at, state.reading) for state in self._states.values() if state.is_fresh(now)]
        found: dict[str, TimedSamples] = {}
        for at, reading in fresh:
            for sample in reading.samples:
                found.setdefault(sample.metric.name, TimedSamples(at or 0.0, [])).samples.append(sample)
        return found

    def _samples(self, now: float) -> list[Sample]:
        kept: dict[tuple[str, tuple[str, ...]], Sample] = {}
        own: list[Sample] = []
        dropped = 0
        for name, state in self._states.items():
            fresh = state.is_fresh(now)
            if fresh:
                dropped += state.reading.dropped
                for sample in state.reading.samples:
                    # A series that occurs twice would make Prometheus reject the whole page.
                    if len(kept) >= self._limit or (sample.metric.name, sample.labels) in kept:
                        dropped += 1
                    else:
                        kept[sample.metric.name, sample.labels] = sample
            own += self._own_samples(name, state, now)
            if name in self._up:
                own.append(Sample(self._up[name], (), float(fresh)))
        return [*kept.values(), *own, Sample(DROPPED, (), dropped)]

    def _own_samples(self, name: str, state: _State, now: float) -> Iterator[Sample]:
        yield Sample(SUCCESS, (name,), float(state.is_fresh(now) and not state.last_failed))
        yield Sample(FAILURES, (name,), state.failures)
        if state.succeeded_at is not None:
            yield Sample(AGE, (name,), now - state.succeeded_at)
            yield Sample(DURATION, (name,), state.duration_seconds)


def _family(metric: Metric, labels: Sequence[str]) -> GaugeMetricFamily | CounterMetricFamily:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=labels)
