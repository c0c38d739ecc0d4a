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

from steersman.controller.triggers import MOST_TRIGGERS, Trigger
from steersman.errors import SteersmanError
from steersman.observability.runtime import Runtime
from steersman.observability.tallies import queue_tally

K = TypeVar("K", bound=Hashable)

NORMAL = 0
"""The priority of changes, unless told otherwise."""
LOW = -100
"""The priority of what is only looked at again: first lists and resyncs, as in controller-runtime."""

_OLDEST_EVERY = 10
# Timers of event loops are this inexact, and sums of floating-point seconds with them.
_TOLERANCE = 1e-6
_LONGEST_TIMER = 86400.0
_COMPACT_ABOVE = 1000


class QueueShutDown(SteersmanError):
    """The queue is shut down and will hand out no more keys."""


class Item(Generic[K]):
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

    def join(self, priority: int, trigger: Trigger | None) -> None:
        """Takes over a further add of the key."""
        self.priority = max(self.priority, priority)
        if trigger is None:
            return
        for place, known in enumerate(self.triggers):
            if known is trigger:
                return
            if (both := known.absorb(trigger)) is not None:
                self.triggers[place] = both
                return
        if len(self.triggers) < MOST_TRIGGERS:
            self.triggers.append(trigger)
        else:
            self.omitted += 1

    def succeed(self, former: Item[K]) -> None:
        """Takes the place of ``former``, which may lie in the heap of delayed keys for long and must hold nothing."""
        self.priority = max(self.priority, former.priority)
        self.triggers, former.triggers = former.triggers, []
        self.omitted = former.omitted
        former.taken = True


class _Lane(Generic[K]):
    """The keys of one priority, first come, first served. Those raised to another lane are skipped when found."""

    __slots__ = ("entries", "priority", "size")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.entries: deque[Item[K]] = deque()
        self.size = 0

    def head(self) -> Item[K]:
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
        self._lanes: list[_Lane[K]] = [_Lane(NORMAL)]
        self._waiting: dict[K, Item[K]] = {}
        self._processing: dict[K, Item[K]] = {}
        self._again: dict[K, Item[K]] = {}
        self._failures: dict[K, int] = {}
        self._delayed: dict[K, Item[K]] = {}
        # One heap and one timer for all delayed keys: a timer of the event loop for each costs more than twice that.
        self._heap: list[tuple[float, int, Item[K]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_context = contextvars.Context()
        self._placed = 0
        self._passed_over = 0
        self._takers: deque[asyncio.Future[None]] = deque()
        self._shut_down = False
        self._tally = queue_tally(name)
        self._tally.queue = weakref.ref(self)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K, *, priority: int = NORMAL, trigger: Trigger | None = None) -> None:
        """Makes ``key`` ready. If it is already, ``priority`` can only raise it, and ``trigger`` joins the others."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            former = waiting.priority
            waiting.join(priority, trigger)
            if waiting.priority != former:
                self._leave(former)
                self._line_up(waiting)
        elif self._shut_down:
            return
        elif key in self._processing:
            again = self._again.get(key)
            if again is not None:
                again.join(priority, trigger)
                return
            self._again[key] = self._resumed(key, priority, trigger)
        else:
            self._make_ready(self._resumed(key, priority, trigger))

    def add_after(self, key: K, seconds: float, *, priority: int = NORMAL, trigger: Trigger | None = None) -> None:
        """Makes ``key`` ready in ``seconds``; the earlier of two pending times and the higher ``priority`` win."""
        if not seconds > 0:
            self.add(key, priority=priority, trigger=trigger)
            return
        if self._shut_down:
            return
        if (known := self._waiting.get(key) or self._again.get(key)) is not None:
            # It comes earlier than asked.
            known.join(known.priority, trigger)
            return
        due = self._clock.monotonic() + seconds
        pending = self._delayed.get(key)
        item = Item(key, priority, trigger, due)
        if pending is not None:
            pending.join(priority, trigger)
            if pending.since <= due:
                return
            item.succeed(pending)
        self._delayed[key] = item
        self._placed += 1
        heapq.heappush(self._heap, (due, self._placed, item))
        if len(self._heap) > _COMPACT_ABOVE and len(self._heap) > 2 * len(self._delayed):
            self._heap = [entry for entry in self._heap if not entry[2].taken]
            heapq.heapify(self._heap)
        if self._heap[0][2] is item:
            self._arm(seconds)

    def add_rate_limited(self, key: K, *, priority: int = NORMAL, trigger: Trigger | None = None) -> float:
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
            self._leave(item.priority)

    def forget(self, key: K) -> None:
        """Ends the back-off of ``key``: its next failure counts as the first."""
        if self._failures:
            self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often in a row ``key`` was added rate-limited."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """As ``take``, for who only wants the key."""
        return (await self.take()).key

    async def take(self) -> Item[K]:
        """Waits for a key and takes it; ``done`` must follow.

        Raises:
            QueueShutDown: there will be no more.
        """
        while (item := self.take_nowait()) is None:
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                # Woken and cancelled at once: pass the wake-up on, or the key would wait for nobody.
                if taker.done() and not taker.cancelled():
                    self._wake_one()
                raise
        return item

    def take_nowait(self) -> Item[K] | None:
        """Takes a key, or gives None if none is ready. Raises QueueShutDown as ``take`` does."""
        if not self._waiting:
            if self._shut_down:
                raise QueueShutDown
            return None
        item = self._next()
        item.taken = True
        key = item.key
        del self._waiting[key]
        self._processing[key] = item
        now = self._clock.monotonic()
        item.waited = now - item.since
        item.since = now
        self._tally.waits.observe(item.waited)
        return item

    def done(self, key: K) -> float:
        """Gives ``key`` back; it is ready again if it was added meanwhile. Returns the seconds that work took."""
        item = self._processing.pop(key)
        seconds = self._clock.monotonic() - item.since
        self._tally.works.observe(seconds)
        again = self._again.pop(key, None) if self._again else None
        if again is not None:
            self._make_ready(again)
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
            self._again.clear()
            self._lanes = [_Lane(NORMAL)]
        _wake(self._takers, len(self._takers))

    def waiting(self) -> tuple[Item[K], ...]:
        """The keys that are ready and wait, with what they were added for; in the order they became ready."""
        return tuple(self._waiting.values())

    def delayed(self) -> tuple[Item[K], ...]:
        """The keys that are to be ready later, by a retry or a timer; ``since`` is when."""
        return tuple(self._delayed.values())

    def depths(self) -> Mapping[int, int]:
        """Keys that wait, by priority."""
        return {lane.priority: lane.size for lane in tuple(self._lanes)}

    def started_at(self) -> Iterable[float]:
        """For each key in work, when that began, by the queue's clock."""
        return [item.since for item in tuple(self._processing.values())]

    def now(self) -> float:
        """The queue's clock, in seconds."""
        return self._clock.monotonic()

    def _resumed(self, key: K, priority: int, trigger: Trigger | None) -> Item[K]:
        """An item for ``key`` that takes over what a pending delay knows of it."""
        pending = self._delayed.pop(key, None) if self._delayed else None
        if pending is None:
            return Item(key, priority, trigger, 0.0)
        item = Item(key, priority, None, 0.0)
        item.succeed(pending)
        item.join(priority, trigger)
        return item

    def _make_ready(self, item: Item[K]) -> None:
        self._tally.adds += 1
        item.since = self._clock.monotonic()
        self._waiting[item.key] = item
        self._line_up(item)
        if self._takers:
            self._wake_one()

    def _line_up(self, item: Item[K]) -> None:
        lane = self._lane(item.priority)
        self._placed += 1
        item.rank = self._placed
        lane.entries.append(item)
        lane.size += 1

    def _leave(self, priority: int) -> None:
        lane = self._lane(priority)
        lane.size -= 1
        if len(lane.entries) > _COMPACT_ABOVE and len(lane.entries) > 2 * lane.size:
            lane.entries = deque(item for item in lane.entries if not item.taken and item.priority == priority)

    def _lane(self, priority: int) -> _Lane[K]:
        for lane in self._lanes:
            if lane.priority == priority:
                return lane
        lane = _Lane[K](priority)
        self._lanes = sorted((*self._lanes, lane), key=lambda each: -each.priority)
        return lane

    def _next(self) -> Item[K]:
        """The item whose turn it is; some item waits."""
        lanes = self._lanes
        if len(lanes) > 1:
            lanes = [lane for lane in lanes if lane.size]
        lane = lanes[0]
        if len(lanes) > 1:
            oldest = min(lanes, key=lambda each: each.head().rank)
            self._passed_over = 0 if oldest is lane else self._passed_over + 1
            if self._passed_over == _OLDEST_EVERY:
                lane, self._passed_over = oldest, 0
        item = lane.head()
        lane.entries.popleft()
        lane.size -= 1
        return item

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(seconds, _LONGEST_TIMER), self._due, context=self._timer_context)

    def _due(self) -> None:
        self._timer = None
        heap, now = self._heap, self._clock.monotonic()
        while heap and (heap[0][2].taken or heap[0][0] <= now + _TOLERANCE):
            item = heapq.heappop(heap)[2]
            if not item.taken:
                self.add(item.key, priority=item.priority)
        if heap:
            # A timer that came too early by a coarse clock is not set for less than that clock can tell.
            self._arm(max(heap[0][0] - now, 0.001))

    def _wake_one(self) -> None:
        _wake(self._takers, 1)


def _wake(sleepers: deque[asyncio.Future[None]], number: int) -> None:
    """Wakes so many of those who still sleep."""
    while sleepers and number:
        sleeper = sleepers.popleft()
        if not sleeper.done():
            sleeper.set_result(None)
            number -= 1
