"""Get, change, write back: for objects that are not ours to declare whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from steersman.cache.cached_client import CachedClient
from steersman.client import JsonPatch
from steersman.meta import Object, to_builtins
from steersman.meta.json_patch import diff

T = TypeVar("T", bound=Object)

OperationResult = Literal["created", "patched", "unchanged"]


async def create_or_patch(client: CachedClient, obj: T, mutate: Callable[[T], T]) -> tuple[T, OperationResult]:
    """Makes the object be as ``mutate`` says: creates it, or sends just the difference.

    Prefer ``client.apply``, which needs no read; this is for changes that depend on what is there.

    Args:
        obj: name and namespace, and what a new object starts from.
        mutate: gives the wanted object, from the one that is there or else from ``obj``. It must leave name,
            namespace and status alone: a difference of status is not written.

    Returns:
        The object as stored, and what was done.

    Raises:
        Conflict: somebody changed the object since it was read; reconcile again.
        AlreadyExists: somebody created it in the meantime; reconcile again.
        ValueError: ``mutate`` changed the name or the namespace.
    """
    existing = await client.get_uncached_if_transformed(type(obj), obj.key)
    desired = mutate(obj if existing is None else existing)
    if desired.key != obj.key:
        raise ValueError(f"mutate made {desired.key} of {obj.key}: an object cannot be renamed")
    if existing is None:
        return await client.create(desired), "created"
    operations = diff(_patchable_fields(existing), _patchable_fields(desired))
    if not operations:
        return existing, "unchanged"
    # The version in the object is compared by the server, and a test operation is not answered by Conflict.
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": existing.metadata.resource_version}
    return await client.patch(type(obj), obj.key, JsonPatch([*operations, version])), "patched"


def _patchable_fields(obj: Object) -> dict[str, Any]:
    document: dict[str, Any] = to_builtins(obj)
    document.pop("status", None)
    document["metadata"].pop("managedFields", None)
    return document
