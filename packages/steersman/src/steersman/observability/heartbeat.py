"""Whether the event loop lives: a heartbeat that it gives, and a thread that listens.

A loop that is blocked (by a call that waits without ``await``, or computes for long) reconciles nothing, answers no
probe and must not go on being the leader. From inside that cannot be seen; so another thread looks.
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
    """The time of the loop's last beat; read by other threads without a lock.

    ``run`` gives beats and measures by how much each is late: the loop's lag.

    Args:
        period: seconds between beats.
    """

    def __init__(self, period: float = HEARTBEAT_PERIOD_SECONDS) -> None:
        self._period = period
        self._last_beat = time.monotonic()
        self._longest_lag = 0.0

    def age(self) -> float:
        """Seconds since the last beat, by the loop's kind of clock."""
        return time.monotonic() - self._last_beat

    async def run(self) -> None:
        """Beats until cancelled."""
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
    """A thread that logs where the event loop hangs, once each time that it does.

    Args:
        threshold: seconds without a beat that count as blocked.

    Call ``start`` on the loop's own thread.
    """

    def __init__(self, heartbeat: Heartbeat, threshold: float) -> None:
        self._heartbeat = heartbeat
        self._threshold = threshold
        self._stop_requested = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="event loop watchdog", daemon=True)
        self._watched_thread_id = 0

    def start(self) -> None:
        """Begins to watch the calling thread."""
        self._watched_thread_id = threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; returns when it has ended."""
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
                # Late itself, it was not the loop: the whole process was stopped, or had no processor.
                if age > self._threshold and time.monotonic() - before < 2 * pause:
                    blocked_since = time.monotonic() - age
                    self._report(age)
            elif age <= self._threshold:
                log.warning("event loop runs again", blocked_seconds=round(time.monotonic() - blocked_since, 1))
                blocked_since = None

    def _report(self, age: float) -> None:
        metrics.event_loop_blocks.inc()
        frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no other way
        frame = frames.get(self._watched_thread_id)
        # Places only: local variables may hold passwords.
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        log.error("event loop blocked", seconds=round(age, 1), stack=stack)
