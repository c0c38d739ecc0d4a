"""Comparison of two objects field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from steersman.meta.unstructured import Unstructured

FieldPath: TypeAlias = tuple[str | int, ...]
"""Field names in wire form and list indexes, from the root."""


class FieldDifference(NamedTuple):
    """A field in which two objects differ."""

    path: FieldPath
    old: Any
    new: Any


def field_differences(old: object, new: object, *, absent: Any = None) -> Iterator[FieldDifference]:
    """Compare two objects, and yield the deepest fields that differ.

    Lists are compared by position. Lists of different lengths are one difference. Values of different types differ,
    also ``1`` and ``True``.

    Args:
        old: struct, unstructured object, or JSON value.
        new: struct, unstructured object, or JSON value.
        absent: value of a field that only one object has. Defaults to None.
    """
    return _compare((), old, new, absent)


def _compare(path: FieldPath, old: object, new: object, absent: Any) -> Iterator[FieldDifference]:
    same_type = type(old) is type(new)
    if old is new or (same_type and isinstance(old, msgspec.Struct) and old == new):
        return
    before, after = _children(old), _children(new)
    has_positions = isinstance(old, list | tuple)
    if before is None or after is None or (has_positions and len(before) != len(after)):
        if not same_type or old != new:
            yield FieldDifference(path, old, new)
        return
    for name in dict.fromkeys((*before, *after)):
        yield from _compare((*path, name), before.get(name, absent), after.get(name, absent), absent)


def _children(value: object) -> Mapping[Any, object] | None:
    """Return fields by wire name, or items by index. None for a scalar."""
    if isinstance(value, Unstructured):
        return value.content
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {wire: getattr(value, name) for wire, name in names}
    if isinstance(value, Mapping):
        return cast("Mapping[Any, object]", value)
    if isinstance(value, list | tuple):
        return dict(enumerate(cast("Sequence[object]", value)))
    return None
