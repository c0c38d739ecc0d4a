"""A watchdog of pgBackRest's progress: it logs each file that it copies."""

from __future__ import annotations

import time
from pathlib import Path

STALLED_SECONDS = 1800.0


class ProgressWatch:
    """Callable that returns True if a log directory stops changing.

    Args:
        directory: of the log files that ``options`` makes pgBackRest write.
        seconds: without any progress, of the monotonic clock.
    """

    def __init__(self, directory: Path, seconds: float = STALLED_SECONDS) -> None:
        self._directory = directory
        self._seconds = seconds
        self._size: int | None = None
        self._changed_at = time.monotonic()
        self.stalled = False

    @property
    def options(self) -> tuple[str, ...]:
        """Options of pgBackRest that log each copied file into the directory."""
        return (f"--log-path={self._directory}", "--log-level-file=detail")

    def __call__(self) -> bool:
        """Compare the size of the logs with the last one."""
        size = sum((file.stat().st_size for file in self._directory.iterdir()), 0)
        if size != self._size:
            self._size, self._changed_at = size, time.monotonic()
        self.stalled = time.monotonic() - self._changed_at > self._seconds
        return self.stalled
