"""The work queue: deduplicated keys by priority, with back-off after errors.

Each key has at most one worker. Adding a waiting key can only raise its priority. Adding a key that a worker
processes marks it for another run, so no change is missed.

Keys of a higher priority go first, but no key starves: every tenth key that the queue returns is the one that has
waited longest, whatever its priority. A key behind ``n`` others is therefore returned after at most ``10 * (n + 1)``
keys.

Sources: client-go, package ``workqueue``; controller-runtime, package ``priorityqueue``.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import weakref
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from steersman.controller.triggers import MAX_TRIGGERS, Trigger
from steersman.errors import SteersmanError
from steersman.observability.controller_metrics import queue_metrics
from steersman.observability.runtime import Runtime

K = TypeVar("K", bound=Hashable)

NORMAL_PRIORITY = 0
"""The default priority."""
LOW_PRIORITY = -100
"""The priority of first lists and resyncs, as in controller-runtime."""

_FAIRNESS_INTERVAL = 10
# Tolerance for event loop timers and sums of floating-point seconds.
_TIMER_TOLERANCE_SECONDS = 1e-6
_MAX_TIMER_SECONDS = 86400.0
_COMPACT_MIN_SIZE = 1000


class QueueShutDown(SteersmanError):
    """The queue is shut down and returns no more keys."""


class QueueItem(Generic[K]):
    """A key in the queue.

    Attributes:
        key: the key.
        priority: the highest priority that it was added with.
        triggers: the reasons, oldest first; at most ``MAX_TRIGGERS``.
        omitted: number of further triggers.
        since: time by the queue's clock: when it became ready, when it is due, or, once taken, when work began.
        waited: seconds between ready and taken.
    """

    __slots__ = ("key", "omitted", "priority", "rank", "since", "taken", "triggers", "waited")

    def __init__(self, key: K, priority: int, trigger: Trigger | None, since: float) -> None:
        self.key = key
        self.priority = priority
        self.triggers: list[Trigger] = [] if trigger is None else [trigger]
        self.omitted = 0
        self.since = since
        self.waited = 0.0
        self.rank = 0
        self.taken = False

    def merge(self, priority: int, trigger: Trigger | None) -> None:
        """Merge a further add of the key."""
        self.priority = max(self.priority, priority)
        if trigger is None:
            return
        for index, known in enumerate(self.triggers):
            if known is trigger:
                return
            if (merged := known.merge(trigger)) is not None:
                self.triggers[index] = merged
                return
        if len(self.triggers) < MAX_TRIGGERS:
            self.triggers.append(trigger)
        else:
            self.omitted += 1

    def take_over_from(self, previous: QueueItem[K]) -> None:
        """Replace ``previous``.

        Its triggers are cleared, so that a stale heap entry does not keep old objects in memory.
        """
        self.priority = max(self.priority, previous.priority)
        self.triggers, previous.triggers = previous.triggers, []
        self.omitted = previous.omitted
        previous.taken = True


class _PriorityBucket(Generic[K]):
    """The keys of one priority, in order; stale entries are skipped."""

    __slots__ = ("entries", "priority", "size")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.entries: deque[QueueItem[K]] = deque()
        self.size = 0

    def head(self) -> QueueItem[K]:
        entries = self.entries
        while entries[0].taken or entries[0].priority != self.priority:
            entries.popleft()
        return entries[0]


class WorkQueue(Generic[K]):
    """A deduplicating queue with priorities, delayed and rate-limited adds.

    Args:
        name: name of the controller, for metrics.
        runtime: the clock.
        base_delay: seconds before the first retry of a key. The delay doubles with each failure in a row.
        max_delay: upper limit of the delay in seconds.
    """

    def __init__(self, name: str, *, runtime: Runtime, base_delay: float = 0.005, max_delay: float = 1000.0) -> None:
        self._clock = runtime.clock
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._buckets: list[_PriorityBucket[K]] = [_PriorityBucket(NORMAL_PRIORITY)]
        self._waiting: dict[K, QueueItem[K]] = {}
        self._processing: dict[K, QueueItem[K]] = {}
        self._dirty: dict[K, QueueItem[K]] = {}
        self._failures: dict[K, int] = {}
        self._delayed: dict[K, QueueItem[K]] = {}
        # One heap and one timer for all delayed keys cost less than half of one timer for each.
        self._heap: list[tuple[float, int, QueueItem[K]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_context = contextvars.Context()
        self._sequence = 0
        self._passed_over = 0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False
        self._tally = queue_metrics(name)
        self._tally.queue = weakref.ref(self)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K, *, priority: int = NORMAL_PRIORITY, trigger: Trigger | None = None) -> None:
        """Make ``key`` ready.

        If it waits already, ``trigger`` is added, and a higher ``priority`` replaces the current one.
        """
        waiting = self._waiting.get(key)
        if waiting is not None:
            previous = waiting.priority
            waiting.merge(priority, trigger)
            if waiting.priority != previous:
                self._remove_from_bucket(previous)
                self._append_to_bucket(waiting)
        elif self._shut_down:
            return
        elif key in self._processing:
            dirty = self._dirty.get(key)
            if dirty is not None:
                dirty.merge(priority, trigger)
                return
            self._dirty[key] = self._new_item(key, priority, trigger)
        else:
            self._make_ready(self._new_item(key, priority, trigger))

    def add_after(
        self, key: K, seconds: float, *, priority: int = NORMAL_PRIORITY, trigger: Trigger | None = None
    ) -> None:
        """Make ``key`` ready in ``seconds``.

        Of two pending adds, the earlier time and the higher ``priority`` count.
        """
        if not seconds > 0:
            self.add(key, priority=priority, trigger=trigger)
            return
        if self._shut_down:
            return
        if (known := self._waiting.get(key) or self._dirty.get(key)) is not None:
            # The key is ready earlier than requested.
            known.merge(known.priority, trigger)
            return
        due = self._clock.monotonic() + seconds
        pending = self._delayed.get(key)
        item = QueueItem(key, priority, trigger, due)
        if pending is not None:
            pending.merge(priority, trigger)
            if pending.since <= due:
                return
            item.take_over_from(pending)
        self._delayed[key] = item
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, item))
        if len(self._heap) > _COMPACT_MIN_SIZE and len(self._heap) > 2 * len(self._delayed):
            self._heap = [entry for entry in self._heap if not entry[2].taken]
            heapq.heapify(self._heap)
        if self._heap[0][2] is item:
            self._set_timer(seconds)

    def add_rate_limited(self, key: K, *, priority: int = NORMAL_PRIORITY, trigger: Trigger | None = None) -> float:
        """Make ``key`` ready after its back-off; return the delay in seconds.

        ``priority`` and ``trigger`` are those of ``add``.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._tally.retries += 1
        delay = min(self._base_delay * 2 ** min(failures, 64), self._max_delay)
        self.add_after(key, delay, priority=priority, trigger=trigger)
        return delay

    def discard(self, key: K) -> None:
        """Remove ``key`` if it waits; a delayed add stays."""
        item = self._waiting.pop(key, None)
        if item is not None:
            item.taken = True
            item.triggers = []
            self._remove_from_bucket(item.priority)

    def forget(self, key: K) -> None:
        """Reset the back-off of ``key``: its next failure counts as the first."""
        if self._failures:
            self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the number of failures of ``key`` in a row."""
        return self._failures.get(key, 0) if self._failures else 0

    async def get(self) -> K:
        """Wait for a key and take it: see ``get_item``."""
        return (await self.get_item()).key

    async def get_item(self) -> QueueItem[K]:
        """Wait for an item and take it; call ``done`` afterwards.

        Raises:
            QueueShutDown: the queue returns no more keys.
        """
        while (item := self.get_item_nowait()) is None:
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # Woken and cancelled at the same time: wake another worker instead.
                if getter.done() and not getter.cancelled():
                    self._wake_one()
                raise
        return item

    def get_item_nowait(self) -> QueueItem[K] | None:
        """Take an item, or return None if no key is ready.

        Raises:
            QueueShutDown: the queue returns no more keys.
        """
        if not self._waiting:
            if self._shut_down:
                raise QueueShutDown
            return None
        item = self._pop_next()
        item.taken = True
        key = item.key
        del self._waiting[key]
        self._processing[key] = item
        now = self._clock.monotonic()
        item.waited = now - item.since
        item.since = now
        self._tally.queue_durations.observe(item.waited)
        return item

    def done(self, key: K) -> float:
        """Finish the work on ``key``; return its duration in seconds.

        The key is ready again if it was added meanwhile.
        """
        item = self._processing.pop(key)
        seconds = self._clock.monotonic() - item.since
        self._tally.work_durations.observe(seconds)
        dirty = self._dirty.pop(key, None) if self._dirty else None
        if dirty is not None:
            self._make_ready(dirty)
        return seconds

    def shut_down(self, *, drain: bool = False) -> None:
        """Accept no more keys; workers may finish theirs.

        Args:
            drain: return the ready keys before the end. Delayed keys are dropped either way: the next leader
                reconciles every object at its start.
        """
        self._shut_down = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._delayed.clear()
        self._heap.clear()
        if not drain:
            self._waiting.clear()
            self._dirty.clear()
            self._buckets = [_PriorityBucket(NORMAL_PRIORITY)]
        _wake(self._getters, len(self._getters))

    def waiting(self) -> tuple[QueueItem[K], ...]:
        """Return the ready items, in the order in which they became ready."""
        return tuple(self._waiting.values())

    def delayed(self) -> tuple[QueueItem[K], ...]:
        """Return the delayed items; ``since`` is the time when each is due."""
        return tuple(self._delayed.values())

    def depths(self) -> Mapping[int, int]:
        """Return the number of waiting keys by priority."""
        return {bucket.priority: bucket.size for bucket in tuple(self._buckets)}

    def started_at(self) -> Iterable[float]:
        """Return when the work on each key started, by ``now``."""
        return [item.since for item in tuple(self._processing.values())]

    def now(self) -> float:
        """Return the queue's clock, in seconds."""
        return self._clock.monotonic()

    def _new_item(self, key: K, priority: int, trigger: Trigger | None) -> QueueItem[K]:
        """Create an item that replaces the delayed one of ``key``."""
        pending = self._delayed.pop(key, None) if self._delayed else None
        if pending is None:
            return QueueItem(key, priority, trigger, 0.0)
        item = QueueItem(key, priority, None, 0.0)
        item.take_over_from(pending)
        item.merge(priority, trigger)
        return item

    def _make_ready(self, item: QueueItem[K]) -> None:
        self._tally.adds += 1
        item.since = self._clock.monotonic()
        self._waiting[item.key] = item
        self._append_to_bucket(item)
        if self._getters:
            self._wake_one()

    def _append_to_bucket(self, item: QueueItem[K]) -> None:
        bucket = self._bucket(item.priority)
        self._sequence += 1
        item.rank = self._sequence
        bucket.entries.append(item)
        bucket.size += 1

    def _remove_from_bucket(self, priority: int) -> None:
        bucket = self._bucket(priority)
        bucket.size -= 1
        if len(bucket.entries) > _COMPACT_MIN_SIZE and len(bucket.entries) > 2 * bucket.size:
            bucket.entries = deque(item for item in bucket.entries if not item.taken and item.priority == priority)

    def _bucket(self, priority: int) -> _PriorityBucket[K]:
        for bucket in self._buckets:
            if bucket.priority == priority:
                return bucket
        bucket = _PriorityBucket[K](priority)
        self._buckets = sorted((*self._buckets, bucket), key=lambda each: -each.priority)
        return bucket

    def _pop_next(self) -> QueueItem[K]:
        """Remove and return the next item. At least one item must wait."""
        chosen: _PriorityBucket[K] | None = None
        oldest: _PriorityBucket[K] | None = None
        oldest_rank = nonempty = 0
        for bucket in self._buckets:
            if bucket.size:
                nonempty += 1
                rank = bucket.head().rank
                if chosen is None:
                    chosen = bucket
                if oldest is None or rank < oldest_rank:
                    oldest, oldest_rank = bucket, rank
        assert chosen is not None
        assert oldest is not None
        if nonempty > 1:
            self._passed_over = 0 if oldest is chosen else self._passed_over + 1
            if self._passed_over == _FAIRNESS_INTERVAL:
                chosen, self._passed_over = oldest, 0
        # head() has removed stale entries.
        chosen.size -= 1
        return chosen.entries.popleft()

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(seconds, _MAX_TIMER_SECONDS), self._on_timer, context=self._timer_context)

    def _on_timer(self) -> None:
        self._timer = None
        heap, now = self._heap, self._clock.monotonic()
        while heap and (heap[0][2].taken or heap[0][0] <= now + _TIMER_TOLERANCE_SECONDS):
            item = heapq.heappop(heap)[2]
            if not item.taken:
                self.add(item.key, priority=item.priority)
        if heap:
            # A coarse clock may fire a timer early: wait at least one millisecond.
            self._set_timer(max(heap[0][0] - now, 0.001))

    def _wake_one(self) -> None:
        _wake(self._getters, 1)


def _wake(waiters: deque[asyncio.Future[None]], count: int) -> None:
    """Wake up to ``count`` waiting tasks."""
    while waiters and count:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            count -= 1
