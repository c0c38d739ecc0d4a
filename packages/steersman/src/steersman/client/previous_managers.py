"""Moves fields of previous field managers to the current one.

After a rename of an operator, or a change from updates to server-side apply, the previous field manager still owns
what it wrote. A field that the operator no longer declares then stays.

Source: client-go, package ``csaupgrade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from steersman.client.patch import JsonPatch
from steersman.meta import Object

if TYPE_CHECKING:
    from steersman.client.client import Client

T = TypeVar("T", bound=Object)
Entry = dict[str, Any]


async def take_over_fields(client: Client, obj: T, subresource: str = "") -> T:
    """Move the fields of ``client.previous_field_managers`` to ``client.field_manager``.

    Return the new object, or ``obj`` if there is nothing to move. The next apply then removes those that it does not
    declare. Entries of other API versions stay, and finalizers remain without an owner.

    Args:
        obj: current object, as ``client`` has read it.
        subresource: empty, or ``status``.

    Raises:
        Conflict: the object has changed since.
    """
    resource = type(obj).api_resource
    if not any(
        entry.manager in client.previous_field_managers
        and (entry.subresource, entry.api_version) == (subresource, resource.api_version)
        and (entry.manager, entry.operation) != (client.field_manager, "Apply")
        for entry in obj.metadata.managed_fields
    ):
        return obj
    metadata = msgspec.json.decode(await client.raw(resource.path(obj.key)))["metadata"]
    entries = _merged(client, metadata.get("managedFields", []), resource.api_version, subresource)
    if entries is None:
        return obj
    operations = [
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
    ]
    # The API server ignores managedFields in writes to a subresource.
    return await client.patch(type(obj), obj.key, JsonPatch(operations))


def _merged(client: Client, entries: list[Entry], api_version: str, subresource: str) -> list[Entry] | None:
    """Return ``entries`` with those of previous managers merged into our own. None if there are none."""
    candidates = [e for e in entries if e.get("subresource", "") == subresource]
    own = [e for e in candidates if (e["manager"], e["operation"]) == (client.field_manager, "Apply")]
    managers = client.previous_field_managers
    previous = [e for e in candidates if e["manager"] in managers and e["apiVersion"] == api_version and e not in own]
    if not previous or (own and own[0]["apiVersion"] != api_version):
        return None
    fields: Entry = own[0]["fieldsV1"] if own else {}
    for entry in previous:
        fields = _union(fields, _without_finalizers(entry["fieldsV1"]))
    merged = {**(own or previous)[0], "manager": client.field_manager, "operation": "Apply", "fieldsV1": fields}
    return [merged, *(e for e in entries if e not in own and e not in previous)]


def _union(left: Entry, right: Entry) -> Entry:
    return left | {name: _union(left.get(name, {}), fields) for name, fields in right.items()}


def _without_finalizers(fields: Entry) -> Entry:
    # The component that set a finalizer waits for the deletion. An apply must not remove it.
    metadata = {name: owned for name, owned in fields.get("f:metadata", {}).items() if name != "f:finalizers"}
    others = {name: owned for name, owned in fields.items() if name != "f:metadata"}
    return others | ({"f:metadata": metadata} if metadata else {})
