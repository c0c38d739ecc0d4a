"""An informer that a test feeds by hand, for what is built on changes rather than on watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman.cache import InformerEvent
from steersman.cache.store import IndexedStore
from steersman.meta import Object, ObjectKey


class ManualInformer:
    """A store, and whoever subscribed to its changes."""

    def __init__(self) -> None:
        self.store: IndexedStore[Any] = IndexedStore()
        self._subscribers: list[Callable[[InformerEvent[Any]], None]] = []

    def subscribe(self, subscriber: Callable[[InformerEvent[Any]], None]) -> None:
        """Tells ``subscriber`` of each change; of what is known, at once."""
        self._subscribers.append(subscriber)
        for obj in self.store:
            subscriber(InformerEvent(None, obj, is_initial_list=True))

    def replace(self, objects: tuple[Object, ...]) -> None:
        """A list: these objects exist, and no others."""
        present = {obj.key for obj in objects}
        for held in tuple(self.store):
            if held.key not in present:
                self.delete(held.key)
        for obj in objects:
            self._notify(InformerEvent(self.store.put(obj), obj, is_initial_list=True))

    def upsert(self, obj: Object) -> None:
        """A watch's event: created or changed."""
        self._notify(InformerEvent(self.store.put(obj), obj))

    def delete(self, key: ObjectKey) -> None:
        """A watch's event: deleted."""
        removed = self.store.remove(key)
        if removed is not None:
            self._notify(InformerEvent(removed, None))

    def resync(self) -> None:
        """Everything is shown once more."""
        for obj in tuple(self.store):
            self._notify(InformerEvent(obj, obj))

    def _notify(self, change: InformerEvent[Any]) -> None:
        for subscriber in self._subscribers:
            subscriber(change)
