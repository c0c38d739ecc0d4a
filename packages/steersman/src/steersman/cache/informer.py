"""One kind's store, kept current, that tells its subscribers about every change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from steersman.cache import metrics
from steersman.cache.interning import Interner
from steersman.cache.options import WatchScope
from steersman.cache.reflector import Reflector
from steersman.cache.sink import InformerSink
from steersman.cache.store import Store
from steersman.cache.watch_errors import WatchErrorLogger
from steersman.client import Client
from steersman.meta import Object, ObjectKey
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

# Reflectors of a kind that list, or open their watch, at a time. All of hundreds of namespaces at once, at the start
# or after an outage, would keep the event loop from all else, probes and the renewal of the Lease included.
_MAX_CONCURRENT_LISTS = 4

# Objects that subscribers are told of in one go at a resync.
_RESYNC_BATCH = 100

# Bytes of JSON. Smaller objects have little that others have, too.
_INTERN_MIN_BYTES = 2048

log = get_logger("cache")


class InformerEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What happened to an object: created (``old`` is None), deleted (``new`` is None), or changed.

    Attributes:
        is_initial_list: it was found by a list rather than told by a watch.
        is_resync: nothing happened; subscribers are told of every object again.
        from_own_write: it is the answer to our own write.
    """

    old: T | None
    new: T | None
    is_initial_list: bool = False
    is_resync: bool = False
    from_own_write: bool = False

    @property
    def object(self) -> T:
        """The newest state that is known."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


Subscriber = Callable[[InformerEvent[T]], None]


class Informer(Generic[T]):
    """The store and the subscribers of one kind, and a reflector for each part of it.

    Args:
        scopes: the parts, such as one a namespace. They must not overlap.
    """

    def __init__(
        self, client: Client, kind: type[T], *, runtime: Runtime, scopes: tuple[WatchScope, ...] = (WatchScope(),)
    ) -> None:
        self.kind = kind
        self.name = kind.api_resource.kind
        self.store: Store[T] = Store()
        self._interner = Interner()
        self.write_throughs = metrics.write_throughs.labels(self.name)
        self.stale_events_dropped = metrics.stale_events_dropped.labels(self.name)
        self._runtime = runtime
        self._subscribers: list[Subscriber[T]] = []
        self._synced = asyncio.Event()
        self._progress_waiters: list[asyncio.Future[None]] = []
        watch_errors, semaphore = WatchErrorLogger(self.name, runtime.clock), asyncio.Semaphore(_MAX_CONCURRENT_LISTS)
        self.sinks = tuple(
            InformerSink(self, client, s, runtime=runtime, watch_errors=watch_errors, semaphore=semaphore)
            for s in scopes
        )
        metrics.register_informer(self)

    @property
    def reflectors(self) -> tuple[Reflector[T], ...]:
        """What keeps it current, one a scope."""
        return tuple(sink.reflector for sink in self.sinks)

    @property
    def has_synced(self) -> bool:
        """Whether the first lists are in the store."""
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        """Returns once the first lists are in the store."""
        await self._synced.wait()

    def sink_for(self, key: ObjectKey) -> InformerSink[T] | None:
        """The part that ``key`` belongs to, or None where its namespace is not watched."""
        return next((sink for sink in self.sinks if sink.covers(key)), None)

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Calls ``subscriber`` for each change, in order, on the event loop; for objects already known at once.

        Our own writes are told when they are answered, and not again when the watch brings them.
        """
        self._subscribers.append(subscriber)
        for obj in self.store:
            subscriber(InformerEvent(None, obj, is_initial_list=True))

    async def resync(self, period: float) -> None:
        """Tells subscribers of every object again each ``period`` seconds, 10 % more or less; until cancelled."""
        while True:
            await self._runtime.clock.sleep(period * (0.9 + 0.2 * self._runtime.random.random()))
            for count, cached in enumerate(self.store):
                obj = self.store.get(cached.key)
                if obj is not None:
                    self._notify(InformerEvent(obj, obj, is_resync=True))
                if count % _RESYNC_BATCH == _RESYNC_BATCH - 1:
                    await asyncio.sleep(0)

    def usage(self) -> tuple[int, int]:
        """How many objects, and how many bytes of JSON they are."""
        return len(self.store), self.store.size_bytes

    def staleness(self) -> float | None:
        """Seconds since the server was last heard of by the part that is the most silent; None before that."""
        event_times = [r.last_event_at for r in self.reflectors if r.last_event_at is not None]
        try:
            return self._runtime.clock.monotonic() - min(event_times) if event_times else None
        except RuntimeError:
            return None  # Its event loop does not run here, or no more.

    # For the parts

    def on_list_complete(self) -> None:
        """A part has its list: once all have, the informer is synced."""
        if not self.has_synced and all(sink.has_synced for sink in self.sinks):
            self._synced.set()
        self.notify_progress()

    def put(
        self,
        key: ObjectKey,
        obj: T,
        size: int,
        cached: T | None,
        *,
        is_initial_list: bool = False,
        from_own_write: bool = False,
    ) -> None:
        """Stores ``obj``, of ``size`` bytes of JSON, in place of ``held``, and tells subscribers."""
        if size >= _INTERN_MIN_BYTES:
            key = self._interner.intern(obj, cached).key
        self.store.put(obj, size, key)
        if cached is not None:
            if cached.metadata.uid != obj.metadata.uid:
                # Deleted and created again in the meantime: subscribers must see both.
                self._notify(InformerEvent(cached, None))
                cached = None
            elif cached.metadata.resource_version == obj.metadata.resource_version:
                return
        self._notify(
            InformerEvent(
                cached, obj, is_initial_list=is_initial_list and cached is None, from_own_write=from_own_write
            )
        )

    def remove(self, key: ObjectKey) -> None:
        """Removes ``key`` and tells subscribers, if it is there."""
        removed = self.store.remove(key)
        if removed is not None:
            self._notify(InformerEvent(removed, None))

    @property
    def has_progress_waiters(self) -> bool:
        """Whether somebody waits for progress."""
        return bool(self._progress_waiters)

    def notify_progress(self) -> None:
        """Something came: whoever waits looks again."""
        waiters, self._progress_waiters = self._progress_waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    async def wait_for_progress(self) -> None:
        """Returns when the next news has come."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._progress_waiters.append(future)
        await future

    def _notify(self, event: InformerEvent[T]) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                # One that fails on one object must cost neither the others nor the next objects anything.
                log.exception("subscriber failed", kind=self.name, object=str(event.object.key))
