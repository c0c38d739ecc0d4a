"""The client that reconcilers hold: reads come from the cache, writes go to the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from steersman.cache import Cache, Store
from steersman.client import Client
from steersman.client.encode import kind_of, status_document, with_owner
from steersman.client.managed_fields import apply_would_change
from steersman.client.patch import Patch
from steersman.client.write_options import Propagation
from steersman.controller.apply_cache import ApplyCache
from steersman.errors import ApiError, ConnectionFailed, NotFound, StatusDetails
from steersman.errors import ApiStatus as ApiStatus
from steersman.meta import ApplyConfiguration, Object, ObjectKey, Status, Unstructured, encode

T = TypeVar("T", bound=Object)
UnstructuredT = TypeVar("UnstructuredT", bound=Unstructured)

_SYNC_TIMEOUT_SECONDS = 10.0


class CachedClient:
    """Reads kinds that a controller watches from the cache, and others live. ``live`` reads past the cache.

    A cached read never shows less than what our own writes were answered, ``live``'s included. What others have done
    may be a moment away; so writes carry what they rely on (UID, resource version), or are server-side apply, and
    acting on an old read does no harm.

    What is not here (``scale``, ``evict``, ``logs``, dry runs, …) is a method of ``live``.

    Args:
        live: writes, and reads what is not cached; the cache is its observer.
    """

    def __init__(self, live: Client, cache: Cache) -> None:
        self.live = live
        self._cache = cache
        self._apply_cache = ApplyCache()

    async def get(self, kind: type[T], key: ObjectKey) -> T:
        """The object ``key``.

        Where a kind is cached in some namespaces, or by a selector, what is not among those is not found.

        Raises:
            NotFound: there is none.
            CacheNotSynced: the kind's informer is new, and does not get its first list in ten seconds.
        """
        if not self._cache.has_informer(kind):
            return await self.live.get(kind, key)
        found = (await self._synced_store(kind, key)).get(key)
        if found is None:
            resource = kind.api_resource
            details = StatusDetails(name=key.name, group=resource.group, kind=resource.plural)
            raise NotFound(ApiStatus(f'{resource.plural} "{key.name}" not found', "NotFound", 404, details=details))
        return found

    async def get_or_none(self, kind: type[T], key: ObjectKey) -> T | None:
        """The object ``key``, or None."""
        try:
            return await self.get(kind, key)
        except NotFound:
            return None

    async def get_uncached_if_transformed(self, kind: type[T], key: ObjectKey) -> T | None:
        """As ``find``, but read live where a transform left but a part of it in the cache."""
        if not self._cache.has_transform(kind):
            return await self.get_or_none(kind, key)
        try:
            return await self.live.get(kind, key)
        except NotFound:
            return None

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        owner: Object | None = None,
        index: tuple[str, str] | None = None,
        where: Callable[[T], bool] | None = None,
    ) -> tuple[T, ...]:
        """The objects of ``kind`` to which all of the conditions apply.

        Args:
            namespace: empty for all.
            owner: only those that it controls.
            index: name and value of an index that was declared for a cached kind; finds without looking at all.
            where: only those for which it holds.

        Raises:
            ValueError: ``index`` of a kind that is not cached.
            KeyError: no index of that name was declared.
            CacheNotSynced: as ``get``.
        """
        candidates = await self._list_candidates(kind, namespace, owner, index)
        if namespace:
            candidates = tuple(o for o in candidates if o.metadata.namespace == namespace)
        return candidates if where is None else tuple(o for o in candidates if where(o))

    async def _list_candidates(
        self, kind: type[T], namespace: str, owner: Object | None, index: tuple[str, str] | None
    ) -> tuple[T, ...]:
        uid = owner.metadata.uid if owner is not None else ""
        if self._cache.has_informer(kind):
            store = await self._synced_store(kind)
            candidates = store.by_index(*index) if index else store.by_index("owner", uid) if owner else tuple(store)
        elif index is not None:
            raise ValueError(f"{kind.api_resource.kind} is not cached, so it has no index {index[0]!r}")
        else:
            candidates = (await self.live.list(kind, namespace=namespace)).items
        return tuple(o for o in candidates if _is_controlled_by(uid, o)) if owner is not None else candidates

    async def create(self, obj: T | ApplyConfiguration[T], *, owner: Object | None = None) -> T:
        """As ``Client.create``."""
        return await self.live.create(obj, owner=owner)

    @overload
    async def apply(
        self, config: ApplyConfiguration[T], *, owner: Object | None = None, uid: str = "", force: bool = True
    ) -> T: ...
    @overload
    async def apply(
        self, config: UnstructuredT, *, owner: Object | None = None, uid: str = "", force: bool = True
    ) -> UnstructuredT: ...
    async def apply(self, config: Any, *, owner: Object | None = None, uid: str = "", force: bool = True) -> Any:
        """As ``Client.apply``, but without a request where it is certain that nothing would change.

        Without ``uid``, an object that is cached is meant as it is there: should it be gone when the request arrives,
        which a change of leaders may delay, that is a Conflict, and nothing is made again.
        """
        kind, key = kind_of(config), config.key
        current = await self._cached_object(kind, key) if _can_skip_apply(config) else None
        if current is None or uid not in ("", current.metadata.uid):
            return await self.live.apply(config, owner=owner, uid=uid, force=force)
        document = with_owner(config, owner)
        document["metadata"]["uid"] = current.metadata.uid
        body = encode(document)
        if self._apply_cache.is_current(body, current):
            return current
        if apply_would_change(document, current, self.live.field_manager):
            current = await self.live.apply_encoded(kind, key, body, force=force)
        self._apply_cache.record(body, current)
        return current

    async def apply_status(self, obj: T, status: Status, *, resource_version: str = "") -> T:
        """Apply ``status`` as ``Client.apply_status`` does; skip the request if nothing would change."""
        kind, key = type(obj), obj.key
        document = status_document(obj, status, resource_version)
        current = await self._cached_object(kind, key)
        if (
            current is not None
            and current.metadata.uid == obj.metadata.uid
            and not apply_would_change(document, current, self.live.field_manager, "status")
        ):
            return current
        return await self.live.apply_encoded(kind, key, encode(document), subresource="status")

    async def patch(self, kind: type[T], key: ObjectKey, patch: Patch, *, subresource: str = "") -> T:
        """As ``Client.patch``."""
        return await self.live.patch(kind, key, patch, subresource=subresource)

    async def delete(
        self,
        kind: type[T],
        key: ObjectKey,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
    ) -> T | None:
        """As ``Client.delete``."""
        return await self.live.delete(kind, key, uid=uid, resource_version=resource_version, propagation=propagation)

    async def _synced_store(self, kind: type[T], key: ObjectKey | None = None) -> Store[T]:
        """What is cached of ``kind``, once it can be believed of ``key`` (None: of all)."""
        cache = self._cache
        informer = cache.informer(kind)
        if not informer.has_synced:
            # An informer that was asked for late: all that exists would seem absent.
            await cache.wait_for_sync(_SYNC_TIMEOUT_SECONDS, kind=kind)
        if cache.is_uncertain(kind, key):
            await cache.resolve(kind, key)
        return informer.store

    async def _cached_object(self, kind: type[T], key: ObjectKey) -> T | None:
        """What is cached of ``key``; None where that cannot be believed."""
        if not self._cache.has_informer(kind):
            return None
        if self._cache.is_uncertain(kind, key):
            # Who only ever applies would be in doubt for good: ``scale``, say, is not answered by the object.
            try:
                await self._cache.resolve(kind, key)
            except (ApiError, ConnectionFailed):
                return None
        return self._cache.informer(kind).store.get(key)


def _can_skip_apply(config: object) -> bool:
    """Whether the effect of applying it may be known beforehand.

    That of preconditions is the server's to tell; the client says what is wrong with what cannot be applied at all.
    """
    if isinstance(config, Unstructured):
        return not (config.metadata.uid or config.metadata.resource_version)
    return isinstance(config, ApplyConfiguration)


def _is_controlled_by(uid: str, obj: Object) -> bool:
    reference = obj.controller_reference
    return reference is not None and reference.uid == uid
