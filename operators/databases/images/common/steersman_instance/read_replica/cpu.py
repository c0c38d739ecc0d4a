"""CPU use of this container in the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..cgroup import used_seconds

WINDOW_SECONDS = 60.0


@dataclass(slots=True)
class CpuMeter:
    """Average number of used cores in the last minute."""

    read: Callable[[], float | None] = used_seconds
    _samples: deque[tuple[float, float]] = field(default_factory=deque[tuple[float, float]])

    def sample(self, now: float) -> None:
        """Record the present use. `now` is in seconds."""
        used = self.read()
        if used is None:
            return
        self._samples.append((now, used))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def cores(self) -> float | None:
        """The average, or None before there are two samples."""
        if len(self._samples) < 2:
            return None
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return max(last - first, 0.0) / (ended - began) if ended > began else None
