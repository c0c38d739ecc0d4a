"""Access to the objects and the history of a server without requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

from steersman.meta import ApiResource, Object, ObjectKey
from steersman_testing.apiserver.definitions.conversion import VersionConverter
from steersman_testing.apiserver.kinds import GroupResource, KindRegistry
from steersman_testing.apiserver.storage import Storage, StorageEvent, StoredObject
from steersman_testing.apiserver.values import JsonObject

T = TypeVar("T", bound=Object)


def gvr_of(resource: ApiResource) -> tuple[str, str, str]:
    """Return group, version and plural name."""
    return resource.group, resource.version, resource.plural


class StorageInspection:
    """Reads the objects of a server and controls its history and watches."""

    def __init__(self, storage: Storage, kinds: KindRegistry, converter: VersionConverter) -> None:
        self._storage = storage
        self._kinds = kinds
        self._converter = converter

    def read(self, kind: type[T], key: ObjectKey) -> T | None:
        """Return the current object ``key``, or None. No request is recorded."""
        resource = kind.api_resource
        stored = self._storage.get(self._collection_of(resource), key)
        return self._from_storage(resource, stored).decode(kind) if stored is not None else None

    def _from_storage(self, resource: ApiResource, stored: StoredObject) -> StoredObject:
        kind = self._kinds.find(*gvr_of(resource))
        if kind is None:
            return stored
        if kind.versions is None:
            return self._converter.from_storage(kind, stored)
        return self._converter.webhook_caller.run_sync(lambda: self._converter.from_storage(kind, stored))

    def read_all(self, kind: type[T], namespace: str = "") -> tuple[T, ...]:
        """Return all objects of ``kind`` in ``namespace``. No request is recorded.

        Args:
            namespace: empty for all namespaces.
        """
        resource = kind.api_resource
        found = self._storage.list(self._collection_of(resource), namespace)
        return tuple(self._from_storage(resource, stored).decode(kind) for stored in found)

    def manifest(self, resource: ApiResource | type[Object], key: ObjectKey) -> JsonObject | None:
        """Return the object ``key`` in wire form with managedFields, or None."""
        api_resource = resource if isinstance(resource, ApiResource) else resource.api_resource
        stored = self._storage.get(self._collection_of(api_resource), key)
        return (
            self._from_storage(api_resource, stored).to_wire(api_resource.api_version) if stored is not None else None
        )

    def manifests(self) -> Iterator[JsonObject]:
        """Iterate over all objects in wire form with managedFields.

        The order is by collection, namespace and name.
        """
        for stored in self._storage.all():
            yield stored.to_wire(stored.object["apiVersion"])

    def change_count(self, exclude: Collection[str] = ()) -> int:
        """Return the number of changes.

        Args:
            exclude: resources whose changes are not counted, such as ``deployments.apps``.
        """
        if not exclude:
            return self._storage.changes.total()
        return sum(n for collection, n in self._storage.changes.items() if collection.qualified not in exclude)

    def history(self) -> Iterator[StorageEvent]:
        """Iterate over all changes in their order."""
        return self._storage.history()

    @property
    def resource_version(self) -> int:
        """The resourceVersion of the last change."""
        return self._storage.version

    def break_watches(self, resource: ApiResource | type[Object] | None = None) -> int:
        """Abort the open watches of ``resource`` as a lost connection does.

        Args:
            resource: None for all resources.

        Returns:
            the number of aborted watches.
        """
        if resource is None:
            return self._storage.break_subscriptions()
        api_resource = resource if isinstance(resource, ApiResource) else resource.api_resource
        return self._storage.break_subscriptions(self._collection_of(api_resource))

    def compact(self, version: int | None = None) -> None:
        """Remove the history before ``version``, as a compaction of etcd does.

        Watches and list pages from earlier versions fail with 410.

        Args:
            version: Defaults to the current version.
        """
        self._storage.compact(version)

    def _collection_of(self, resource: ApiResource) -> GroupResource:
        kind = self._kinds.find(*gvr_of(resource))
        return GroupResource(resource.group, resource.plural) if kind is None else kind.collection
