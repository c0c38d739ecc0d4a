"""Reads, changes and writes objects that we do not declare completely."""

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
    """Create the object, or patch it to the result of ``mutate``.

    Prefer ``client.apply``, which needs no read. Use this function for changes that depend on the current state.

    Args:
        client: reads and writes.
        obj: name, namespace, and the initial fields of a new object.
        mutate: returns the desired object for the existing one, or for ``obj`` if none exists. It must not change
            name, namespace and status; changes of the status are not written.

    Returns:
        The stored object, and the operation.

    Raises:
        Conflict: the object has changed since it was read; reconcile again.
        AlreadyExists: the object was created meanwhile; reconcile again.
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
    # The server compares the resourceVersion of the object. A test operation would fail with Invalid, not Conflict.
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": existing.metadata.resource_version}
    return await client.patch(type(obj), obj.key, JsonPatch([*operations, version])), "patched"


def _patchable_fields(obj: Object) -> dict[str, Any]:
    document: dict[str, Any] = to_builtins(obj)
    document.pop("status", None)
    document["metadata"].pop("managedFields", None)
    return document
