"""What controllers and queues count on their hot path: plain numbers, turned into metrics when somebody scrapes.

A sample of the Prometheus client takes a lock and about a microsecond, several times a reconcile. Here a count is an
addition on the event loop's thread, and the collector reads it. Tallies belong to a name and outlive the controller,
as counters must never go back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from steersman.observability.instruments import Distribution
from steersman.observability.metrics import LATENCY_BUCKETS, collected

if TYPE_CHECKING:
    from prometheus_client.core import Metric

QUEUE_BUCKETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)

RESULTS = ("success", "error", "requeue", "requeue_after")


class LiveQueue(Protocol):
    """What is asked of a queue at the moment of a scrape."""

    def depths(self) -> Mapping[int, int]:
        """Keys that wait, by priority."""
        ...

    def started_at(self) -> Iterable[float]:
        """For each key that is worked on, when that began, by the queue's clock."""
        ...

    def now(self) -> float:
        """The queue's clock."""
        ...


class QueueTally:
    """The counts of the queue ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.adds = 0
        self.retries = 0
        self.waits = Distribution(QUEUE_BUCKETS)
        self.works = Distribution(QUEUE_BUCKETS)
        self.queue: Callable[[], LiveQueue | None] = lambda: None


class ControllerTally:
    """The counts of the controller ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.results: dict[str, int] = dict.fromkeys(RESULTS, 0)
        self.errors = 0
        self.terminal_errors = 0
        self.panics = 0
        self.timeouts = 0
        self.status_errors = 0
        self.source_restarts = 0
        self.durations = Distribution(LATENCY_BUCKETS)
        self.active = 0
        self.workers = 0


Tally = TypeVar("Tally")

_queues: dict[str, QueueTally] = {}
_controllers: dict[str, ControllerTally] = {}


def queue_tally(name: str) -> QueueTally:
    """The tally of the queue ``name``, made at the first call."""
    return _queues.setdefault(name, QueueTally(name))


def controller_tally(name: str) -> ControllerTally:
    """The tally of the controller ``name``, made at the first call."""
    return _controllers.setdefault(name, ControllerTally(name))


def _families() -> Iterator[Metric]:
    """All tallies under controller-runtime's names."""
    # Copies, since a scrape may run in a thread of its own.
    yield from _controller_families(tuple(_controllers.values()))
    yield from _queue_families(tuple(_queues.values()))


def _controller_families(tallies: Sequence[ControllerTally]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    total = CounterMetricFamily(
        "controller_runtime_reconcile", "Reconciliations by result.", labels=["controller", "result"]
    )
    for tally in tallies:
        for result, count in tally.results.items():
            total.add_metric([tally.name, result], count)
    yield total
    counters: tuple[tuple[str, str, Callable[[ControllerTally], float]], ...] = (
        ("controller_runtime_reconcile_errors", "Failed reconciliations.", lambda t: t.errors),
        ("controller_runtime_terminal_reconcile_errors", "Those without a retry.", lambda t: t.terminal_errors),
        ("controller_runtime_reconcile_panics", "Those that a bug in the reconciler ended.", lambda t: t.panics),
        ("controller_runtime_reconcile_timeouts", "Those that took longer than allowed.", lambda t: t.timeouts),
        ("steersman_status_update_errors", "Status updates that failed.", lambda t: t.status_errors),
        ("steersman_source_restarts", "Sources that failed and were started again.", lambda t: t.source_restarts),
    )
    yield from _counters(counters, tallies, ["controller"], lambda t: [t.name])
    times = HistogramMetricFamily(
        "controller_runtime_reconcile_time_seconds", "Duration of a reconciliation.", labels=["controller"]
    )
    active = GaugeMetricFamily(
        "controller_runtime_active_workers", "Workers that reconcile at the moment.", labels=["controller"]
    )
    workers = GaugeMetricFamily(
        "controller_runtime_max_concurrent_reconciles", "Workers of a controller.", labels=["controller"]
    )
    for tally in tallies:
        times.add_metric([tally.name], tally.durations.buckets(), tally.durations.total)
        active.add_metric([tally.name], tally.active)
        workers.add_metric([tally.name], tally.workers)
    yield from (times, active, workers)


def _queue_families(tallies: Sequence[QueueTally]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

    labels = ["name", "controller"]
    counters: tuple[tuple[str, str, Callable[[QueueTally], float]], ...] = (
        ("workqueue_adds", "Keys added.", lambda t: t.adds),
        ("workqueue_retries", "Keys added again with back-off.", lambda t: t.retries),
    )
    yield from _counters(counters, tallies, labels, lambda t: [t.name, t.name])
    waits = HistogramMetricFamily(
        "workqueue_queue_duration_seconds", "How long a key waits before it is worked on.", labels=labels
    )
    works = HistogramMetricFamily("workqueue_work_duration_seconds", "How long a key is worked on.", labels=labels)
    depth = GaugeMetricFamily("workqueue_depth", "Keys that wait.", labels=[*labels, "priority"])
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds", "How long all keys in work together have been in work.", labels=labels
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds", "How long the longest one has been in work.", labels=labels
    )
    for tally in tallies:
        names = [tally.name, tally.name]
        waits.add_metric(names, tally.waits.buckets(), tally.waits.total)
        works.add_metric(names, tally.works.buckets(), tally.works.total)
        queue = tally.queue()
        for priority, count in _depths(queue).items():
            depth.add_metric([*names, str(priority)], count)
        ages = _ages(queue)
        unfinished.add_metric(names, sum(ages))
        longest.add_metric(names, max(ages, default=0.0))
    yield from (waits, works, depth, unfinished, longest)


def _counters(
    counters: Iterable[tuple[str, str, Callable[[Tally], float]]],
    tallies: Sequence[Tally],
    labels: list[str],
    values: Callable[[Tally], list[str]],
) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, count in counters:
        family = CounterMetricFamily(name, text, labels=labels)
        for tally in tallies:
            family.add_metric(values(tally), count(tally))
        yield family


def _depths(queue: LiveQueue | None) -> Mapping[int, int]:
    return {0: 0} if queue is None else queue.depths()


def _ages(queue: LiveQueue | None) -> list[float]:
    if queue is None:
        return []
    try:
        now = queue.now()
    except RuntimeError:
        # Scraped from a thread without an event loop: loops count the same seconds as this clock.
        now = time.monotonic()
    return [max(0.0, now - started) for started in queue.started_at()]


collected(_families)
