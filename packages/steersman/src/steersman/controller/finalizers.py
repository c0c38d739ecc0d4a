"""Adds and removes finalizers. Source: "Finalizers" in the Kubernetes documentation."""

from __future__ import annotations

from typing import TypeVar

from steersman.cache.cached_client import CachedClient
from steersman.client import MergePatch
from steersman.errors import NotFound
from steersman.meta import Object

T = TypeVar("T", bound=Object)


async def add_finalizer(client: CachedClient, obj: T, finalizer: str) -> T:
    """Add ``finalizer`` to ``obj`` and return it.

    Call it before creating anything that needs cleanup.

    Raises:
        Conflict: the object changed since it was read; reconcile again.
        Invalid: the object is being deleted.
    """
    if finalizer in obj.metadata.finalizers:
        return obj
    return await _patch_finalizers(client, obj, (*obj.metadata.finalizers, finalizer))


async def remove_finalizer(client: CachedClient, obj: Object, finalizer: str) -> None:
    """Remove ``finalizer`` from ``obj``; do nothing if ``obj`` no longer exists.

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
