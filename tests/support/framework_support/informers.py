"""Test informers with manual events or a scripted reflector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from framework_support.transports import ScriptedTransport
from framework_support.widget import Widget
from steersman.cache import Informer, InformerEvent, Reflector, Selection
from steersman.cache.options import WatchScope
from steersman.cache.store import IndexedStore
from steersman.client import Client
from steersman.meta import Object, ObjectKey
from steersman_testing.virtual_clock import virtual_runtime


class ManualInformer:
    """A store with subscribers, changed by the test."""

    def __init__(self) -> None:
        self.store: IndexedStore[Any] = IndexedStore()
        self._subscribers: list[Callable[[InformerEvent[Any]], None]] = []

    def subscribe(self, subscriber: Callable[[InformerEvent[Any]], None]) -> None:
        """Add a subscriber, which receives the known objects at once."""
        self._subscribers.append(subscriber)
        for obj in self.store:
            subscriber(InformerEvent(None, obj, is_initial_list=True))

    def replace(self, objects: tuple[Object, ...]) -> None:
        """Replace the content, as a list does."""
        present = {obj.key for obj in objects}
        for held in tuple(self.store):
            if held.key not in present:
                self.delete(held.key)
        for obj in objects:
            self._notify(InformerEvent(self.store.put(obj), obj, is_initial_list=True))

    def upsert(self, obj: Object) -> None:
        """Add or replace an object, as a watch event does."""
        self._notify(InformerEvent(self.store.put(obj), obj))

    def delete(self, key: ObjectKey) -> None:
        """Delete an object, as a watch event does."""
        removed = self.store.remove(key)
        if removed is not None:
            self._notify(InformerEvent(removed, None))

    def resync(self) -> None:
        """Notify the subscribers of all objects."""
        for obj in tuple(self.store):
            self._notify(InformerEvent(obj, obj))

    def _notify(self, change: InformerEvent[Any]) -> None:
        for subscriber in self._subscribers:
            subscriber(change)


SELECTED = (WatchScope(selection=Selection(label_selector="x=y")),)


@asynccontextmanager
async def running_reflector(transport: ScriptedTransport) -> AsyncGenerator[Informer[Widget], None]:
    """Run the reflector of an informer during the block. It must not end before."""
    informer = Informer(Client(transport), Widget, runtime=virtual_runtime(), scopes=SELECTED)
    task = asyncio.create_task(reflector_of(informer).run())
    try:
        yield informer
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def reflector_of(informer: Informer[Widget]) -> Reflector[Widget]:
    return informer.reflectors[0]


def versions_by_name(informer: Informer[Widget]) -> dict[str, str]:
    return {o.metadata.name: o.metadata.resource_version for o in informer.store}


def requested_versions(transport: ScriptedTransport) -> list[str]:
    """The resourceVersion of each watch, or ``list``."""
    return [r.query.get("resourceVersion", "list") for _, r in transport.requests]
