"""Back-off of a server that is restarted without having served."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .process import MySQLServer

_MAX_DELAY_SECONDS = 60.0  # seconds
_STALLED_AFTER_SECONDS = 120.0  # seconds without a response and without CPU use
_MIN_CPU_SECONDS = 1.0  # seconds of CPU time: recovery uses more, a hanging server only hundredths


@dataclass
class RestartBackoff:
    """Back-off of one member's server, in memory only.

    `message` is the error with which a restarted server ended or hung. Empty while it may be healthy. A server that
    responds is not necessarily healthy, because it may meet corrupt data later and end each time.
    """

    message: str = ""
    _count: int = 0
    _is_ready: bool = False
    _cpu_seconds: float = 0.0
    _idle_since: float = 0.0
    _is_stalled_state: bool = False

    def record_start(self) -> None:
        """Record a start."""
        self._count, self._is_ready, self._is_stalled_state = self._count + 1, False, False
        self._cpu_seconds, self._idle_since = 0.0, time.monotonic()

    def record_ready(self) -> None:
        """Record that it responds."""
        self._is_ready = True

    def is_stalled(self, server: MySQLServer) -> bool:
        """Return True if it will never respond.

        It has not responded since its start and must be stopped. Recovery may take any time. But with unreadable
        pages the
        server may hang forever.
        """
        if self._is_ready or not self._count or not server.data_unreadable:
            return False
        if (used := server.cpu_seconds) > self._cpu_seconds + _MIN_CPU_SECONDS:
            self._cpu_seconds, self._idle_since = used, time.monotonic()
        self._is_stalled_state = time.monotonic() > self._idle_since + _STALLED_AFTER_SECONDS
        if self._is_stalled_state:
            self.message = server.last_error
        return self._is_stalled_state

    def record_exit(self, server: MySQLServer) -> None:
        """Record that it does not run."""
        if self._is_stalled_state:
            return
        if self._count and server.has_crashed:
            self.message = server.last_error or "it ended itself, and its log says why"
            return
        # It was killed or stopped in order, which implies nothing about its data.
        self.message = ""
        if self._is_ready:
            self._count = 0

    @property
    def delay_seconds(self) -> float:
        """Seconds until the next start, growing with each start."""
        return min(2.0 ** min(self._count, 10), _MAX_DELAY_SECONDS)
