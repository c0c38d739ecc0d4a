"""JSON values in Python, with type guards."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

JsonObject = dict[str, Any]


class Missing:
    """The type of ``MISSING``, which marks an absent value. JSON's null is a value."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


def is_map(value: Any) -> TypeGuard[JsonObject]:
    """Return True if ``value`` is a JSON object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Return True if ``value`` is a JSON array."""
    return isinstance(value, list)


def get_object(value: Any, name: str) -> JsonObject:
    """``value[name]`` if it is an object, else a new empty object."""
    found = value.get(name) if is_map(value) else None
    return found if is_map(found) else {}


def get_field(value: Any, name: str) -> Any:
    """``value[name]``, or MISSING."""
    return value.get(name, MISSING) if is_map(value) else MISSING


def get_array(value: Any, name: str) -> list[Any]:
    """``value[name]`` if it is an array, else a new empty array."""
    found = get_field(value, name)
    return found if is_list(found) else []
