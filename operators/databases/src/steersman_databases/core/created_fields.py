"""Ownership of the declared fields of objects that this operator created.

A POST and a server-side apply own their fields separately, even with the same field manager. An apply that omits a
field of the POST does not remove it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.meta import Object

T = TypeVar("T", bound=Object)
_SPEC = "f:spec"


async def own_created_spec_by_apply(client: CachedClient, obj: T) -> T:
    """Move the fields of ``spec`` that our POST owns to our applies.

    Other fields, such as finalizers, keep their owner: applies do not declare them.

    Source: ``UpgradeManagedFields`` in ``k8s.io/client-go/util/csaupgrade``.

    Args:
        client: client that created the object and applies it.
        obj: the object, as this client has read it.

    Returns:
        The object, unchanged if no POST of this client owns a field of its ``spec``.

    Raises:
        Conflict: the object was changed or replaced.
    """
    if not any(
        entry.operation == "Update" and not entry.subresource and _SPEC in msgspec.json.decode(entry.fields_v1)
        for entry in obj.metadata.managed_fields
    ):
        return obj
    # A typed object has only the entries of our manager, and a patch replaces the whole list.
    document = msgspec.json.decode(await client.live.raw(type(obj).api_resource.path(obj.key)))
    metadata = {
        "uid": obj.metadata.uid,
        "resourceVersion": document["metadata"]["resourceVersion"],
        "managedFields": _moved(document["metadata"].get("managedFields", []), client.live.field_manager),
    }
    return await client.patch(type(obj), obj.key, MergePatch({"metadata": metadata}))


async def has_other_manager(client: CachedClient, obj: Object, *path: str) -> bool:
    """Return True if another client has set this field of ``obj``."""
    # A typed object has only the entries of our manager.
    document = msgspec.json.decode(await client.live.raw(type(obj).api_resource.path(obj.key)))
    for entry in document["metadata"].get("managedFields", []):
        fields: dict[str, Any] = entry["fieldsV1"]
        for name in path[:-1]:
            fields = fields.get(f"f:{name}", {})
        if entry["manager"] != client.live.field_manager and f"f:{path[-1]}" in fields:
            return True
    return False


def _moved(entries: list[dict[str, Any]], manager: str) -> list[dict[str, Any]]:
    """Return the entries with the manager's ``spec`` in its entry of applies."""
    kept: list[dict[str, Any]] = []
    applied: dict[str, Any] = {}
    for entry in entries:
        fields = dict(entry["fieldsV1"])
        if entry["manager"] == manager and not entry.get("subresource"):
            names = fields.keys() if entry["operation"] == "Apply" else fields.keys() & {_SPEC}
            if moved := {name: fields.pop(name) for name in tuple(names)}:
                applied = {**entry, "operation": "Apply", "fieldsV1": _union(applied.get("fieldsV1", {}), moved)}
        if fields:
            kept.append({**entry, "fieldsV1": fields})
    return [*kept, applied] if applied else kept


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the union of two field sets in the form of ``fieldsV1``."""
    merged = dict(one)
    for name, children in other.items():
        merged[name] = _union(cast("Mapping[str, Any]", merged.get(name, {})), children)
    return merged
