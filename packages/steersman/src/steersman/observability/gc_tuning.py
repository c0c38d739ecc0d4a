"""Keeps the garbage collector's pauses short, however large the cache is.

Cached objects form no cycles, and reference counts alone free them; yet their mappings are scanned by every full
collection, which over a large cache stops the process for tens of milliseconds. What has survived a collection that
took long is therefore frozen: scanned no more. A collection has just proven it alive, so no garbage is kept by that;
and since the collector runs a full collection when a quarter as much again has come, what comes between two freezes,
and with it the pause, stays small even while the whole cache is replaced.

What is frozen and later becomes a cycle of garbage, such as a connection of that moment, would stay for ever. So
after many freezes everything is thawed and collected once.

Source: ``gc.freeze`` and "Garbage collector design" in CPython's documentation; figures in ``docs/explanation``.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from steersman.observability.histogram import HistogramValue
from steersman.observability.metrics import register_collector

if TYPE_CHECKING:
    from prometheus_client.core import Metric

# Young objects are requests and answers, hardly ever cycles: looked at less often than by default (700, 10, 10).
_THRESHOLDS = (10_000, 20, 10)
_LONG_PAUSE_SECONDS = 0.005
_FREEZES_BEFORE_THAW = 256
# A collection may begin anywhere, in the midst of a scrape too: a metric with a lock would wait for itself.
_pauses = HistogramValue((0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0))


class GCTuner:
    """Sets the process's garbage collector to the policy above, from ``start`` to ``stop``.

    It belongs to who owns the process: one at a time.
    """

    def __init__(self) -> None:
        self._previous_thresholds = gc.get_threshold()
        self._started_at = 0.0
        self._freezes = 0

    def start(self) -> None:
        """Collects, freezes what is there, and watches from now on. Best called once the cache is filled."""
        self._previous_thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._on_gc_event)

    def stop(self) -> None:
        """Makes everything as it was before."""
        if self._on_gc_event in gc.callbacks:
            gc.callbacks.remove(self._on_gc_event)
            gc.set_threshold(*self._previous_thresholds)
            gc.unfreeze()

    def _on_gc_event(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "start":
            self._started_at = time.perf_counter()
            return
        duration = time.perf_counter() - self._started_at
        _pauses.observe(duration)
        if info["generation"] < 2 or duration < _LONG_PAUSE_SECONDS:
            return
        if self._freezes == _FREEZES_BEFORE_THAW:
            # The next full collection sees everything.
            self._freezes = 0
            gc.unfreeze()
            return
        self._freezes += 1
        gc.freeze()


def _metric_families() -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    text = "How long the garbage collector stops the process."
    family = HistogramMetricFamily("steersman_gc_pause_seconds", text)
    family.add_metric([], _pauses.buckets(), _pauses.total)
    yield family


register_collector(_metric_families)
