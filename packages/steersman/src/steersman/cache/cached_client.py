"""The client of reconcilers: cached reads, direct writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from steersman.cache.apply_cache import ApplyCache
from steersman.cache.cache import Cache
from steersman.cache.informer import Informer
from steersman.cache.optional_informer import OptionalInformer
from steersman.cache.ownership import OwnershipCheck, already_owned
from steersman.client import Client
from steersman.client.discovery import is_served
from steersman.client.encode import kind_of, require_applicable, scoped_key, status_document, with_owner
from steersman.client.managed_fields import apply_would_change
from steersman.client.patch import Patch
from steersman.client.previous_managers import take_over_fields
from steersman.client.write_options import Propagation
from steersman.errors import ApiError, CacheNotSynced, Conflict, ConnectionFailed, Invalid, NotFound, StatusDetails
from steersman.errors import ApiStatus as ApiStatus
from steersman.meta import ApplyConfiguration, Object, ObjectKey, Status, Unstructured, encode

T = TypeVar("T", bound=Object)
UnstructuredT = TypeVar("UnstructuredT", bound=Unstructured)

_SYNC_TIMEOUT_SECONDS = 10.0


class CachedClient:
    """Reads cached kinds from memory and other kinds from the API server.

    A cached read never returns less than the response to our own last write, including the writes of ``live``.
    Changes by other clients may arrive a moment later. Writes must therefore be server-side apply, or carry the UID
    or the resourceVersion that they rely on; then acting on an old read does no harm.

    Other verbs (``scale``, ``evict``, ``logs``, dry runs, …) are methods of ``live``.

    Args:
        live: the client for writes and uncached reads, like ``APIReader`` of controller-runtime. ``cache`` must be
            its observer.
        cache: the cache to read from.
    """

    def __init__(self, live: Client, cache: Cache) -> None:
        self.live = live
        self._cache = cache
        self._apply_cache = ApplyCache()
        self._ownership = OwnershipCheck(live, cache)

    async def get(self, kind: type[T], key: ObjectKey) -> T:
        """Return the object ``key``.

        If the informer has a selector or watches some namespaces only, other objects are not found.

        Raises:
            NotFound: the object does not exist.
            CacheNotSynced: the informer is new, and its first list did not complete in 10 seconds.
        """
        informer = self._cache.existing_informer(kind)
        if informer is None:
            return await self.live.get(kind, key)
        if not informer.progress.has_synced or informer.is_uncertain(key):
            await self._make_current(informer, key)
        found = informer.store.get(key)
        if found is None:
            resource = kind.api_resource
            details = StatusDetails(name=key.name, group=resource.group, kind=resource.plural)
            raise NotFound(ApiStatus(f'{resource.plural} "{key.name}" not found', "NotFound", 404, details=details))
        return found

    async def get_or_none(self, kind: type[T], key: ObjectKey) -> T | None:
        """Return the object ``key``, or None if it does not exist."""
        # Not by means of get(): an exception costs more than the lookup, and reconcilers expect absent objects.
        informer = self._cache.existing_informer(kind)
        if informer is None:
            return await self._get_live_or_none(kind, key)
        if not informer.progress.has_synced or informer.is_uncertain(key):
            await self._make_current(informer, key)
        return informer.store.get(key)

    async def get_uncached_if_transformed(self, kind: type[T], key: ObjectKey) -> T | None:
        """Return the untransformed object ``key``, or None.

        It is read from the API server if the cache has a transform for ``kind``.
        """
        if not self._cache.has_transform(kind):
            return await self.get_or_none(kind, key)
        return await self._get_live_or_none(kind, key)

    async def is_served(self, kind: type[Object]) -> bool:
        """Return True if the API server serves ``kind``.

        The state of an optional kind comes from the cache, which follows discovery within 10 seconds. Other kinds
        cost a request.

        Raises:
            CacheNotSynced: the first discovery of an optional kind did not complete in 10 seconds.
            ApiError, ConnectionFailed: the request failed.
        """
        informer = self._cache.existing_informer(kind)
        if not isinstance(informer, OptionalInformer):
            return await is_served(self.live, kind.api_resource)
        if informer.is_served is None:
            try:
                async with asyncio.timeout(_SYNC_TIMEOUT_SECONDS):
                    await informer.wait_for_discovery()
            except TimeoutError:
                raise CacheNotSynced(f"discovery of {informer.name} did not complete in 10 s") from None
        return informer.is_served is True

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        owner: Object | None = None,
        index: tuple[str, str] | None = None,
        where: Callable[[T], bool] | None = None,
    ) -> tuple[T, ...]:
        """Return the objects of ``kind`` that meet all conditions.

        Args:
            kind: the kind to list.
            namespace: a namespace. Defaults to all namespaces.
            labels: labels that the results have. Defaults to no condition.
            owner: the object that controls the results.
            index: name and value of an index that was declared for a cached kind.
            where: a predicate for the results. It is called for each object that meets the other conditions.

        Raises:
            ValueError: ``index`` is given, and ``kind`` is not cached.
            KeyError: the index was not declared.
            CacheNotSynced: the informer is new, and its first list did not complete in 10 seconds.
        """
        uid = owner.metadata.uid if owner is not None else ""
        informer = self._cache.existing_informer(kind)
        if informer is None:
            if index is not None:
                raise ValueError(f"{kind.api_resource.kind} is not cached, so it has no index {index[0]!r}")
            found = (await self.live.list(kind, namespace=namespace, label_selector=_selector(labels))).items
            is_owner_indexed = False
        else:
            if not informer.progress.has_synced or informer.is_uncertain():
                await self._make_current(informer)
            store, is_owner_indexed = informer.store, index is None
            if index is not None:
                found = store.by_index(*index)
            elif owner is not None:
                found = store.by_index("owner", uid)
            elif namespace:
                found = store.by_index("namespace", namespace)
            else:
                found = tuple(store)
        if owner is not None and not is_owner_indexed:
            found = tuple([o for o in found if o.is_controlled_by(owner)])
        if namespace and (owner is not None or index is not None):
            found = tuple([o for o in found if o.metadata.namespace == namespace])
        if labels and informer is not None:
            required = labels.items()
            found = tuple([o for o in found if required <= o.metadata.labels.items()])
        return found if where is None else tuple([o for o in found if where(o)])

    async def create(self, obj: T | ApplyConfiguration[T], *, owner: Object | None = None) -> T:
        """Create ``obj``: see ``Client.create``."""
        return await self.live.create(obj, owner=owner)

    @overload
    async def apply(
        self,
        config: ApplyConfiguration[T],
        *,
        owner: Object | None = None,
        adopt: bool = False,
        uid: str = "",
        force: bool = True,
    ) -> T: ...
    @overload
    async def apply(
        self,
        config: UnstructuredT,
        *,
        owner: Object | None = None,
        adopt: bool = False,
        uid: str = "",
        force: bool = True,
    ) -> UnstructuredT: ...
    async def apply(
        self,
        config: Any,
        *,
        owner: Object | None = None,
        adopt: bool = False,
        uid: str = "",
        force: bool = True,
    ) -> Any:
        """Apply ``config``, unless it certainly would not change the object.

        See ``Client.apply``. An object that ``owner`` does not control is not taken over.

        If the object is cached, the request carries its UID, and ``uid`` need not be given. If the object is deleted
        before the request arrives, which a change of leaders may delay, the server responds with Conflict instead of
        creating it again.

        The check of the owner uses the cache. For kinds that are not cached, or cached in part, it reads the metadata
        of each object once, which needs the verb get. An object that another client creates between the check and the
        write is taken over if it has no controller.

        Args:
            config: see ``Client.apply``.
            owner: controller owner. The object is deleted together with it.
            adopt: take over an object without a controller. Defaults to False.
            uid: UID that the object must have. Otherwise Conflict is raised and nothing is created.
            force: take over fields that another manager owns. Defaults to True.

        Raises:
            AlreadyOwned: the object has another controller than ``owner``.
            NotOwned: the object exists without a controller, and ``adopt`` is False.
            Conflict: see ``Client.apply``.
        """
        kind = kind_of(config)
        key = scoped_key(kind, config.key)
        if kind.api_resource.namespaced and not key.namespace:
            # Raise before the check of the owner sends a request without the namespace.
            require_applicable(config)
        can_skip = _can_skip_apply(config)
        current = await self._cached_object(kind, key) if can_skip else None
        if owner is None or (current is not None and current.is_controlled_by(owner)):
            return await self._apply(config, kind, key, current, owner=owner, uid=uid, force=force)
        applied_uid = self._ownership.applied_uid(kind, key, owner)
        known_uid = applied_uid if current is None and not uid and can_skip else ""
        # An apply with the UID cannot take over the object of another owner.
        is_reserved = not applied_uid and self._ownership.reserve(kind, key, owner)
        try:
            must_record = await self._ownership.require(kind, key, owner, adopt=adopt)
            applied = await self._apply(config, kind, key, current, owner=owner, uid=uid or known_uid, force=force)
        except Conflict:
            if not known_uid:
                raise
            # The name has another object, or none.
            self._ownership.forget(kind, key)
            return await self.apply(config, owner=owner, adopt=adopt, force=force)
        finally:
            if is_reserved:
                self._ownership.release(kind, key)
        if must_record:
            self._ownership.record(kind, owner, applied)
        return applied

    async def _apply(
        self,
        config: Any,
        kind: type[Any],
        key: ObjectKey,
        current: Any,
        *,
        owner: Object | None,
        uid: str,
        force: bool,
    ) -> Any:
        """Apply ``config`` of ``key``. ``current`` is the cached object, or None."""
        previous = self.live.previous_field_managers
        try:
            if current is None or uid not in ("", current.metadata.uid):
                if previous and not force and (found := await self._get_live_or_none(kind, key)) is not None:
                    # A field of a previous manager with another value would be a conflict.
                    await take_over_fields(self.live, found)
                applied = await self.live.apply(config, owner=owner, uid=uid, force=force)
                if previous and await take_over_fields(self.live, applied) is not applied:
                    applied = await self.live.apply(config, owner=owner, uid=uid, force=force)
                return applied
            if previous:
                current = await take_over_fields(self.live, current)
            owner_id = None if owner is None else (type(owner), owner.key, owner.metadata.uid)
            declaration = encode(config), owner_id
            if self._apply_cache.is_current(declaration, current):
                return current
            document, applied = with_owner(config, owner), current
            document["metadata"]["uid"] = current.metadata.uid
            if apply_would_change(document, current, self.live.field_manager):
                applied = await self.live.apply_encoded(kind, key, encode(document), force=force)
            self._apply_cache.record(declaration, applied)
            return applied
        except Invalid as error:
            if owner is not None and (conflict := already_owned(error)) is not None:
                raise conflict from error
            raise

    async def apply_status(self, obj: T, status: Status, *, resource_version: str = "") -> T:
        """Apply ``status``, unless that certainly changes nothing: see ``Client.apply_status``."""
        kind, key = type(obj), obj.key
        document = status_document(obj, status, resource_version)
        current = await self._cached_object(kind, key)
        if current is not None and self.live.previous_field_managers:
            current = await take_over_fields(self.live, current, "status")
        if (
            current is not None
            and current.metadata.uid == obj.metadata.uid
            and not apply_would_change(document, current, self.live.field_manager, "status")
        ):
            return current
        return await self.live.apply_encoded(kind, key, encode(document), subresource="status")

    async def patch(self, kind: type[T], key: ObjectKey, patch: Patch, *, subresource: str = "") -> T:
        """Patch the object ``key``: see ``Client.patch``."""
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
        """Delete the object ``key``: see ``Client.delete``."""
        return await self.live.delete(kind, key, uid=uid, resource_version=resource_version, propagation=propagation)

    async def _get_live_or_none(self, kind: type[T], key: ObjectKey) -> T | None:
        try:
            return await self.live.get(kind, key)
        except NotFound:
            return None

    async def _make_current(self, informer: Informer[T], key: ObjectKey | None = None) -> None:
        """Wait for the first list, and resolve uncertain objects."""
        if not informer.has_synced:
            # A new informer: every object would appear to be absent.
            await self._cache.wait_for_sync(_SYNC_TIMEOUT_SECONDS, kind=informer.kind)
        if informer.is_uncertain(key):
            await self._cache.resolve(informer.kind, key)

    async def _cached_object(self, kind: type[T], key: ObjectKey) -> T | None:
        """Return the cached object ``key``.

        Return None if it is absent or its state is unknown.
        """
        informer = self._cache.existing_informer(kind)
        if informer is None:
            return None
        if informer.is_uncertain(key):
            # The response to ``scale``, for example, does not contain the object. A reconciler that only applies
            # would never read it, and would send every apply from then on.
            try:
                await self._cache.resolve(kind, key)
            except (ApiError, ConnectionFailed):
                return None
        return informer.store.get(key)


def _can_skip_apply(config: object) -> bool:
    """Return True if the effect of applying ``config`` can be predicted.

    The server must check preconditions, and the client must reject objects that cannot be applied.
    """
    if isinstance(config, Unstructured):
        return not (config.metadata.uid or config.metadata.resource_version)
    return isinstance(config, ApplyConfiguration)


def _selector(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{name}={value}" for name, value in (labels or {}).items())
