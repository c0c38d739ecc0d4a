"""Validation of values against schemas, except CEL rules, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, cast

from steersman.meta import patterns
from steersman_cel import formats
from steersman_manifests.crd.rules import Schema

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list, tuple),
    "object": (dict,),
}


def value_violations(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """One message per violation in ``value`` (wire form).

    Example: ``.replicas must be at most 9, but is 10``.
    """
    if value is None and schema.get("nullable"):
        return
    if not _has_type(schema, value):
        expected = "integer or string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
        yield f"{_path_or_value(path)} must be of type {expected}, but is {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{_path_or_value(path)} must be one of {', '.join(map(repr, schema['enum']))}, but is {value!r}"
    if isinstance(value, str):
        yield from _check_string(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(schema, value, path)
    elif isinstance(value, list | tuple):
        yield from _check_list(schema, cast("list[Any]", value), path)
    elif isinstance(value, dict):
        yield from _check_map(schema, cast("dict[str, Any]", value), path)


def _path_or_value(path: str) -> str:
    return path or "the value"


def _has_type(schema: Schema, value: Any) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    if "type" not in schema:
        return True
    if isinstance(value, bool):
        return schema["type"] == "boolean"
    if schema["type"] == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[schema["type"]])


def _check_string(schema: Schema, value: str, path: str) -> Iterator[str]:
    yield from _check_size(schema, len(value), "Length", "characters long", path)
    if (pattern := schema.get("pattern")) and not matches(pattern, value):
        yield f"{_path_or_value(path)} must match {pattern}, but is {value!r}"
    format_name = formats.known_format(schema)
    if format_name and not formats.has_format(value, format_name):
        yield f"{_path_or_value(path)} must have the format {format_name}, but is {value!r}"


def matches(pattern: str, value: str) -> bool:
    """Return True if ``pattern`` matches, or Python does not support it."""
    try:
        return patterns.compile_pattern(pattern).search(value) is not None
    except patterns.UnsupportedPattern:
        return True


def _check_number(schema: Schema, value: float, path: str) -> Iterator[str]:
    if "minimum" in schema:
        minimum, strict = schema["minimum"], schema.get("exclusiveMinimum", False)
        if value < minimum or (strict and value == minimum):
            yield (
                f"{_path_or_value(path)} must be {'greater than' if strict else 'at least'} {minimum}, but is {value}"
            )
    if "maximum" in schema:
        maximum, strict = schema["maximum"], schema.get("exclusiveMaximum", False)
        if value > maximum or (strict and value == maximum):
            yield f"{_path_or_value(path)} must be {'less than' if strict else 'at most'} {maximum}, but is {value}"
    if "multipleOf" in schema and Decimal(str(value)) % Decimal(str(schema["multipleOf"])):
        yield f"{_path_or_value(path)} must be a multiple of {schema['multipleOf']}, but is {value}"
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        yield f"{_path_or_value(path)} must fit 32 bits, but is {value}"


def _check_size(schema: Schema, count: int, keyword: str, unit: str, path: str) -> Iterator[str]:
    if count < schema.get(f"min{keyword}", 0):
        yield f"{_path_or_value(path)} must be at least {schema[f'min{keyword}']} {unit}, but is {count}"
    if count > schema.get(f"max{keyword}", count):
        yield f"{_path_or_value(path)} must be at most {schema[f'max{keyword}']} {unit}, but is {count}"


def _check_list(schema: Schema, value: list[Any], path: str) -> Iterator[str]:
    yield from _check_size(schema, len(value), "Items", "items long", path)
    for position, item in enumerate(value):
        yield from value_violations(schema.get("items", {}), item, f"{path}[{position}]")
    identities = [_item_identity(schema, item) for item in value]
    for position, identity in enumerate(identities):
        if identity is not None and identity in identities[:position]:
            yield f"{path}[{position}] is a duplicate: {identity}"


def _item_identity(schema: Schema, item: Any) -> Any:
    """The identity of a list item. None if items need not be unique."""
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return item
        case "map" if isinstance(item, dict):
            mapping = cast("dict[str, Any]", item)
            fields = schema["items"]["properties"]
            return {k: mapping.get(k, fields[k].get("default")) for k in schema["x-kubernetes-list-map-keys"]}
        case _:
            return None


def _check_map(schema: Schema, value: dict[str, Any], path: str) -> Iterator[str]:
    yield from _check_size(schema, len(value), "Properties", "fields", path)
    properties: Schema = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name} is required"
    additional = schema.get("additionalProperties")
    for name, content in value.items():
        inner = properties.get(name, additional)
        if isinstance(inner, dict):
            yield from value_violations(cast("Schema", inner), content, f"{path}.{name}")
