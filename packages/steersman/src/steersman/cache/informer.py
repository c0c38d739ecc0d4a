"""Informers: a store of one kind, kept current by reflectors."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from steersman.cache import metrics
from steersman.cache.options import WatchScope
from steersman.cache.progress import Progress
from steersman.cache.reflector import Reflector
from steersman.cache.sink import InformerSink
from steersman.cache.store import IndexedStore, InformerEvent, Subscriber
from steersman.cache.watch_errors import WatchErrorLogger
from steersman.client import Client
from steersman.meta import Object, ObjectKey
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

# Lists and watch requests that one kind has open at a time. Hundreds of namespaces at once, at the start or after an
# outage, would block the event loop for probes and the renewal of the Lease.
_MAX_CONCURRENT_LISTS = 4

# Objects per step of a resync. The event loop runs other tasks between two steps.
_RESYNC_BATCH = 100


class Informer(Generic[T]):
    """The store of one kind, and a sink for each scope.

    Args:
        scopes: namespaces and selectors to watch. They must not overlap.
    """

    def __init__(
        self, client: Client, kind: type[T], *, runtime: Runtime, scopes: tuple[WatchScope, ...] = (WatchScope(),)
    ) -> None:
        self.kind = kind
        self.name = kind.api_resource.kind
        self.store: IndexedStore[T] = IndexedStore(self.name)
        self._client = client
        self._scopes = scopes
        self._complete_namespaces = frozenset(
            s.namespace for s in scopes if not s.selection.has_selector and s.selection.transform is None
        )
        self._runtime = runtime
        self.progress, self.sinks = self._new_sinks()
        metrics.register_informer(self)

    def _new_sinks(self) -> tuple[Progress, tuple[InformerSink[T], ...]]:
        clock, progress = self._runtime.clock, Progress(len(self._scopes))
        watch_errors, semaphore = WatchErrorLogger(self.name, clock), asyncio.Semaphore(_MAX_CONCURRENT_LISTS)
        sinks = tuple(
            InformerSink(
                self.store,
                progress,
                self._client,
                self.kind,
                scope,
                runtime=self._runtime,
                watch_errors=watch_errors,
                semaphore=semaphore,
            )
            for scope in self._scopes
        )
        return progress, sinks

    @property
    def reflectors(self) -> tuple[Reflector[T], ...]:
        """The reflectors, one for each scope."""
        return tuple(sink.reflector for sink in self.sinks)

    @property
    def has_synced(self) -> bool:
        """True once the first list of each scope is in the store."""
        return self.progress.has_synced

    async def wait_for_sync(self) -> None:
        """Wait until the first list of each scope is in the store."""
        await self.progress.wait_for_sync()

    def is_uncertain(self, key: ObjectKey | None = None) -> bool:
        """Return True if a write of ``key`` has an unknown outcome.

        None stands for any object. Such an object must be read from the server: see ``Cache.resolve``.
        """
        for sink in self.sinks:
            keys = sink.uncertain_keys
            if keys and (key is None or key in keys):
                return True
        return False

    def is_complete(self, key: ObjectKey) -> bool:
        """Return True if the store shows ``key`` as the server does.

        An absent object then does not exist. It is False before the first list, after a write with unknown outcome,
        for an object that does not fit its type, and if the informer has a selector, a transform or other namespaces.
        """
        namespaces = self._complete_namespaces
        if "" not in namespaces and key.namespace not in namespaces:
            return False
        for sink in self.sinks:
            if key in sink.undecoded_keys:
                return False
        return self.progress.has_synced and not self.is_uncertain(key)

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Subscribe to the store: see ``IndexedStore.subscribe``."""
        self.store.subscribe(subscriber)

    async def resync(self, period: float) -> None:
        """Notify subscribers of every object each ``period`` seconds.

        The period varies by 10 %. The coroutine runs until cancelled.
        """
        while True:
            await self._runtime.clock.sleep(period * (0.9 + 0.2 * self._runtime.random.random()))
            for count, cached in enumerate(self.store):
                obj = self.store.get(cached.key)
                if obj is not None:
                    self.store.notify(InformerEvent(obj, obj, is_resync=True))
                if count % _RESYNC_BATCH == _RESYNC_BATCH - 1:
                    await asyncio.sleep(0)

    def usage(self) -> tuple[int, int]:
        """Return the number of objects and their size in bytes of JSON."""
        return len(self.store), self.store.size_bytes

    def staleness(self) -> float | None:
        """Return seconds since the last response; None before the first.

        With several scopes, the one that is silent longest counts.
        """
        event_times = [r.last_event_at for r in self.reflectors if r.last_event_at is not None]
        try:
            return self._runtime.clock.monotonic() - min(event_times) if event_times else None
        except RuntimeError:
            return None  # The event loop of its clock does not run in this thread, or has ended.
