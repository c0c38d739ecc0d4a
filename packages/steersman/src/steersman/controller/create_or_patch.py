"""Get, change, write back: for objects that are not ours to declare whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from steersman.client import JsonPatch
from steersman.controller.client import CachedClient
from steersman.meta import Object, to_builtins
from steersman.meta.difference import difference

T = TypeVar("T", bound=Object)

Outcome = Literal["created", "patched", "unchanged"]


async def create_or_patch(client: CachedClient, blank: T, mutate: Callable[[T], T]) -> tuple[T, Outcome]:
    """Makes the object be as ``mutate`` says: creates it, or sends just the difference.

    Prefer ``client.apply``, which needs no read; this is for changes that depend on what is there.

    Args:
        blank: name and namespace, and what a new object starts from.
        mutate: gives the wanted object, from the one that is there or else from ``blank``. It must leave name,
            namespace and status alone: a difference of status is not written.

    Returns:
        The object as stored, and what was done.

    Raises:
        Conflict: somebody changed the object since it was read; reconcile again.
        AlreadyExists: somebody created it in the meantime; reconcile again.
        ValueError: ``mutate`` changed the name or the namespace.
    """
    present = await client.whole(type(blank), blank.key)
    wanted = mutate(blank if present is None else present)
    if wanted.key != blank.key:
        raise ValueError(f"mutate made {wanted.key} of {blank.key}: an object cannot be renamed")
    if present is None:
        return await client.create(wanted), "created"
    operations = difference(_writable(present), _writable(wanted))
    if not operations:
        return present, "unchanged"
    # The version in the object is compared by the server, and a test operation is not answered by Conflict.
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": present.metadata.resource_version}
    return await client.patch(type(blank), blank.key, JsonPatch([*operations, version])), "patched"


def _writable(obj: Object) -> dict[str, Any]:
    document: dict[str, Any] = to_builtins(obj)
    document.pop("status", None)
    document["metadata"].pop("managedFields", None)
    return document
