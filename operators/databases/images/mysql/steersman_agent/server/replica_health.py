"""Health of a member besides its state: apply queue and volumes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steersman_pod.volumes import usage_levels

from ..group.group_status import ServerStatus

_STALLED_AFTER_SECONDS = 30.0  # seconds without progress of the queue, after which clients should not read here
_MAX_QUEUE = 100_000  # waiting transactions
_REPORTED_QUEUE_MINIMUM = 100  # transactions; fewer are reported as none
_BINARY_LOG_PIECE_BYTES = 16 << 20  # bytes that a server needs to continue
_CHECK_INTERVAL_SECONDS = 5.0  # seconds between two checks of files


@dataclass
class ApplyQueue:
    """Progress of a replica with received transactions."""

    _applied: int = -1
    _since: float = 0.0
    _queued: int = 0

    def update(self, status: ServerStatus | None) -> None:
        """Update with the next status."""
        now = time.monotonic()
        self._queued = 0 if status is None else status.apply_queue
        if status is None or status.applied != self._applied or not status.apply_queue:
            self._applied, self._since = -1 if status is None else status.applied, now

    @property
    def lag_reason(self) -> str:
        """Reason why clients should not read here, or ""."""
        if self._queued >= _MAX_QUEUE:
            return f"more than {self.queued} transactions wait to be applied"
        if self._queued and time.monotonic() > self._since + _STALLED_AFTER_SECONDS:
            return f"transactions wait, and for {_STALLED_AFTER_SECONDS:.0f} s none was applied"
        return ""

    @property
    def queued(self) -> int:
        """Number of waiting transactions in powers of ten.

        So the status rarely changes.
        """
        return 10 ** (len(str(self._queued)) - 1) if self._queued >= _REPORTED_QUEUE_MINIMUM else 0


@dataclass
class VolumeUsage:
    """Use of volumes in coarse steps."""

    paths: Mapping[str, Path]
    levels: Mapping[str, int] = field(default_factory=dict[str, int])
    _checked_at: float = 0.0

    def update(self) -> Mapping[str, int]:
        """Return the levels, checked periodically."""
        if time.monotonic() > self._checked_at + _CHECK_INTERVAL_SECONDS:
            self._checked_at, self.levels = (
                time.monotonic(),
                usage_levels(self.paths, self.levels, _BINARY_LOG_PIECE_BYTES),
            )
        return self.levels
