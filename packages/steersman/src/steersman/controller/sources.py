"""Reconciles for what Kubernetes does not tell: events from outside, and the clock.

A source runs as long as its controller does. When it fails it is logged, counted and started again, after a pause
that grows to a minute while it fails at once; it never hinders the controller or other sources.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, runtime_checkable

from steersman.controller.queue import LOW_PRIORITY, NORMAL_PRIORITY
from steersman.controller.reconciler import Request
from steersman.observability.runtime import Runtime


class Enqueue(Protocol):
    """Adds a request to the controller's queue."""

    def __call__(self, request: Request, *, priority: int = NORMAL_PRIORITY) -> None:
        """Has the object ``request`` reconciled soon."""
        ...


@runtime_checkable
class Source(Protocol):
    """Where requests come from besides watches. Implement it for what neither ``Channel`` nor ``Every`` fits."""

    @property
    def name(self) -> str:
        """Says in logs, metrics and triggers what caused a reconcile."""
        ...

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        """Pushes requests until cancelled. One that returns has nothing more to say and is not started again."""
        ...


class Channel:
    """Requests from anywhere else: a webhook of a cloud, a message queue, another thread.

    ``push`` may be called from any thread, before the controller runs too. A request that waits is not added twice.

    Args:
        name: says in logs and triggers what caused a reconcile.
        capacity: different requests that can wait for the event loop; more are refused.

    Example:
        ``alarms = Channel("alarms")``; ``manager.controller(Widget).source(alarms)``; in the thread that listens:
        ``alarms.push(ObjectKey("sea", "a"))``
    """

    def __init__(self, name: str = "channel", *, capacity: int = 100_000) -> None:
        self._name = name
        self._capacity = capacity
        self._lock = threading.Lock()
        self._waiting: dict[Request, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup: asyncio.Event | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def enqueue(self, request: Request, *, priority: int = NORMAL_PRIORITY) -> bool:
        """Has the object ``request`` reconciled; False if it is refused since too many wait.

        Of several pushes of one request the highest ``priority`` counts.
        """
        with self._lock:
            known = self._waiting.get(request)
            if known is None and len(self._waiting) >= self._capacity:
                return False
            self._waiting[request] = priority if known is None else max(known, priority)
            loop, wakeup = self._loop, self._wakeup
            # The loop may have closed meanwhile; then nobody waits.
            if len(self._waiting) == 1 and loop is not None and wakeup is not None and not loop.is_closed():
                loop.call_soon_threadsafe(wakeup.set)
        return True

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        """Hands on what is pushed.

        Raises:
            RuntimeError: another controller runs it: each needs a channel of its own.
        """
        with self._lock:
            if self._loop is not None:
                raise RuntimeError(f"channel {self.name!r} feeds a controller already: make one for each")
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

    def _drain(self) -> list[tuple[Request, int]]:
        with self._lock:
            waiting = list(self._waiting.items())
            self._waiting.clear()
        return waiting


Requests = Iterable[Request]


class Ticker:
    """Requests by the clock, for what changes without telling anybody.

    Args:
        seconds: between two rounds; the first comes after that time, as what exists is reconciled at the start.
        requests: called each time; gives the objects to reconcile, at once or as an awaitable.
        name: says in logs and triggers what caused a reconcile.
        jitter: so much of ``seconds`` is added at random at most, lest all replicas do it at once.
        priority: of the requests; low unless told, so that changes by users go first.

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
            raise ValueError(f"the time between two rounds must be above 0 s, not {seconds}")
        self._seconds = seconds
        self._requests = requests
        self._name = name
        self._jitter = jitter
        self._priority = priority

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        """Pushes what ``requests`` gives, round by round."""
        while True:
            await runtime.clock.sleep(self._seconds * (1 + self._jitter * runtime.random.random()))
            requests = self._requests()
            if inspect.isawaitable(requests):
                requests = await requests
            for request in requests:
                enqueue(request, priority=self._priority)
