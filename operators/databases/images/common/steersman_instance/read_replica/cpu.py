"""CPU use of this container, from its control group.

Source: Linux, "Control Group v2", cpu.stat; "CPU Accounting Controller" of version 1.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

WINDOW_SECONDS = 60.0
_ROOT = Path("/sys/fs/cgroup")
_USAGE_USEC = re.compile(r"^usage_usec (\d+)$", re.MULTILINE)


def used_seconds(root: Path = _ROOT) -> float | None:
    """Return the container's CPU time since its start.

    None if it is not accounted.
    """
    try:
        found = _USAGE_USEC.search((root / "cpu.stat").read_text())
        if found:
            return int(found[1]) / 1e6
    except OSError:
        pass
    for controller in ("cpuacct", "cpu,cpuacct"):
        try:
            return int((root / controller / "cpuacct.usage").read_text()) / 1e9
        except (OSError, ValueError):
            continue
    return None


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
