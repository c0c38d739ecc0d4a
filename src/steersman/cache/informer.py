"""One kind's store, kept current, that tells its subscribers about every change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from steersman.cache.reflector import Reflector
from steersman.cache.store import Store
from steersman.client import Client
from steersman.meta import Object, ObjectKey
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

log = get_logger("cache")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What happened to an object: created (``old`` is None), deleted (``new`` is None), or changed.

    ``initial`` marks objects that were found by a list rather than told by a watch.
    """

    old: T | None
    new: T | None
    initial: bool = False

    @property
    def object(self) -> T:
        """The newest state that is known."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


Subscriber = Callable[[Change[T]], None]


class Informer(Generic[T]):
    """Reflector, store and subscribers of one kind.

    Args:
        namespace: restricts it to one namespace; empty for all.
        label_selector: restricts it to matching objects, such as ``app.kubernetes.io/managed-by=me``.
    """

    def __init__(
        self, client: Client, kind: type[T], *, runtime: Runtime, namespace: str = "", label_selector: str = ""
    ) -> None:
        self.kind = kind
        self.store: Store[T] = Store()
        self._subscribers: list[Subscriber[T]] = []
        self._synced = asyncio.Event()
        self.reflector = Reflector(
            client, kind, self, runtime=runtime, namespace=namespace, label_selector=label_selector
        )

    @property
    def has_synced(self) -> bool:
        """Whether the first list is in the store."""
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        """Returns once the first list is in the store."""
        await self._synced.wait()

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Calls ``subscriber`` for each change, in order, on the event loop; for objects already known at once."""
        self._subscribers.append(subscriber)
        for obj in self.store:
            subscriber(Change(None, obj, initial=True))

    def replace(self, objects: tuple[T, ...]) -> None:
        """Takes over a whole list: what is missing from it was deleted while nobody watched."""
        present = {obj.key for obj in objects}
        for gone in self.store:
            if gone.key not in present:
                self.store.remove(gone.key)
                self._tell(Change(gone, None))
        for obj in objects:
            self._put(obj, initial=True)
        self._synced.set()

    def upsert(self, obj: T) -> None:
        """Takes over one new or changed object."""
        self._put(obj, initial=False)

    def delete(self, key: ObjectKey) -> None:
        """Removes one object."""
        gone = self.store.remove(key)
        if gone is not None:
            self._tell(Change(gone, None))

    def _put(self, obj: T, *, initial: bool) -> None:
        old = self.store.put(obj)
        if old is not None and old.metadata.uid != obj.metadata.uid:
            # Deleted and created again between two lists: subscribers must see both.
            self._tell(Change(old, None))
            old = None
        if old is None or old.metadata.resource_version != obj.metadata.resource_version:
            self._tell(Change(old, obj, initial=initial and old is None))

    def _tell(self, change: Change[T]) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(change)
            except Exception:
                # One that fails on one object must cost neither the others nor the next objects anything.
                log.exception("a subscriber failed", kind=self.kind.api_resource.kind, object=str(change.object.key))
