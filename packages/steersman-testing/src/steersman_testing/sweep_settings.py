"""Settings of simulation sweeps, which the pytest plugin sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class SweepSettings:
    """Settings of all sweeps of this process.

    Attributes:
        processes: number of processes. Defaults to 1. More processes need Linux.
        on_progress: called with the number of finished runs and of all runs.
    """

    processes: int = 1
    on_progress: Callable[[int, int], None] | None = None


settings = SweepSettings()
