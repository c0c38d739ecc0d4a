"""Prevents an apply from taking over foreign objects."""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakKeyDictionary

from steersman.cache.cache import Cache
from steersman.client import Client
from steersman.errors import AlreadyOwned, Invalid, NameConflict, NotFound, NotOwned
from steersman.meta import ApiResource, Object, ObjectKey, metadata_only

_MAX_ENTRIES = 10_000
# The owners whose first apply is in flight. All clients of a cache share them, since each controller has a client.
_RESERVED: WeakKeyDictionary[Cache, dict[tuple[tuple[str, str], ObjectKey], Object]] = WeakKeyDictionary()


class OwnershipCheck:
    """Checks the controller of an object before an apply.

    The check uses the cache if it is complete. Otherwise it reads the metadata of each name once, and remembers the
    UIDs that were applied. A lost entry costs one request.
    """

    def __init__(self, live: Client, cache: Cache) -> None:
        self._live = live
        self._cache = cache
        self._reserved = _RESERVED.setdefault(cache, {})
        self._applied: OrderedDict[tuple[ApiResource, ObjectKey], tuple[str, str]] = OrderedDict()

    def reserve(self, kind: type[Object], key: ObjectKey, owner: Object) -> bool:
        """Reserve a name for ``owner`` during the check and the apply.

        Two owners that apply one name at the same moment would both pass the check.

        Returns:
            True if the caller must call ``release``; False if ``owner`` has reserved the name already.

        Raises:
            AlreadyOwned: another owner of this process has reserved the name.
        """
        name = kind.api_resource.group_resource, key
        if name not in self._reserved:
            self._reserved[name] = owner
            return True
        holder = self._reserved[name]
        if holder.metadata.uid != owner.metadata.uid:
            raise AlreadyOwned(
                f"{kind.api_resource.kind} {key} is being applied by {_name_of(holder)}, and {_name_of(owner)} does"
                " not take it over: rename one of the two"
            )
        return False

    def release(self, kind: type[Object], key: ObjectKey) -> None:
        """Release a reserved name."""
        del self._reserved[kind.api_resource.group_resource, key]

    async def require(self, kind: type[Object], key: ObjectKey, owner: Object, *, adopt: bool) -> bool:
        """Require that ``owner`` controls ``key``, or that it does not exist.

        Args:
            kind: the kind of the object.
            key: the object to apply.
            owner: the controller owner of the apply.
            adopt: allow objects without a controller.

        Returns:
            True if the result was read from the server, so that a successful apply is to be recorded.

        Raises:
            AlreadyOwned: the object has another controller.
            NotOwned: the object has no controller, and ``adopt`` is False.
        """
        for cached_kind in (kind, metadata_only(kind)):
            informer = self._cache.existing_informer(cached_kind)
            if informer is not None and informer.is_complete(key):
                found, is_read = informer.store.get(key), False
                break
        else:
            if self.applied_uid(kind, key, owner):
                return False
            found, is_read = await self._read_metadata(kind, key), True
        if found is not None and not found.is_controlled_by(owner):
            _require_adoptable(kind, found, owner, adopt=adopt)
        return is_read

    def record(self, kind: type[Object], owner: Object, applied: Object) -> None:
        """Record that ``owner`` controls ``applied``."""
        entry = (kind.api_resource, applied.key)
        self._applied[entry] = owner.metadata.uid, applied.metadata.uid
        self._applied.move_to_end(entry)
        if len(self._applied) > _MAX_ENTRIES:
            self._applied.popitem(last=False)

    def applied_uid(self, kind: type[Object], key: ObjectKey, owner: Object) -> str:
        """Return the UID that was recorded for ``key``. Empty if there is none."""
        entry = kind.api_resource, key
        if entry not in self._applied:
            return ""
        owner_uid, uid = self._applied[entry]
        return uid if owner_uid == owner.metadata.uid else ""

    def forget(self, kind: type[Object], key: ObjectKey) -> None:
        """Remove the record of ``key``."""
        self._applied.pop((kind.api_resource, key), None)

    async def _read_metadata(self, kind: type[Object], key: ObjectKey) -> Object | None:
        try:
            return await self._live.get(metadata_only(kind), key)
        except NotFound:
            return None


def already_owned(error: Invalid) -> AlreadyOwned | None:
    """Return AlreadyOwned if the server rejected a second controller, or None.

    Source: ``ValidateOwnerReferences`` in ``k8s.io/apimachinery``.
    """
    if any(c.field == "metadata.ownerReferences" and "Controller set to true" in c.message for c in error.causes):
        return AlreadyOwned(str(error))
    return None


def _require_adoptable(kind: type[Object], found: Object, owner: Object, *, adopt: bool) -> None:
    reference = found.controller_reference
    name = f"{kind.api_resource.kind} {found.key}"
    owner_kind = type(owner).api_resource.kind
    if reference is None:
        if adopt:
            return
        raise NotOwned(
            f"{name} exists without a controller, and {_name_of(owner)} does not take it over: delete it, or "
            f"rename the {owner_kind}"
        )
    raise _other_controller(name, _name_of(owner), f"{reference.kind} {reference.name}")


def _name_of(owner: Object) -> str:
    return f"{type(owner).api_resource.kind} {owner.metadata.name}"


def _other_controller(name: str, owner: str, controller: str) -> NameConflict:
    if owner == controller:
        return AlreadyOwned(
            f"{name} is controlled by an earlier {owner}: wait until the garbage collector has deleted it"
        )
    return AlreadyOwned(f"{name} is controlled by {controller}, not by {owner}: rename one of the two")
