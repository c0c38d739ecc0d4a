"""Present fill rate and daily growth of a volume.

The samples are in memory only. After a restart, the growth of a day is unknown for an hour.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

RECENT_SECONDS = 300.0
LONG_INTERVAL_SECONDS = 300.0
LONG_SAMPLES = 288
"""Samples of 24 hours."""
LEAST_LONG_SAMPLES = 12
"""Least samples for the growth of a day: one hour."""
_WINDOWS = ((5.0, 30.0), (RECENT_SECONDS, 3600.0))
"""Seconds of a window, and seconds that its rate may predict. A short burst predicts little."""
_DAY_SECONDS = 86400

Sample = tuple[float, int]
"""Monotonic time in seconds, and used bytes."""


@dataclass
class FillMeter:
    """Samples of one volume."""

    _recent: deque[Sample] = field(default_factory=deque[Sample])
    _long: deque[Sample] = field(default_factory=lambda: deque[Sample](maxlen=LONG_SAMPLES))

    def add(self, now: float, used: int) -> None:
        """Add a sample.

        Args:
            now: monotonic time in seconds.
            used: bytes.
        """
        self._recent.append((now, used))
        while self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        if not self._long or now - self._long[-1][0] >= LONG_INTERVAL_SECONDS:
            self._long.append((now, used))

    def fill_rate(self, available: int) -> float | None:
        """Return the rate of a volume that is soon full.

        It is in bytes a second, and None for other volumes. Soon is within 30 s at the rate of the last 5 s, or
        within an hour at the rate of the last 5 minutes.

        Args:
            available: bytes.
        """
        now, used = self._recent[-1]
        urgent: list[float] = []
        for window, horizon in _WINDOWS:
            first = next(sample for sample in self._recent if sample[0] >= now - window)
            rate = (used - first[1]) / window
            if rate > 0 and available / rate <= horizon:
                urgent.append(rate)
        return max(urgent, default=None)

    def daily_growth(self) -> float | None:
        """Return the growth in bytes a day. None without samples of an hour.

        It is the median of many slopes, so that temporary files and a single load do not count.
        """
        samples: Sequence[Sample] = list(self._long)
        if len(samples) <= LEAST_LONG_SAMPLES:
            return None
        half = len(samples) // 2
        pairs = zip(samples, samples[half:], strict=False)
        slopes = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairs]
        return statistics.median(slopes) * _DAY_SECONDS
