"""Detects a blocked event loop by a heartbeat that another thread checks.

A loop that is blocked by a synchronous call or a long computation reconciles nothing and responds to no probe. Its
process must not stay the leader.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback

from steersman.observability import metrics
from steersman.observability.logging import get_logger

log = get_logger("event loop")

HEARTBEAT_PERIOD_SECONDS = 0.25


class Heartbeat:
    """Time of the last heartbeat of the event loop.

    Other threads read it without a lock. ``run`` also measures the lag of the loop, by which each heartbeat is late.

    Args:
        period: seconds between beats.
    """

    def __init__(self, period: float = HEARTBEAT_PERIOD_SECONDS) -> None:
        self._period = period
        self._last_beat = time.monotonic()
        self._longest_lag = 0.0

    def age(self) -> float:
        """Seconds since the last heartbeat."""
        return time.monotonic() - self._last_beat

    async def run(self) -> None:
        """Record heartbeats until cancelled."""
        while True:
            started_at = time.monotonic()
            self._last_beat = started_at
            await asyncio.sleep(self._period)
            self._record_lag(max(0.0, time.monotonic() - started_at - self._period))

    def _record_lag(self, lag: float) -> None:
        metrics.event_loop_lag.observe(lag)
        if lag > self._longest_lag:
            self._longest_lag = lag
            metrics.event_loop_longest_lag.set(lag)


class Watchdog:
    """A thread that logs the stack of a blocked event loop.

    Args:
        threshold: seconds without a heartbeat after which the loop counts as blocked.

    Call ``start`` in the thread of the event loop.
    """

    def __init__(self, heartbeat: Heartbeat, threshold: float) -> None:
        self._heartbeat = heartbeat
        self._threshold = threshold
        self._stop_requested = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="event loop watchdog", daemon=True)
        self._watched_thread_id = 0

    def start(self) -> None:
        """Start to watch the calling thread."""
        self._watched_thread_id = threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stop_requested.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        blocked_since: float | None = None
        pause = min(HEARTBEAT_PERIOD_SECONDS, self._threshold / 2)
        while True:
            before = time.monotonic()
            if self._stop_requested.wait(pause):
                return
            age = self._heartbeat.age()
            if blocked_since is None:
                # If this thread is late too, the whole process was suspended or had no CPU time.
                if age > self._threshold and time.monotonic() - before < 2 * pause:
                    blocked_since = time.monotonic() - age
                    self._report(age)
            elif age <= self._threshold:
                log.warning("event loop resumed", blocked_seconds=round(time.monotonic() - blocked_since, 1))
                blocked_since = None

    def _report(self, age: float) -> None:
        metrics.event_loop_blocks.inc()
        frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        frame = frames.get(self._watched_thread_id)
        # No local variables: they may contain passwords.
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        log.error("event loop blocked", seconds=round(age, 1), stack=stack)
