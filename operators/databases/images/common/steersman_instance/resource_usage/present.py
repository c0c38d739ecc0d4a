"""File with the present use of CPU and memory.

The exporter runs in another container, which does not see the control group of the server.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..files import find_json, replace_file
from .meter import UsageSample

USAGE_FILE = "usage.json"
"""Name of the file in the directory that the containers share. It is in memory."""
STALE_SECONDS = 60.0


@dataclass(slots=True)
class UsageFile:
    """Writes each sample, with the CPU use since the previous one."""

    path: Path
    _previous: UsageSample | None = None

    def publish(self, sample: UsageSample) -> UsageSample:
        """Write the use, and return the sample. A failure does not affect other reports."""
        cores = None if self._previous is None else _cores(self._previous, sample)
        self._previous = sample
        with suppress(OSError):
            replace_file(self.path, json.dumps({"at": sample.at, "cores": cores, "memory": sample.memory}))
        return sample


def present_use(path: Path, now: float) -> tuple[float | None, float | None]:
    """Return cores and bytes of memory. None if they are not known or older than a minute."""
    found = find_json(path) or {}
    at = _number(found.get("at"))
    if at is None or abs(now - at) > STALE_SECONDS:
        return None, None
    return _number(found.get("cores")), _number(found.get("memory"))


def _cores(first: UsageSample, last: UsageSample) -> float | None:
    if first.cpu_seconds is None or last.cpu_seconds is None or last.at <= first.at:
        return None
    used = last.cpu_seconds - first.cpu_seconds
    return used / (last.at - first.at) if used >= 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
