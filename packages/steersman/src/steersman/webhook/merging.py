"""A change that was made to a typed object, made to the document that it was read from.

A type drops the fields that it does not know, and does not tell a default from a value that was sent. So what was
changed is found between two typed objects, and then done to the document, which keeps everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import FieldInfo

from steersman.meta import FrozenStruct, Unstructured, to_builtins
from steersman.webhook.fields import struct_fields

_Json = dict[str, Any]


def merged(document: Any, before: Any, after: Any) -> Any:
    """``document`` with what differs between ``before``, which was read from it, and ``after``.

    Nothing of ``document`` is changed in place; parts that stay are shared.
    """
    if before is after:
        return document
    if isinstance(before, Unstructured):
        return to_builtins(after)
    if isinstance(before, FrozenStruct) and type(before) is type(after):
        return _struct(_map(document), before, after)
    if before == after:
        return document
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _mapping(_map(document), cast("_Json", before), cast("_Json", after))
    if isinstance(before, tuple) and isinstance(after, tuple):
        return _items(document, cast("tuple[Any, ...]", before), cast("tuple[Any, ...]", after))
    return to_builtins(after)


def _struct(document: _Json, before: FrozenStruct, after: FrozenStruct) -> _Json:
    result = document
    for field in struct_fields(type(before)):
        was, wanted = getattr(before, field.name), getattr(after, field.name)
        if was is wanted or (was == wanted and not _is_sent(field, was, wanted)):
            continue
        if result is document:
            result = dict(document)
        if wanted is None or wanted is UNSET:
            result.pop(field.encode_name, None)
        else:
            # Written out even where it is the default: left out, the API server would keep what there was.
            result[field.encode_name] = merged(document.get(field.encode_name), was, wanted)
    return result


def _is_sent(field: FieldInfo, was: Any, wanted: Any) -> bool:
    """Whether a struct was absent and is there now, if only as ``{}``: it may be required where it is."""
    return isinstance(wanted, FrozenStruct) and was is field.default and wanted is not field.default


def _mapping(document: _Json, before: _Json, after: _Json) -> _Json:
    kept = {k: v for k, v in document.items() if k in after or k not in before}
    changed = {
        k: merged(document.get(k), before.get(k), v) for k, v in after.items() if k not in before or before[k] != v
    }
    return kept | changed


def _items(document: Any, before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Items are recognised by being equal, by their names, or, in lists of one length, by their places."""
    documents = cast("list[Any]", document) if isinstance(document, list) else []
    if len(documents) != len(before):
        return [to_builtins(item) for item in after]
    left = list(range(len(before)))
    result: list[Any] = []
    for place, item in enumerate(after):
        origin = _origin(item, place, before, left, same_length=len(before) == len(after))
        if origin is None:
            result.append(to_builtins(item))
        else:
            left.remove(origin)
            result.append(merged(documents[origin], before[origin], item))
    return result


def _origin(item: Any, place: int, before: Sequence[Any], left: list[int], *, same_length: bool) -> int | None:
    if place in left and before[place] == item:
        return place
    for other in left:
        if before[other] == item:
            return other
    name = getattr(item, "name", None)
    if name:
        return next((other for other in left if getattr(before[other], "name", None) == name), None)
    return place if same_length and place in left else None


def _map(document: Any) -> _Json:
    return cast("_Json", document) if isinstance(document, dict) else {}
