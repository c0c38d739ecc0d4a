"""Finalizers: keep an object until what it stands for is cleaned up. Source: "Finalizers" in the documentation."""

from __future__ import annotations

from typing import TypeVar

from steersman.cache.cached_client import CachedClient
from steersman.client import MergePatch
from steersman.errors import NotFound
from steersman.meta import Object

T = TypeVar("T", bound=Object)


async def add_finalizer(client: CachedClient, obj: T, finalizer: str) -> T:
    """``obj`` with ``finalizer``, which must be there before anything is created that needs cleaning up.

    Raises:
        Conflict: the object changed since it was read; reconcile again.
        Invalid: the object is being deleted.
    """
    if finalizer in obj.metadata.finalizers:
        return obj
    return await _patch_finalizers(client, obj, (*obj.metadata.finalizers, finalizer))


async def remove_finalizer(client: CachedClient, obj: Object, finalizer: str) -> None:
    """Removes ``finalizer``, and with the last one the object; nothing happens if it is gone.

    Raises:
        Conflict: the object changed since it was read; reconcile again.
    """
    if finalizer not in obj.metadata.finalizers:
        return
    try:
        await _patch_finalizers(client, obj, tuple(f for f in obj.metadata.finalizers if f != finalizer))
    except NotFound:
        return


async def _patch_finalizers(client: CachedClient, obj: T, finalizers: tuple[str, ...]) -> T:
    # The version in a merge patch is a precondition that fails with Conflict; a JSON patch's test fails with Invalid.
    metadata = {"resourceVersion": obj.metadata.resource_version, "finalizers": list(finalizers)}
    return await client.patch(type(obj), obj.key, MergePatch({"metadata": metadata}))
