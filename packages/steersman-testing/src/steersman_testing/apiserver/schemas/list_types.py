"""Uniqueness of items in lists of the types set and map.

Source: ``pkg/apiserver/schema/listtype/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from steersman_testing.apiserver.failures import InvalidFieldError, invalid_value
from steersman_testing.apiserver.schemas.schema_cache import has_keyword
from steersman_testing.apiserver.schemas.validation import format_schema_value
from steersman_testing.apiserver.values import (
    MISSING,
    JsonObject,
    get_array,
    get_field,
    get_object,
    is_list,
    is_map,
    type_of,
)

_has_list_types = has_keyword("x-kubernetes-list-type")


def list_type_errors(value: Any, schema: JsonObject) -> list[InvalidFieldError]:
    """Return the errors for duplicate items in lists within ``value``."""
    return list(_errors(value, schema, ""))


def _errors(value: Any, schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    if not _has_list_types(schema):
        return
    if is_list(value):
        kind = schema.get("x-kubernetes-list-type")
        if kind == "set":
            yield from (_duplicate_error(path, i, value[i]) for i in _duplicate_positions(value))
        elif kind == "map":
            yield from _map_errors(value, get_array(schema, "x-kubernetes-list-map-keys"), path)
        items = schema.get("items")
        if is_map(items):
            for position, item in enumerate(value):
                yield from _errors(item, items, f"{path}[{position}]")
    elif is_map(value):
        additional = schema.get("additionalProperties")
        for name, content in value.items():
            inner = get_object(schema, "properties").get(name)
            if is_map(inner):
                yield from _errors(content, inner, f"{path}.{name}" if path else name)
            elif is_map(additional):
                yield from _errors(content, additional, f"{path}[{name}]")


def _map_errors(value: list[Any], keys: list[str], path: str) -> Iterator[InvalidFieldError]:
    for position, item in enumerate(value):
        if item is not None and not is_map(item):
            yield invalid_value(f"{path}[{position}]", item, "must be an object for an array of list-type map")
            return
    item_keys = [{k: found for k in keys if (found := get_field(item, k)) is not MISSING} for item in value]
    yield from (_duplicate_error(path, i, item_keys[i]) for i in _duplicate_positions(item_keys))


def _duplicate_error(path: str, position: int, item: Any) -> InvalidFieldError:
    return InvalidFieldError(
        f"{path}[{position}]", "FieldValueDuplicate", f"Duplicate value: {format_schema_value(item)}"
    )


def _duplicate_positions(values: list[Any]) -> Iterator[int]:
    """Yield the position of the second occurrence of each value.

    Further occurrences are not reported.
    """
    seen: dict[tuple[Any, Any], int] = {}
    for position, value in enumerate(values):
        compound = is_map(value) or is_list(value)
        key = (type_of(value), msgspec.json.encode(value, order="sorted") if compound else value)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            yield position
