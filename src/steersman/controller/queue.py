"""The work queue: a set of keys in order, each worked on by one worker at a time, with back-off after errors.

Adding a key that waits does nothing. Adding one that is being worked on marks it to be worked on once more, so that
no change is missed and no two workers ever hold the same key. Source: client-go, package ``workqueue``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from steersman.errors import SteersmanError
from steersman.observability import metrics
from steersman.observability.runtime import Runtime

K = TypeVar("K", bound=Hashable)


class QueueShutDown(SteersmanError):
    """The queue is shut down and will hand out no more keys."""


class WorkQueue(Generic[K]):
    """Deduplicating queue with delayed and rate-limited adds.

    Args:
        name: of the controller, for metrics.
        base_delay: seconds before the first retry of a key; doubles with each failure in a row.
        max_delay: seconds at most between retries.
    """

    def __init__(self, name: str, *, runtime: Runtime, base_delay: float = 0.005, max_delay: float = 1000.0) -> None:
        self._runtime = runtime
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._processing: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._added_at: dict[K, float] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._shut_down = False
        self._depth = metrics.queue_depth.labels(name, name, "0")
        self._adds = metrics.queue_adds.labels(name, name)
        self._retries = metrics.queue_retries.labels(name, name)
        self._queue_duration = metrics.queue_duration.labels(name, name)

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: K) -> None:
        """Makes ``key`` ready, unless it is already."""
        if self._shut_down:
            return
        self._cancel_timer(key)
        if key in self._processing:
            self._again.add(key)
        elif key not in self._waiting:
            self._adds.inc()
            self._waiting.add(key)
            self._ready.append(key)
            self._added_at[key] = self._runtime.clock.monotonic()
            self._depth.set(len(self._ready))
            self._wake_one()

    def add_after(self, key: K, seconds: float) -> None:
        """Makes ``key`` ready in ``seconds``; the earlier of two pending times wins."""
        if seconds <= 0:
            self.add(key)
            return
        if self._shut_down or key in self._waiting:
            return
        loop = asyncio.get_running_loop()
        pending = self._timers.get(key)
        if pending is not None:
            if pending.when() <= loop.time() + seconds:
                return
            pending.cancel()
        self._timers[key] = loop.call_later(seconds, self._timer_fired, key)

    def add_rate_limited(self, key: K) -> float:
        """Makes ``key`` ready after its back-off; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._retries.inc()
        delay = min(self._base_delay * 2 ** min(failures, 64), self._max_delay)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Ends the back-off of ``key``: its next failure counts as the first."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often in a row ``key`` was added rate-limited."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Waits for a key and takes it; ``done`` must follow.

        Raises:
            QueueShutDown: there will be no more.
        """
        while not self._ready:
            if self._shut_down:
                raise QueueShutDown
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                # Woken and cancelled at once: pass the wake-up on, or the key would wait for nobody.
                if taker.done() and not taker.cancelled():
                    self._wake_one()
                raise
        if self._shut_down:
            raise QueueShutDown
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._processing.add(key)
        self._depth.set(len(self._ready))
        self._queue_duration.observe(self._runtime.clock.monotonic() - self._added_at.pop(key))
        return key

    def done(self, key: K) -> None:
        """Gives ``key`` back; it is ready again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def shut_down(self) -> None:
        """Hands out no more keys and forgets those that wait; those in work may finish."""
        self._shut_down = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ready.clear()
        self._waiting.clear()
        self._depth.set(0)
        while self._takers:
            self._wake_one()

    def _timer_fired(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: K) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
