"""One kind's store, kept current, that tells its subscribers about every change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from steersman.cache.options import Scope
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
    """The store and the subscribers of one kind, and a reflector for each part of it.

    Args:
        scopes: the parts, such as one a namespace. They must not overlap.
    """

    def __init__(
        self, client: Client, kind: type[T], *, runtime: Runtime, scopes: tuple[Scope, ...] = (Scope(),)
    ) -> None:
        self.kind = kind
        self.store: Store[T] = Store()
        self._subscribers: list[Subscriber[T]] = []
        self._synced = asyncio.Event()
        self.parts = tuple(Part(self, client, scope, runtime) for scope in scopes)

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

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Calls ``subscriber`` for each change, in order, on the event loop; for objects already known at once."""
        self._subscribers.append(subscriber)
        for obj in self.store:
            subscriber(Change(None, obj, initial=True))

    def note_list(self) -> None:
        """A part has its list: once all have, the informer is synced."""
        if all(part.has_synced for part in self.parts):
            self._synced.set()

    def put(self, obj: T, *, initial: bool) -> None:
        """Stores ``obj`` and tells subscribers, if that is news."""
        old = self.store.put(obj)
        if old is not None and old.metadata.uid != obj.metadata.uid:
            # Deleted and created again between two lists: subscribers must see both.
            self._tell(Change(old, None))
            old = None
        if old is None or old.metadata.resource_version != obj.metadata.resource_version:
            self._tell(Change(old, obj, initial=initial and old is None))

    def remove(self, key: ObjectKey) -> None:
        """Removes ``key`` and tells subscribers, if it is there."""
        gone = self.store.remove(key)
        if gone is not None:
            self._tell(Change(gone, None))

    def _tell(self, change: Change[T]) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(change)
            except Exception:
                # One that fails on one object must cost neither the others nor the next objects anything.
                log.exception("a subscriber failed", kind=self.kind.api_resource.kind, object=str(change.object.key))


class Part(Generic[T]):
    """What one reflector brings into an informer: the objects of one scope."""

    def __init__(self, informer: Informer[T], client: Client, scope: Scope, runtime: Runtime) -> None:
        self.kind = informer.kind
        self.scope = scope
        self.has_synced = False
        self.reflector = Reflector(client, informer.kind, self, runtime=runtime, scope=scope)
        self._informer = informer
        self._transform = scope.selection.transform

    def replace(self, objects: tuple[T, ...]) -> None:
        """Takes over a whole list: what is missing from it was deleted while nobody watched."""
        present = {obj.key for obj in objects}
        namespace = self.scope.namespace
        for held in self._informer.store:
            if held.key not in present and (not namespace or held.metadata.namespace == namespace):
                self._informer.remove(held.key)
        for obj in objects:
            self._informer.put(self._form(obj), initial=True)
        self.has_synced = True
        self._informer.note_list()

    def upsert(self, obj: T) -> None:
        """Takes over one new or changed object."""
        self._informer.put(self._form(obj), initial=False)

    def delete(self, key: ObjectKey) -> None:
        """Removes one object."""
        self._informer.remove(key)

    def _form(self, obj: T) -> T:
        return obj if self._transform is None else self._transform(obj)
