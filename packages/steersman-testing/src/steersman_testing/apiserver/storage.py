"""Storage of objects, their history and subscriptions: etcd and the watch cache."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from steersman.meta import Object, ObjectKey, decode
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.fields import managed_fields
from steersman_testing.apiserver.fields.managed_fields import ManagedFields
from steersman_testing.apiserver.kinds import CustomResourceVersions, GroupResource
from steersman_testing.apiserver.requests.negotiation import PARTIAL_OBJECT_METADATA
from steersman_testing.apiserver.values import JsonObject

T = TypeVar("T", bound=Object)
StorageEventType = Literal["ADDED", "MODIFIED", "DELETED"]


def list_sort_key(key: ObjectKey) -> str:
    """Return the sort key of lists: the order of keys in etcd.

    etcd's keys have a slash between namespace and name.
    """
    return f"{key.namespace}/{key.name}"


@dataclass(slots=True, eq=False)
class StoredObject:
    """One immutable version of an object.

    Attributes:
        object: wire form in the storage version, without ``managedFields``.
        managers: the managed fields.
        version: the resourceVersion.
        storage_form: the stored object that this one was converted from. None without conversion.
    """

    collection: GroupResource
    key: ObjectKey
    object: JsonObject
    managers: ManagedFields
    version: int
    storage_form: StoredObject | None = None
    _encoded: dict[str, bytes] = field(default_factory=dict[str, bytes])
    _typed: dict[type[Object], Any] = field(default_factory=dict[type[Object], Any])
    # None if the object needs no conversion.
    _conversions: dict[str, tuple[CustomResourceVersions, StoredObject | None]] = field(
        default_factory=dict[str, "tuple[CustomResourceVersions, StoredObject | None]"]
    )

    @property
    def uid(self) -> str:
        return self.object["metadata"]["uid"]

    @property
    def finalizers(self) -> list[str]:
        return self.object["metadata"].get("finalizers") or []

    @property
    def owner_uids(self) -> list[str]:
        return [o.get("uid", "") for o in self.object["metadata"].get("ownerReferences") or ()]

    @property
    def is_deleting(self) -> bool:
        return "deletionTimestamp" in self.object["metadata"]

    def to_wire(self, api_version: str, *, managers: bool = True) -> JsonObject:
        """Return the wire form with ``api_version``, and by default with managedFields."""
        metadata = self.object["metadata"]
        if managers and self.managers:
            metadata = {**metadata, "managedFields": managed_fields.encode_managed_fields(self.managers)}
        return {**self.object, "apiVersion": api_version, "metadata": metadata}

    def to_json(self, api_version: str, *, typed: bool = True, partial: bool = False) -> bytes:
        """Return the wire form as JSON, which is encoded once.

        Args:
            typed: whether to include apiVersion and kind.
            partial: whether to encode a PartialObjectMetadata.
        """
        cache_key = PARTIAL_OBJECT_METADATA if partial else api_version if typed else ""
        found = self._encoded.get(cache_key)
        if found is None:
            obj = self.to_wire(api_version)
            if partial:
                obj = {"kind": PARTIAL_OBJECT_METADATA, "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
            elif not typed:
                del obj["apiVersion"], obj["kind"]
            found = self._encoded[cache_key] = msgspec.json.encode(obj)
        return found

    def decode(self, kind: type[T]) -> T:
        """Return the object as an instance of ``kind``, which is decoded once."""
        found = self._typed.get(kind)
        if found is None:
            found = self._typed[kind] = decode(self.to_json(kind.api_resource.api_version), kind)
        return found

    def cached_conversion(self, version: str, versions: CustomResourceVersions) -> StoredObject | None:
        """Return the cached conversion to ``version``, or None.

        A change of the definition invalidates the cache.
        """
        cached_versions, converted = self._conversions.get(version, (None, None))
        return (converted or self) if cached_versions is versions else None

    def cache_conversion(self, version: str, versions: CustomResourceVersions, obj: JsonObject) -> StoredObject:
        """Cache ``obj`` as the conversion to ``version`` and return it."""
        differs = obj is not self.object and obj != self.object
        converted = (
            StoredObject(self.collection, self.key, obj, self.managers, self.version, self) if differs else None
        )
        self._conversions[version] = (versions, converted)
        return converted or self

    def with_version(self, version: int) -> StoredObject:
        """Return a copy with another resourceVersion, as in DELETED events."""
        metadata = {**self.object["metadata"], "resourceVersion": str(version)}
        return StoredObject(self.collection, self.key, {**self.object, "metadata": metadata}, self.managers, version)


class StorageEvent(NamedTuple):
    """One change. ``before`` is None for a creation, ``after`` for a removal."""

    version: int
    before: StoredObject | None
    after: StoredObject | None

    @property
    def collection(self) -> GroupResource:
        stored = self.after or self.before
        assert stored is not None
        return stored.collection


class WatchBroken(Exception):
    """Marker in a subscription that ends the stream like a lost connection."""


class Subscription:
    """Queue of the changes of one collection."""

    def __init__(self, collection: GroupResource, backlog: Iterator[StorageEvent]) -> None:
        self.collection = collection
        self._events: deque[StorageEvent | WatchBroken] = deque(backlog)
        self._has_events = asyncio.Event()
        if self._events:
            self._has_events.set()

    def push(self, event: StorageEvent | WatchBroken) -> None:
        """Append a change or the end of the stream."""
        self._events.append(event)
        self._has_events.set()

    async def next(self, timeout: float) -> StorageEvent | None:
        """Return the next change, or None after ``timeout`` seconds without one.

        Raises:
            WatchBroken: the stream ends here.
        """
        if not self._events:
            self._has_events.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._has_events.wait()
            except TimeoutError:
                return None
        event = self._events.popleft()
        if isinstance(event, WatchBroken):
            raise event
        return event


class Storage:
    """All objects of one server, with indexes and history."""

    def __init__(self) -> None:
        # etcd starts at revision 1. The real server writes objects before the first client does.
        self.version = 1
        self.compacted_version = 1
        self.changes: Counter[GroupResource] = Counter()
        self._objects: dict[GroupResource, dict[ObjectKey, StoredObject]] = {}
        self._by_uid: dict[str, StoredObject] = {}
        self._history: deque[StorageEvent] = deque()
        self._subscriptions: list[Subscription] = []
        self._removed: list[StoredObject] = []
        self._deleting: dict[str, None] = {}
        self._dependents: dict[str, dict[str, None]] = {}

    def get(self, collection: GroupResource, key: ObjectKey) -> StoredObject | None:
        """Return the current object, or None."""
        return self._objects.get(collection, {}).get(key)

    def has_any(self, collection: GroupResource) -> bool:
        """Return True if the collection has objects."""
        return bool(self._objects.get(collection))

    def by_uid(self, uid: str) -> StoredObject | None:
        """Return the object of any kind with this UID, or None."""
        return self._by_uid.get(uid)

    def list(self, collection: GroupResource, namespace: str = "", version: int | None = None) -> list[StoredObject]:
        """Return the objects of a collection, sorted by namespace and name.

        Args:
            version: the resourceVersion to list at. Defaults to the current one.
        """
        found = self._objects.get(collection, {})
        if version is not None and version < self.version:
            found = self._objects_at_version(collection, version)
        return [found[k] for k in sorted(found, key=list_sort_key) if not namespace or k.namespace == namespace]

    def all(self) -> list[StoredObject]:
        """Return all objects, sorted by collection, namespace and name."""
        return [stored for collection in sorted(self._objects) for stored in self.list(collection)]

    def _objects_at_version(self, collection: GroupResource, version: int) -> dict[ObjectKey, StoredObject]:
        if version < self.compacted_version:
            raise failures.resource_version_too_old(version, self.compacted_version)
        found = dict(self._objects.get(collection, {}))
        for event in reversed(self._history):
            if event.version <= version:
                break
            if event.collection != collection:
                continue
            if event.before is not None:
                found[event.before.key] = event.before
            elif event.after is not None:
                del found[event.after.key]
        return found

    def put(
        self, collection: GroupResource, key: ObjectKey, obj: JsonObject, managers: ManagedFields
    ) -> StoredObject:
        """Store ``obj`` under a new resourceVersion and notify subscriptions."""
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        stored = StoredObject(collection, key, obj, managers, self.version)
        objects = self._objects.setdefault(collection, {})
        before = objects.get(key)
        self._publish(StorageEvent(self.version, before, stored))
        objects[key] = stored
        self._index(before, stored)
        return stored

    def remove(self, collection: GroupResource, key: ObjectKey) -> StoredObject:
        """Remove an object and return its last state.

        The state has the resourceVersion of the removal.
        """
        self.version += 1
        before = self._objects[collection].pop(key)
        self._publish(StorageEvent(self.version, before, None))
        self._index(before, None)
        self._removed.append(before)
        return before.with_version(self.version)

    def _index(self, before: StoredObject | None, after: StoredObject | None) -> None:
        if before is not None:
            for uid in before.owner_uids:
                self._dependents[uid].pop(before.uid, None)
            if after is None:
                self._by_uid.pop(before.uid, None)
                self._deleting.pop(before.uid, None)
        if after is not None:
            for uid in after.owner_uids:
                self._dependents.setdefault(uid, {})[after.uid] = None
            self._by_uid[after.uid] = after
            if after.is_deleting:
                self._deleting[after.uid] = None

    def dependents(self, uid: str) -> list[StoredObject]:
        """Return the objects with an ownerReference to ``uid``."""
        return [self._by_uid[u] for u in self._dependents.get(uid, ())]

    def deleting(self) -> list[str]:
        """Return the UIDs of objects with a deletionTimestamp, oldest deletion first."""
        return list(self._deleting)

    def pop_removed(self) -> list[StoredObject]:
        """Return the objects that were removed since the last call."""
        removed, self._removed = self._removed, []
        return removed

    def history(self) -> Iterator[StorageEvent]:
        """Iterate over the changes that compaction kept, in their order."""
        return iter(self._history)

    def events_since(self, version: int) -> tuple[StorageEvent, ...]:
        """Return the changes after ``version`` in their order."""
        newest = itertools.takewhile(lambda event: event.version > version, reversed(self._history))
        return tuple(newest)[::-1]

    def _publish(self, event: StorageEvent) -> None:
        self._history.append(event)
        self.changes[event.collection] += 1
        for subscription in self._subscriptions:
            if subscription.collection == event.collection:
                subscription.push(event)

    def compact(self, version: int | None = None) -> None:
        """Remove the history before ``version``. Defaults to the current version.

        Earlier versions are too old for lists and watches afterwards.
        """
        self.compacted_version = (
            self.version if version is None else max(self.compacted_version, min(version, self.version))
        )
        while self._history and self._history[0].version <= self.compacted_version:
            self._history.popleft()

    def subscribe(self, collection: GroupResource, since: int) -> Subscription:
        """Subscribe to the changes after version ``since``.

        Raises:
            ApiError: 410, the version was compacted.
        """
        if since < self.compacted_version:
            raise failures.resource_version_too_old(since, self.compacted_version)
        backlog = (e for e in self._history if e.version > since and e.collection == collection)
        subscription = Subscription(collection, backlog)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        self._subscriptions.remove(subscription)

    def break_subscriptions(self, collection: GroupResource | None = None) -> int:
        """Break the streams of ``collection`` and return their number.

        Args:
            collection: None for all collections.
        """
        matching = [s for s in self._subscriptions if collection is None or s.collection == collection]
        for subscription in matching:
            subscription.push(WatchBroken())
        return len(matching)
