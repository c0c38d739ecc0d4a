"""Detection of server-side applies that would change nothing, from ``managedFields``.

An apply changes nothing under two conditions. Each declared field already has the declared value, and our manager
owns exactly the declared fields. A field that we own and no longer declare would be removed. A declared field that
only another manager owns would become co-owned by our manager.

If the result is uncertain, the apply is sent, since a needless request is harmless and a missing one is not. Examples
are values that the server normalizes, and atomic lists or maps that the server completes with defaults.

Source: "Server-Side Apply" in the Kubernetes documentation, KEP-555, and ``structured-merge-diff`` for ``fieldsV1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import msgspec

from steersman.meta import ManagedFieldsEntry, Object, Quantity, Unstructured, decode_builtins, to_builtins
from steersman.meta.frozen import FrozenStruct

# These fields identify the object. No manager owns them.
_IDENTIFYING_FIELDS = frozenset(("apiVersion", "kind", "metadata"))
_IDENTIFYING_METADATA = frozenset(("name", "namespace", "uid", "resourceVersion"))
_SELF_KEY = "."


def apply_would_change(document: Mapping[str, Any], obj: Object, manager: str, subresource: str = "") -> bool:
    """Return True if applying ``document`` may change ``obj`` or its ownership.

    Args:
        document: apply configuration as JSON types, with apiVersion and kind.
        obj: current object, read by a client whose field manager is ``manager``.
        manager: field manager of the apply.
        subresource: empty, or ``status``.
    """
    entry = _find_entry(obj, manager, subresource)
    if entry is None or entry.api_version != document["apiVersion"]:
        return True
    owned = _decode_fields(entry)
    declared = {k: v for k, v in document.items() if k not in _IDENTIFYING_FIELDS}
    metadata = {k: v for k, v in document["metadata"].items() if k not in _IDENTIFYING_METADATA}
    if metadata:
        declared["metadata"] = metadata
    return not _map_unchanged(declared, owned, obj.content if isinstance(obj, Unstructured) else obj)


def applied_other_version(obj: Object, manager: str) -> bool:
    """Return True if ``manager`` applied the status in another API version."""
    entry = _find_entry(obj, manager, "status")
    return entry is not None and entry.api_version != type(obj).api_resource.api_version


def owned_status_fields(obj: Object, manager: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``fieldsV1`` of the status fields that ``manager`` applied. Empty if there are none.

    If they were applied in another API version, their names may differ. The result then also has all fields of
    ``status`` except those that other managers own, because the server removes fields that lose their last owner.

    Args:
        obj: object with the entries of ``manager``, or of all managers if ``applied_other_version``.
        manager: field manager of the apply.
        status: status of ``obj`` as JSON types.
    """
    entry = _find_entry(obj, manager, "status")
    if entry is None:
        return {}
    owned = _status_fields(entry)
    if not applied_other_version(obj, manager):
        return owned
    foreign = [_status_fields(other) for other in obj.metadata.managed_fields if other is not entry]
    names = {f"f:{name}" for name in status}.difference(*foreign)
    types = {f'k:{{"type":"{each["type"]}"}}' for each in status.get("conditions", ())}
    types = types.difference(*(fields.get("f:conditions", {}) for fields in foreign))
    added: dict[str, Any] = {name: {} for name in names}
    conditions: dict[str, Any] = owned.get("f:conditions", {}) | {key: {} for key in types}
    return added | owned | ({"f:conditions": conditions} if conditions else {})


def without_emptied_maps(declared: Any, owned: Mapping[str, Any]) -> Any:
    """Return ``declared`` without empty maps that have keys in ``owned``.

    The server removes the last key and leaves null, which its validation then rejects. Without the map, the server
    removes it.

    Args:
        declared: value to apply as JSON types.
        owned: node of ``fieldsV1``.
    """
    if isinstance(declared, list):
        unowned: dict[str, Any] = {}
        nodes = [(msgspec.json.decode(name[2:]), node) for name, node in owned.items() if name.startswith("k:")]
        return [
            without_emptied_maps(item, next((node for key, node in nodes if key.items() <= item.items()), unowned))
            for item in cast("list[Any]", declared)
        ]
    if not isinstance(declared, dict):
        return declared
    kept: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", declared).items():
        below = owned.get(f"f:{name}", {})
        value = without_emptied_maps(value, below)
        if value != {} or not below.keys() - {_SELF_KEY}:
            kept[name] = value
    return kept


def _status_fields(entry: ManagedFieldsEntry) -> dict[str, Any]:
    return _decode_fields(entry).get("f:status", {})


def _decode_fields(entry: ManagedFieldsEntry) -> dict[str, Any]:
    return msgspec.json.decode(entry.fields_v1)


def _find_entry(obj: Object, manager: str, subresource: str) -> ManagedFieldsEntry | None:
    found = [
        e
        for e in obj.metadata.managed_fields
        if e.manager == manager and e.operation == "Apply" and e.subresource == subresource
    ]
    return found[0] if len(found) == 1 else None


def _is_unchanged(declared: Any, owned: dict[str, Any], live: Any) -> bool:
    """Return True if ``live`` equals ``declared`` and our ownership matches it.

    ``owned`` is a node of ``fieldsV1``.
    """
    if declared is None:
        return False
    if live is None:
        # Go omits zero values. If another client had removed the field, we would no longer own it.
        return not owned and not declared
    if not owned:
        return _values_equal(declared, live)
    if isinstance(declared, dict):
        return _map_unchanged(cast("dict[str, Any]", declared), owned, live)
    if isinstance(declared, list) and isinstance(live, tuple):
        items, present = cast("list[Any]", declared), cast("tuple[Any, ...]", live)
        if any(name.startswith("k:") for name in owned):
            return _associative_list_unchanged(items, owned, present)
        return _set_unchanged(items, owned, present)
    return False


def _map_unchanged(declared: dict[str, Any], owned: dict[str, Any], live: Any) -> bool:
    owned_count = 0
    for name, value in declared.items():
        children = owned.get(f"f:{name}")
        if children is not None:
            owned_count += 1
            if not _is_unchanged(value, children, _member(live, name)):
                return False
        elif value not in ([], {}) or _member(live, name):
            # In fieldsV1, an empty list whose items have their own owners has no owner.
            return False
    return owned_count == len(owned) - (_SELF_KEY in owned)


def _associative_list_unchanged(declared: list[Any], owned: dict[str, Any], live: tuple[Any, ...]) -> bool:
    """Return True if the declared items are unchanged and in order."""
    if len(owned) - (_SELF_KEY in owned) != len(declared):
        return False
    index = -1
    keys = [(msgspec.json.decode(name[2:]), node) for name, node in owned.items() if name.startswith("k:")]
    for item in declared:
        # A key that the item omits has its default, such as ``protocol: TCP`` of a port.
        matching = [(key, node) for key, node in keys if all(item.get(k, v) == v for k, v in key.items())]
        if len(matching) != 1:
            return False
        key, node = matching[0]
        found = next((i for i, o in enumerate(live) if all(_member(o, k) == v for k, v in key.items())), -1)
        if found <= index or not _is_unchanged(item, node, live[found]):
            return False
        index = found
    return True


def _set_unchanged(declared: list[Any], owned: dict[str, Any], live: tuple[Any, ...]) -> bool:
    """Return True if a set of scalars is unchanged. Each item may have its own owner."""
    owned_values = {name[2:] for name in owned if name.startswith("v:")}
    if owned_values != {msgspec.json.encode(value).decode() for value in declared}:
        return False
    indexes = [live.index(value) if value in live else -1 for value in declared]
    return -1 not in indexes and indexes == sorted(indexes)


def _values_equal(declared: Any, live: Any) -> bool:
    """Return True if ``live`` equals ``declared``, including all nested values."""
    if isinstance(live, FrozenStruct):
        if not isinstance(declared, dict):
            return False
        try:
            return decode_builtins(declared, type(live)) == live
        except msgspec.ValidationError:
            return False
    if isinstance(live, tuple):
        items, present = declared, cast("tuple[Any, ...]", live)
        return (
            isinstance(items, list)
            and len(cast("list[Any]", items)) == len(present)
            and all(map(_values_equal, cast("list[Any]", items), present))
        )
    if isinstance(live, dict):
        members = cast("dict[str, Any]", live)
        return (
            isinstance(declared, dict)
            and declared.keys() == members.keys()
            and all(_values_equal(value, members[name]) for name, value in cast("dict[str, Any]", declared).items())
        )
    if isinstance(live, Quantity):
        return live == Quantity(declared)
    if isinstance(live, str | int | float):
        # In Python, True equals 1. In JSON, it does not.
        return declared == live and isinstance(declared, bool) == isinstance(live, bool)
    return declared == to_builtins(live)


def _member(live: Any, name: str) -> Any:
    if isinstance(live, FrozenStruct):
        attribute = _attributes(type(live)).get(name)
        return None if attribute is None else getattr(live, attribute)
    return cast("dict[str, Any]", live).get(name) if isinstance(live, dict) else None


@cache
def _attributes(kind: type[FrozenStruct]) -> dict[str, str]:
    """Map JSON names to attribute names."""
    return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
