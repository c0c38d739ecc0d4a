"""Applies the changes of a typed object to its JSON document.

Decoding drops unknown fields, and does not distinguish defaults from values that were sent. The changes are therefore
computed between two typed objects, and applied to the document, which keeps all other fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import FieldInfo

from steersman.meta import FrozenStruct, Unstructured, to_builtins
from steersman.meta.json_equality import equal_json
from steersman.webhook.type_hints import struct_fields

_Json = dict[str, Any]


def merge_changes(document: Any, before: Any, after: Any) -> Any:
    """Apply the differences between ``before``, which was decoded from ``document``, and ``after``.

    ``document`` is not modified. The result shares unchanged parts with it.
    """
    if before is after:
        return document
    if isinstance(before, Unstructured):
        return to_builtins(after)
    if isinstance(before, FrozenStruct) and type(before) is type(after):
        return _merge_struct(_as_mapping(document), before, after)
    if equal_json(before, after):
        return document
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _merge_mapping(_as_mapping(document), cast("_Json", before), cast("_Json", after))
    if isinstance(before, tuple) and isinstance(after, tuple):
        return _merge_items(document, cast("tuple[Any, ...]", before), cast("tuple[Any, ...]", after))
    return to_builtins(after)


def _merge_struct(document: _Json, before: FrozenStruct, after: FrozenStruct) -> _Json:
    result = document
    for field in struct_fields(type(before)):
        old_value, new_value = getattr(before, field.name), getattr(after, field.name)
        if old_value is new_value or (
            equal_json(old_value, new_value) and not _is_newly_present(field, old_value, new_value)
        ):
            continue
        if result is document:
            result = dict(document)
        if new_value is None or new_value is UNSET:
            result.pop(field.encode_name, None)
        else:
            # Defaults are written too: the API server keeps the old value of an omitted field.
            result[field.encode_name] = merge_changes(document.get(field.encode_name), old_value, new_value)
    return result


def _is_newly_present(field: FieldInfo, old_value: Any, new_value: Any) -> bool:
    """Return True if an absent struct was set, even to ``{}``.

    The schema may require it.
    """
    return isinstance(new_value, FrozenStruct) and old_value is field.default and new_value is not field.default


def _merge_mapping(document: _Json, before: _Json, after: _Json) -> _Json:
    unchanged = {k: v for k, v in document.items() if k in after or k not in before}
    changed = {
        k: merge_changes(document.get(k), before.get(k), v)
        for k, v in after.items()
        if k not in before or not equal_json(before[k], v)
    }
    return unchanged | changed


def _merge_items(document: Any, before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Match items by equality, by name, or by index.

    The index counts only if both lists have the same length.
    """
    documents = cast("list[Any]", document) if isinstance(document, list) else []
    if len(documents) != len(before):
        return [to_builtins(item) for item in after]
    unmatched = list(range(len(before)))
    result: list[Any] = []
    for index, item in enumerate(after):
        source_index = _find_source_index(item, index, before, unmatched, same_length=len(before) == len(after))
        if source_index is None:
            result.append(to_builtins(item))
        else:
            unmatched.remove(source_index)
            result.append(merge_changes(documents[source_index], before[source_index], item))
    return result


def _find_source_index(
    item: Any, index: int, before: Sequence[Any], unmatched: list[int], *, same_length: bool
) -> int | None:
    if index in unmatched and equal_json(before[index], item):
        return index
    for other in unmatched:
        if equal_json(before[other], item):
            return other
    name = getattr(item, "name", None)
    if name:
        return next((other for other in unmatched if getattr(before[other], "name", None) == name), None)
    return index if same_length and index in unmatched else None


def _as_mapping(document: Any) -> _Json:
    return cast("_Json", document) if isinstance(document, dict) else {}
