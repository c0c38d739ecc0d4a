"""One kind's store, kept current, that tells its subscribers about every change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from steersman.cache import metrics
from steersman.cache.options import Scope
from steersman.cache.outage import Outage
from steersman.cache.part import Part
from steersman.cache.reflector import Reflector
from steersman.cache.sharing import Sharing
from steersman.cache.store import Store
from steersman.client import Client
from steersman.meta import Object, ObjectKey
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

# Reflectors of a kind that list, or open their watch, at a time. All of hundreds of namespaces at once, at the start
# or after an outage, would keep the event loop from all else, probes and the renewal of the Lease included.
_TURNS = 4

# Objects that subscribers are told of in one go at a resync.
_RESYNC_BATCH = 100

# Bytes of JSON. Smaller objects have little that others have, too.
_WORTH_SHARING = 2048

log = get_logger("cache")


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What happened to an object: created (``old`` is None), deleted (``new`` is None), or changed.

    Attributes:
        initial: it was found by a list rather than told by a watch.
        resync: nothing happened; subscribers are told of every object again.
        own: it is the answer to our own write.
    """

    old: T | None
    new: T | None
    initial: bool = False
    resync: bool = False
    own: bool = False

    @property
    def object(self) -> T:
        """The newest state that is known."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


Subscriber = Callable[[Change[T]], None]


class Informer(Generic[T]):
    """The store and the subscribers of one kind, and a reflector for each part of it.

    Args:
        scopes: the parts, such as one a namespace. They must not overlap.
    """

    def __init__(
        self, client: Client, kind: type[T], *, runtime: Runtime, scopes: tuple[Scope, ...] = (Scope(),)
    ) -> None:
        self.kind = kind
        self.name = kind.api_resource.kind
        self.store: Store[T] = Store()
        self._sharing = Sharing()
        self.own_writes = metrics.own_writes.labels(self.name)
        self.stale_news = metrics.stale_news.labels(self.name)
        self._runtime = runtime
        self._subscribers: list[Subscriber[T]] = []
        self._synced = asyncio.Event()
        self._progress: list[asyncio.Future[None]] = []
        outage, turns = Outage(self.name, runtime.clock), asyncio.Semaphore(_TURNS)
        self.parts = tuple(Part(self, client, s, runtime=runtime, outage=outage, turns=turns) for s in scopes)
        metrics.observe(self)

    @property
    def reflectors(self) -> tuple[Reflector[T], ...]:
        """What keeps it current, one a scope."""
        return tuple(part.reflector for part in self.parts)

    @property
    def has_synced(self) -> bool:
        """Whether the first lists are in the store."""
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        """Returns once the first lists are in the store."""
        await self._synced.wait()

    def part_of(self, key: ObjectKey) -> Part[T] | None:
        """The part that ``key`` belongs to, or None where its namespace is not watched."""
        return next((part for part in self.parts if part.covers(key)), None)

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Calls ``subscriber`` for each change, in order, on the event loop; for objects already known at once.

        Our own writes are told when they are answered, and not again when the watch brings them.
        """
        self._subscribers.append(subscriber)
        for obj in self.store:
            subscriber(Change(None, obj, initial=True))

    async def resync(self, period: float) -> None:
        """Tells subscribers of every object again each ``period`` seconds, 10 % more or less; until cancelled."""
        while True:
            await self._runtime.clock.sleep(period * (0.9 + 0.2 * self._runtime.random.random()))
            for number, held in enumerate(self.store):
                obj = self.store.get(held.key)
                if obj is not None:
                    self._tell(Change(obj, obj, resync=True))
                if number % _RESYNC_BATCH == _RESYNC_BATCH - 1:
                    await asyncio.sleep(0)

    def held(self) -> tuple[int, int]:
        """How many objects, and how many bytes of JSON they are."""
        return len(self.store), self.store.size

    def staleness(self) -> float | None:
        """Seconds since the server was last heard of by the part that is the most silent; None before that."""
        heard = [r.heard for r in self.reflectors if r.heard is not None]
        try:
            return self._runtime.clock.monotonic() - min(heard) if heard else None
        except RuntimeError:
            return None  # Its event loop does not run here, or no more.

    # For the parts

    def note_list(self) -> None:
        """A part has its list: once all have, the informer is synced."""
        if not self.has_synced and all(part.has_synced for part in self.parts):
            self._synced.set()
        self.note_progress()

    def put(
        self, key: ObjectKey, obj: T, size: int, held: T | None, *, initial: bool = False, own: bool = False
    ) -> None:
        """Stores ``obj``, of ``size`` bytes of JSON, in place of ``held``, and tells subscribers."""
        if size >= _WORTH_SHARING:
            key = self._sharing.share(obj, held).key
        self.store.put(obj, size, key)
        if held is not None:
            if held.metadata.uid != obj.metadata.uid:
                # Deleted and created again in the meantime: subscribers must see both.
                self._tell(Change(held, None))
                held = None
            elif held.metadata.resource_version == obj.metadata.resource_version:
                return
        self._tell(Change(held, obj, initial=initial and held is None, own=own))

    def remove(self, key: ObjectKey) -> None:
        """Removes ``key`` and tells subscribers, if it is there."""
        gone = self.store.remove(key)
        if gone is not None:
            self._tell(Change(gone, None))

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for progress."""
        return bool(self._progress)

    def note_progress(self) -> None:
        """Something came: whoever waits looks again."""
        waiting, self._progress = self._progress, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def progress(self) -> None:
        """Returns when the next news has come."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._progress.append(future)
        await future

    def _tell(self, change: Change[T]) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(change)
            except Exception:
                # One that fails on one object must cost neither the others nor the next objects anything.
                log.exception("a subscriber failed", kind=self.name, object=str(change.object.key))
