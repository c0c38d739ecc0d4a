"""The work queue: a set of keys by priority, each worked on by one worker at a time, with back-off after errors.

Adding a key that waits does nothing but raise its priority. Adding one that is being worked on marks it to be worked
on once more, so that no change is missed and no two workers ever hold the same key.

Keys of a higher priority go first, yet nobody starves: every tenth key that is handed out is the one that has waited
longest, whatever its priority. So a key behind ``n`` others waits for ``10 * (n + 1)`` hand-outs at most, however
many more important ones keep coming.

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
"""The priority of changes, unless told otherwise."""
LOW_PRIORITY = -100
"""The priority of what is only looked at again: first lists and resyncs, as in controller-runtime."""

_FAIRNESS_INTERVAL = 10
# Timers of event loops are this inexact, and sums of floating-point seconds with them.
_TIMER_TOLERANCE_SECONDS = 1e-6
_MAX_TIMER_SECONDS = 86400.0
_COMPACT_MIN_SIZE = 1000


class QueueShutDown(SteersmanError):
    """The queue is shut down and will hand out no more keys."""


class QueueItem(Generic[K]):
    """A key on its way through the queue.

    Attributes:
        key: what is to be worked on.
        priority: the highest that it was added with.
        triggers: what it was added for, oldest first; ``MOST_TRIGGERS`` at most.
        omitted: how many further triggers were not kept.
        since: when it began to wait, or from when it is due, by the queue's clock; once taken, when work began.
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
        """Takes over a further add of the key."""
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
        """Takes the place of ``former``, which may lie in the heap of delayed keys for long and must hold nothing."""
        self.priority = max(self.priority, previous.priority)
        self.triggers, previous.triggers = previous.triggers, []
        self.omitted = previous.omitted
        previous.taken = True


class _PriorityBucket(Generic[K]):
    """The keys of one priority, first come, first served. Those raised to another lane are skipped when found."""

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
    """Deduplicating queue with priorities, delayed and rate-limited adds.

    Args:
        name: of the controller, for metrics.
        base_delay: seconds before the first retry of a key; doubles with each failure in a row.
        max_delay: seconds at most between retries.
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
        # One heap and one timer for all delayed keys: a timer of the event loop for each costs more than twice that.
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
        """Makes ``key`` ready. If it is already, ``priority`` can only raise it, and ``trigger`` joins the others."""
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
        """Makes ``key`` ready in ``seconds``; the earlier of two pending times and the higher ``priority`` win."""
        if not seconds > 0:
            self.add(key, priority=priority, trigger=trigger)
            return
        if self._shut_down:
            return
        if (known := self._waiting.get(key) or self._dirty.get(key)) is not None:
            # It comes earlier than asked.
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
        """Makes ``key`` ready, with ``priority``, after its back-off; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._tally.retries += 1
        delay = min(self._base_delay * 2 ** min(failures, 64), self._max_delay)
        self.add_after(key, delay, priority=priority, trigger=trigger)
        return delay

    def discard(self, key: K) -> None:
        """Takes back the adds of ``key`` that wait; a delayed one stays."""
        item = self._waiting.pop(key, None)
        if item is not None:
            item.taken = True
            item.triggers = []
            self._remove_from_bucket(item.priority)

    def forget(self, key: K) -> None:
        """Ends the back-off of ``key``: its next failure counts as the first."""
        if self._failures:
            self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often in a row ``key`` was added rate-limited."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """As ``take``, for who only wants the key."""
        return (await self.get_item()).key

    async def get_item(self) -> QueueItem[K]:
        """Waits for a key and takes it; ``done`` must follow.

        Raises:
            QueueShutDown: there will be no more.
        """
        while (item := self.get_item_nowait()) is None:
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # Woken and cancelled at once: pass the wake-up on, or the key would wait for nobody.
                if getter.done() and not getter.cancelled():
                    self._wake_one()
                raise
        return item

    def get_item_nowait(self) -> QueueItem[K] | None:
        """Takes a key, or gives None if none is ready. Raises QueueShutDown as ``take`` does."""
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
        """Gives ``key`` back; it is ready again if it was added meanwhile. Returns the seconds that work took."""
        item = self._processing.pop(key)
        seconds = self._clock.monotonic() - item.since
        self._tally.work_durations.observe(seconds)
        dirty = self._dirty.pop(key, None) if self._dirty else None
        if dirty is not None:
            self._make_ready(dirty)
        return seconds

    def shut_down(self, *, drain: bool = False) -> None:
        """Takes no more keys; those in work may finish.

        Args:
            drain: hand out what is ready before the end. What is delayed is forgotten either way, and a new leader
                finds it again: the cluster holds the truth.
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
        """The keys that are ready and wait, with what they were added for; in the order they became ready."""
        return tuple(self._waiting.values())

    def delayed(self) -> tuple[QueueItem[K], ...]:
        """The keys that are to be ready later, by a retry or a timer; ``since`` is when."""
        return tuple(self._delayed.values())

    def depths(self) -> Mapping[int, int]:
        """Keys that wait, by priority."""
        return {bucket.priority: bucket.size for bucket in tuple(self._buckets)}

    def started_at(self) -> Iterable[float]:
        """For each key in work, when that began, by the queue's clock."""
        return [item.since for item in tuple(self._processing.values())]

    def now(self) -> float:
        """The queue's clock, in seconds."""
        return self._clock.monotonic()

    def _new_item(self, key: K, priority: int, trigger: Trigger | None) -> QueueItem[K]:
        """An item for ``key`` that takes over what a pending delay knows of it."""
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
        """The item whose turn it is; some item waits."""
        buckets = self._buckets
        if len(buckets) > 1:
            buckets = [bucket for bucket in buckets if bucket.size]
        lane = buckets[0]
        if len(buckets) > 1:
            oldest = min(buckets, key=lambda each: each.head().rank)
            self._passed_over = 0 if oldest is lane else self._passed_over + 1
            if self._passed_over == _FAIRNESS_INTERVAL:
                lane, self._passed_over = oldest, 0
        item = lane.head()
        lane.entries.popleft()
        lane.size -= 1
        return item

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
            # A timer that came too early by a coarse clock is not set for less than that clock can tell.
            self._set_timer(max(heap[0][0] - now, 0.001))

    def _wake_one(self) -> None:
        _wake(self._getters, 1)


def _wake(waiters: deque[asyncio.Future[None]], count: int) -> None:
    """Wakes so many of those who still sleep."""
    while waiters and count:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            count -= 1
