"""The lag of a standby, measured without the clock of the primary."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

RECEIVER_TIMEOUT_SECONDS = 10.0
"""Parameter wal_receiver_timeout. After half of it the server requests a message from a silent primary."""
HEARTBEAT_SECONDS = RECEIVER_TIMEOUT_SECONDS / 2 + 1
_MAX_SAMPLES = 4096


@dataclass(slots=True)
class LagTracker:
    """Replication lag: time since unreplayed WAL is known.

    Without streaming it is the time since the last streaming. An idle primary causes no lag: the last transaction
    may be old, and everything is replayed. WAL may be as old as the previous message of the primary, so the lag is
    an upper bound. Times are in seconds of a monotonic clock, positions in bytes.
    """

    _known: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    _streamed_at: float | None = None

    def observe(self, now: float, *, heard_at: float | None, known: int | None, replayed: int) -> None:
        """Record a sample.

        Args:
            heard_at: time of the primary's last message, or None if the server does not stream.
            known: end of the primary's WAL as the primary reported it, or None.
            replayed: end of the replayed WAL.
        """
        if known is not None and (not self._known or known > self._known[-1][1]):
            # The age of WAL from before the first message is unknown.
            self._known.append((-math.inf if self._streamed_at is None else self._streamed_at, known))
            if len(self._known) > _MAX_SAMPLES:
                # The oldest stays: it says since when the server is behind.
                del self._known[1]
        if heard_at is not None:
            # An idle primary sends messages only now and then.
            self._streamed_at = now if now - heard_at <= HEARTBEAT_SECONDS else heard_at
        while self._known and self._known[0][1] <= replayed:
            self._known.popleft()

    def seconds(self, now: float) -> float | None:
        """Return the lag in seconds.

        None before the server has replayed all WAL of the first message.
        """
        if self._streamed_at is None:
            return None
        behind_since = self._known[0][0] if self._known else now
        lag = max(now - min(self._streamed_at, behind_since), 0.0)
        return lag if math.isfinite(lag) else None
