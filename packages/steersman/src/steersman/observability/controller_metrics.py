"""Metrics of controllers and work queues.

They change several times per reconcile, so they are plain numbers, which a collector reads at scrape. A Prometheus
counter would take a lock and several calls for each change. Metrics belong to a name and outlive the controller,
since counters must not decrease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from steersman.observability.histogram import HistogramValue
from steersman.observability.metrics import LATENCY_BUCKETS, register_collector

if TYPE_CHECKING:
    from prometheus_client.core import Metric

QUEUE_BUCKETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)

RESULTS = ("success", "error", "requeue_after")


class QueueView(Protocol):
    """State of a queue at scrape."""

    def depths(self) -> Mapping[int, int]:
        """Number of waiting keys by priority."""
        ...

    def started_at(self) -> Iterable[float]:
        """Start time of each key in progress."""
        ...

    def now(self) -> float:
        """Current time by the clock of the queue."""
        ...


class QueueMetrics:
    """Metrics of a work queue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.adds = 0
        self.retries = 0
        self.queue_durations = HistogramValue(QUEUE_BUCKETS)
        self.work_durations = HistogramValue(QUEUE_BUCKETS)
        self.queue: Callable[[], QueueView | None] = lambda: None


class ControllerMetrics:
    """Metrics of a controller."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.results: dict[str, int] = dict.fromkeys(RESULTS, 0)
        self.errors = 0
        self.terminal_errors = 0
        self.panics = 0
        self.timeouts = 0
        self.status_errors = 0
        self.source_restarts = 0
        self.reconcile_durations = HistogramValue(LATENCY_BUCKETS)
        self.active = 0
        self.workers = 0


MetricsT = TypeVar("MetricsT")

_queues: dict[str, QueueMetrics] = {}
_controllers: dict[str, ControllerMetrics] = {}


def queue_metrics(name: str) -> QueueMetrics:
    """Metrics of the queue ``name``, created at the first call."""
    return _queues.setdefault(name, QueueMetrics(name))


def controller_metrics(name: str) -> ControllerMetrics:
    """Metrics of the controller ``name``, created at the first call."""
    return _controllers.setdefault(name, ControllerMetrics(name))


def _metric_families() -> Iterator[Metric]:
    # Copies, since a scrape may run in another thread.
    yield from _controller_families(tuple(_controllers.values()))
    yield from _queue_families(tuple(_queues.values()))


def _controller_families(all_metrics: Sequence[ControllerMetrics]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    total = CounterMetricFamily(
        "controller_runtime_reconcile", "Reconciliations by result.", labels=["controller", "result"]
    )
    for metrics in all_metrics:
        for result, count in metrics.results.items():
            total.add_metric([metrics.name, result], count)
    yield total
    counters: tuple[tuple[str, str, Callable[[ControllerMetrics], float]], ...] = (
        ("controller_runtime_reconcile_errors", "Reconciliations that failed.", lambda t: t.errors),
        (
            "controller_runtime_terminal_reconcile_errors",
            "Reconciliations that failed with a TerminalError.",
            lambda t: t.terminal_errors,
        ),
        (
            "controller_runtime_reconcile_panics",
            "Reconciliations that failed with an unexpected exception.",
            lambda t: t.panics,
        ),
        (
            "controller_runtime_reconcile_timeouts",
            "Reconciliations that exceeded their timeout.",
            lambda t: t.timeouts,
        ),
        ("steersman_status_update_errors", "Status updates that failed.", lambda t: t.status_errors),
        ("steersman_source_restarts", "Sources that were restarted after a failure.", lambda t: t.source_restarts),
    )
    yield from _counters(counters, all_metrics, ["controller"], lambda t: [t.name])
    times = HistogramMetricFamily(
        "controller_runtime_reconcile_time_seconds", "Duration of a reconciliation.", labels=["controller"]
    )
    active = GaugeMetricFamily(
        "controller_runtime_active_workers", "Workers that are reconciling.", labels=["controller"]
    )
    workers = GaugeMetricFamily(
        "controller_runtime_max_concurrent_reconciles",
        "Maximum number of concurrent reconciliations.",
        labels=["controller"],
    )
    for metrics in all_metrics:
        times.add_metric([metrics.name], metrics.reconcile_durations.buckets(), metrics.reconcile_durations.total)
        active.add_metric([metrics.name], metrics.active)
        workers.add_metric([metrics.name], metrics.workers)
    yield from (times, active, workers)


def _queue_families(all_metrics: Sequence[QueueMetrics]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

    labels = ["name", "controller"]
    counters: tuple[tuple[str, str, Callable[[QueueMetrics], float]], ...] = (
        ("workqueue_adds", "Keys that were added.", lambda t: t.adds),
        ("workqueue_retries", "Keys that were added again with back-off.", lambda t: t.retries),
    )
    yield from _counters(counters, all_metrics, labels, lambda t: [t.name, t.name])
    queue_durations = HistogramMetricFamily(
        "workqueue_queue_duration_seconds", "Time that a key waits in the queue.", labels=labels
    )
    work_durations = HistogramMetricFamily(
        "workqueue_work_duration_seconds", "Time that processing of a key takes.", labels=labels
    )
    depth = GaugeMetricFamily("workqueue_depth", "Keys that are waiting.", labels=[*labels, "priority"])
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds", "Total time that keys in progress have been processed.", labels=labels
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds",
        "Time that the oldest key in progress has been processed.",
        labels=labels,
    )
    for metrics in all_metrics:
        names = [metrics.name, metrics.name]
        queue_durations.add_metric(names, metrics.queue_durations.buckets(), metrics.queue_durations.total)
        work_durations.add_metric(names, metrics.work_durations.buckets(), metrics.work_durations.total)
        queue = metrics.queue()
        for priority, count in _depths(queue).items():
            depth.add_metric([*names, str(priority)], count)
        ages = _work_ages(queue)
        unfinished.add_metric(names, sum(ages))
        longest.add_metric(names, max(ages, default=0.0))
    yield from (queue_durations, work_durations, depth, unfinished, longest)


def _counters(
    counters: Iterable[tuple[str, str, Callable[[MetricsT], float]]],
    all_metrics: Sequence[MetricsT],
    labels: list[str],
    values: Callable[[MetricsT], list[str]],
) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, count in counters:
        family = CounterMetricFamily(name, text, labels=labels)
        for metrics in all_metrics:
            family.add_metric(values(metrics), count(metrics))
        yield family


def _depths(queue: QueueView | None) -> Mapping[int, int]:
    return {0: 0} if queue is None else queue.depths()


def _work_ages(queue: QueueView | None) -> list[float]:
    if queue is None:
        return []
    try:
        now = queue.now()
    except RuntimeError:
        # The thread of the scrape has no event loop. Event loops use this clock.
        now = time.monotonic()
    return [max(0.0, now - started) for started in queue.started_at()]


register_collector(_metric_families)
