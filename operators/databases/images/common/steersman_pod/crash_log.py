"""Times at which the server of this pod has crashed.

They are in a volume of the pod, so they outlive its containers. Annotations of the pod report them to the operator.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ANNOTATION = "databases.steersman.dev/crashes"
MAX_TIMES = 20
"""Number of the last crashes that are kept."""


class CrashLog:
    """The last crashes, in seconds since the epoch.

    Args:
        file: in a volume that lives as long as the pod.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock

    @property
    def times(self) -> Sequence[int]:
        """Times of the last crashes, the oldest first."""
        return self._read() or ()

    def record_crash(self) -> None:
        """Record that the server has ended by itself."""
        self._write([*self.times, int(self._clock())])

    def record_container_start(self) -> None:
        """Record the start of a container. Every start but the first one follows a crash."""
        if self._read() is None:
            self._write([])
        else:
            self.record_crash()

    def _read(self) -> list[int] | None:
        try:
            found = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return None
        return [int(each) for each in found]

    def _write(self, times: Sequence[int]) -> None:
        fresh = self._file.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(times[-MAX_TIMES:]))
            fresh.replace(self._file)
        except OSError as error:
            # The volume may be full. The server matters more.
            sys.stderr.write(f"steersman: crashes cannot be recorded: {error}\n")
