"""Keeps pauses of the garbage collector short with large caches.

Cached objects form no reference cycles, so reference counting frees them. Every full collection scans them
nevertheless, which stops the process for tens of milliseconds. The tuner therefore calls ``gc.freeze`` after a long
collection, which excludes all survivors from further collections. The next full collection scans only newer objects,
so pauses stay short even while the whole cache is replaced.

A frozen object that later becomes part of a garbage cycle, such as a connection, would never be freed. After many
freezes the tuner therefore calls ``gc.unfreeze``, and the next full collection frees it.

Source: ``gc.freeze`` and "Garbage collector design" in CPython's documentation; measurements in ``docs/explanation``.
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

# Young objects are mostly requests and responses without cycles. The default is (700, 10, 10).
_THRESHOLDS = (10_000, 20, 10)
_LONG_PAUSE_SECONDS = 0.005
_FREEZES_BEFORE_THAW = 256
# A collection may start anywhere, even during a scrape, so a metric with a lock would deadlock.
_pauses = HistogramValue((0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0))


class GCTuner:
    """Tunes the garbage collector of the process from ``start`` to ``stop``.

    A process must have at most one.
    """

    def __init__(self) -> None:
        self._previous_thresholds = gc.get_threshold()
        self._started_at = 0.0
        self._freezes = 0

    def start(self) -> None:
        """Collect, freeze all objects and start tuning. Call it after the caches have synced."""
        self._previous_thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._on_gc_event)

    def stop(self) -> None:
        """Restore the previous settings."""
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
            # The next full collection scans all objects.
            self._freezes = 0
            gc.unfreeze()
            return
        self._freezes += 1
        gc.freeze()


def _metric_families() -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    text = "Duration of pauses by the garbage collector."
    family = HistogramMetricFamily("steersman_gc_pause_seconds", text)
    family.add_metric([], _pauses.buckets(), _pauses.total)
    yield family


register_collector(_metric_families)
