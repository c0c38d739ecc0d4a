"""JSON as Python holds it: narrowing for the type checker."""

from __future__ import annotations

from typing import Any, TypeGuard

JsonObject = dict[str, Any]


def is_map(value: Any) -> TypeGuard[JsonObject]:
    """Whether ``value`` is a JSON object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether ``value`` is a JSON array."""
    return isinstance(value, list)


def map_at(value: Any, name: str) -> JsonObject:
    """``value[name]`` where that is an object, and otherwise an empty one, which is put nowhere."""
    found = value.get(name) if is_map(value) else None
    return found if is_map(found) else {}
