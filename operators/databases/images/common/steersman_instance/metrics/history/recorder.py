"""Recording of the series in two resolutions."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .ring import Ring, mean
from .sources import Readings, Series

STEP_SECONDS = 10


@dataclass(frozen=True)
class Resolution:
    """Steps that a point covers, and number of points to keep."""

    steps: int
    points: int


RESOLUTIONS = {"10s": Resolution(steps=1, points=360), "5m": Resolution(steps=30, points=288)}
"""One hour and 24 hours."""
DEFAULT_RESOLUTION = "10s"


class History:
    """Load of an instance in the last hour and day, in memory.

    Args:
        series: what is recorded.
        readings: returns the fresh samples.
        clock: monotonic time in seconds. It spaces the points.
        wall_clock: seconds since 1970. It labels the points when they are served.
    """

    def __init__(
        self,
        series: Sequence[Series],
        readings: Callable[[], Readings],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._series = series
        self._readings = readings
        self._clock = clock
        self._wall_clock = wall_clock
        self._start = clock()
        self._rings = {name: Ring(len(series), one.points) for name, one in RESOLUTIONS.items()}
        self._lock = threading.Lock()

    def record(self) -> None:
        """Record a point if one is due. Steps that were missed have no values."""
        due = int((self._clock() - self._start) // STEP_SECONDS) + 1
        missed = due - self._steps - 1
        if missed < 0:
            return
        readings = self._readings()
        point = [one.source.value(readings) for one in self._series]
        with self._lock:
            for _ in range(missed):
                self._append([math.nan] * len(point))
            self._append(point)

    def run(self, stop: threading.Event) -> None:
        """Record until `stop` is set. A failure is logged once, and the metrics do not depend on it."""
        failed = ""
        while not stop.is_set():
            try:
                self.record()
                failed = ""
            except Exception as error:
                if repr(error) != failed:
                    sys.stderr.write(f"metrics: the history cannot be recorded: {error!r}\n")
                failed = repr(error)
            stop.wait(STEP_SECONDS - (self._clock() - self._start) % STEP_SECONDS)

    def to_json(self, resolution: str) -> dict[str, Any]:
        """Return the points of a resolution, oldest first. None stands for a missing value."""
        steps = RESOLUTIONS[resolution].steps
        with self._lock:
            ring = self._rings[resolution]
            columns = [ring.last(number, RESOLUTIONS[resolution].points) for number in range(len(self._series))]
            age = self._clock() - self._start - (self._steps - self._steps % steps - 1) * STEP_SECONDS
        return {
            "resolutionSeconds": steps * STEP_SECONDS,
            "end": datetime.fromtimestamp(self._wall_clock() - age, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "series": [
                {"name": one.name, "unit": one.unit, "values": [_number(value) for value in column]}
                for one, column in zip(self._series, columns, strict=True)
            ],
        }

    @property
    def _steps(self) -> int:
        return self._rings[DEFAULT_RESOLUTION].count

    def _append(self, point: Sequence[float]) -> None:
        fine = self._rings[DEFAULT_RESOLUTION]
        fine.append(point)
        for name, resolution in RESOLUTIONS.items():
            if name != DEFAULT_RESOLUTION and fine.count % resolution.steps == 0:
                self._rings[name].append([mean(fine.last(number, resolution.steps)) for number in range(len(point))])


def _number(value: float) -> float | None:
    # Four bytes hold about seven digits. More of them are noise.
    return float(f"{value:.6g}") if math.isfinite(value) else None
