"""Equality of values as JSON. In Python, 1 equals True; in JSON, it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec


def equal_json(one: object, other: object) -> bool:
    """Return True if both values are equal as JSON."""
    return one is other or (one == other and _same_booleans(one, other))


def _same_booleans(one: Any, other: Any) -> bool:
    """Return True if booleans of equal values are in the same places."""
    if one is other or (type(one) is type(other) and type(one) in (bool, int, float, str)):
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return type(one) is type(other)
    if isinstance(one, msgspec.Struct):
        return all(_same_booleans(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    if isinstance(one, Mapping):
        members = cast("Mapping[Any, Any]", one)
        return all(_same_booleans(value, other[key]) for key, value in members.items())
    if isinstance(one, list | tuple):
        return all(map(_same_booleans, cast("Sequence[Any]", one), other))
    return True
