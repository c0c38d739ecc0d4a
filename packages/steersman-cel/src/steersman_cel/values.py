"""JSON as Python holds it: narrowing for the type checker."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

JsonObject = dict[str, Any]


class Missing:
    """The type of ``MISSING``: no value at all, which differs from JSON's ``null``."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


def is_map(value: Any) -> TypeGuard[JsonObject]:
    """Whether ``value`` is a JSON object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether ``value`` is a JSON array."""
    return isinstance(value, list)


def get_object(value: Any, name: str) -> JsonObject:
    """``value[name]`` where that is an object, and otherwise an empty one, which is put nowhere."""
    found = value.get(name) if is_map(value) else None
    return found if is_map(found) else {}


def get_field(value: Any, name: str) -> Any:
    """``value[name]``, or MISSING where there is no such field."""
    return value.get(name, MISSING) if is_map(value) else MISSING


def get_array(value: Any, name: str) -> list[Any]:
    """``value[name]`` where that is an array, and otherwise an empty one, which is put nowhere."""
    found = get_field(value, name)
    return found if is_list(found) else []
