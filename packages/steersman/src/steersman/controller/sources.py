"""Sources of requests besides watches: external events, and timers.

A source runs as long as its controller. If it fails, the error is logged and counted, and the source restarts after a
back-off of up to one minute. A failure does not affect the controller or other sources.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, runtime_checkable

from steersman.controller.queue import LOW_PRIORITY, NORMAL_PRIORITY
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime


class Enqueue(Protocol):
    """Adds a request to the queue of the controller."""

    def __call__(self, request: ObjectKey, *, priority: int = NORMAL_PRIORITY) -> None:
        """Enqueue ``request``."""
        ...


@runtime_checkable
class Source(Protocol):
    """A source of requests other than ``Channel`` and ``Ticker``."""

    @property
    def name(self) -> str:
        """The name in logs, metrics and triggers."""
        ...

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        """Enqueue requests until cancelled. A source that returns is not restarted."""
        ...


class Channel:
    """Passes on requests from other systems: cloud webhooks, message queues, threads.

    ``enqueue`` may be called from any thread, also before the controller runs. Waiting requests are deduplicated.

    Args:
        name: the name in logs and triggers.
        capacity: maximum number of different requests that wait for the event loop; more are rejected.

    Example:
        ``alarms = Channel("alarms")``; ``manager.controller(Widget).source(alarms)``; in the thread that listens:
        ``alarms.enqueue(ObjectKey("orders", "a"))``
    """

    def __init__(self, name: str = "channel", *, capacity: int = 100_000) -> None:
        self._name = name
        self._capacity = capacity
        self._lock = threading.Lock()
        self._waiting: dict[ObjectKey, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup: asyncio.Event | None = None

    @property
    def name(self) -> str:
        """The name in logs and triggers."""
        return self._name

    def enqueue(self, request: ObjectKey, *, priority: int = NORMAL_PRIORITY) -> bool:
        """Enqueue ``request``; return False if the channel is full.

        If a request is enqueued several times, the highest ``priority`` counts.
        """
        with self._lock:
            known = self._waiting.get(request)
            if known is None and len(self._waiting) >= self._capacity:
                return False
            self._waiting[request] = priority if known is None else max(known, priority)
            loop, wakeup = self._loop, self._wakeup
            # A closed loop has no waiting task.
            if len(self._waiting) == 1 and loop is not None and wakeup is not None and not loop.is_closed():
                loop.call_soon_threadsafe(wakeup.set)
        return True

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        """Pass on requests until cancelled.

        Raises:
            RuntimeError: another controller uses the channel. Create one for each.
        """
        with self._lock:
            if self._loop is not None:
                raise RuntimeError(f"channel {self.name!r} is used by another controller: create one for each")
            self._loop, self._wakeup = asyncio.get_running_loop(), asyncio.Event()
        try:
            while True:
                self._wakeup.clear()
                for request, priority in self._drain():
                    enqueue(request, priority=priority)
                await self._wakeup.wait()
        finally:
            with self._lock:
                self._loop = self._wakeup = None

    def _drain(self) -> list[tuple[ObjectKey, int]]:
        with self._lock:
            waiting = list(self._waiting.items())
            self._waiting.clear()
        return waiting


Requests = Iterable[ObjectKey]


class Ticker:
    """Enqueues requests at intervals, for external state that sends no events.

    Args:
        seconds: the interval. The first requests follow after it, as the start enqueues all objects anyway.
        requests: returns the requests, or an awaitable of them. It is called each time.
        name: the name in logs and triggers. Defaults to ``timer``.
        jitter: maximum random extension, as a fraction of ``seconds``. It spreads the load of several replicas.
        priority: priority of the requests. Defaults to low, so that changes by users go first.

    Raises:
        ValueError: ``seconds`` is not above 0.

    Example:
        ``builder.source(Ticker(300, lambda: [w.key for w in manager.cache.informer(Widget).store]))``
    """

    def __init__(
        self,
        seconds: float,
        requests: Callable[[], Requests | Awaitable[Requests]],
        *,
        name: str = "timer",
        jitter: float = 0.1,
        priority: int = LOW_PRIORITY,
    ) -> None:
        if not seconds > 0:
            raise ValueError(f"the interval must be above 0 s, not {seconds}")
        self._seconds = seconds
        self._requests = requests
        self._name = name
        self._jitter = jitter
        self._priority = priority

    @property
    def name(self) -> str:
        """The name in logs and triggers."""
        return self._name

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        """Enqueue the result of ``requests`` at each interval, until cancelled."""
        while True:
            await runtime.clock.sleep(self._seconds * (1 + self._jitter * runtime.random.random()))
            requests = self._requests()
            if inspect.isawaitable(requests):
                requests = await requests
            for request in requests:
                enqueue(request, priority=self._priority)
