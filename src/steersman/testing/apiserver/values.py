"""JSON as Python holds it: narrowing for the type checker, and copies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeGuard, cast

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


def type_of(value: object) -> Any:
    """The type of ``value``, whatever is known of it."""
    return type(value)


def clone(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if is_map(value):
        return {k: clone(v) for k, v in value.items()}
    if is_list(value):
        return [clone(v) for v in value]
    return value


def child(value: Any, name: str) -> Any:
    """``value[name]``, or MISSING where there is no such field."""
    return value.get(name, MISSING) if is_map(value) else MISSING


def map_at(value: Any, name: str) -> JsonObject:
    """``value[name]`` where that is an object, and otherwise an empty one, which is put nowhere."""
    found = child(value, name)
    return found if is_map(found) else {}


def list_at(value: Any, name: str) -> list[Any]:
    """``value[name]`` where that is an array, and otherwise an empty one, which is put nowhere."""
    found = child(value, name)
    return found if is_list(found) else []


def section(obj: JsonObject, name: str) -> JsonObject:
    """``obj[name]`` where that is an object, and otherwise a new object that is put there."""
    found = obj.get(name)
    if not is_map(found):
        found = obj[name] = cast("JsonObject", {})
    return found


def metadata(obj: JsonObject) -> JsonObject:
    """``obj.metadata``, made where there is none."""
    return section(obj, "metadata")


def without_keys(obj: JsonObject, keys: Iterable[str]) -> JsonObject:
    """``obj`` without some of its fields."""
    left_out = set(keys)
    return {k: v for k, v in obj.items() if k not in left_out}


def without_nulls(value: Any) -> Any:
    """``value`` without the fields that are null, as Go's ``omitempty`` leaves them out."""
    if is_map(value):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if is_list(value):
        return [without_nulls(v) for v in value]
    return value
