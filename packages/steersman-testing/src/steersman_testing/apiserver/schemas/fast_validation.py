"""Fast check for values that certainly match their schema.

Most objects are valid and have simple schemas. ``validation`` follows the real server in the order of its errors,
which takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman_cel.patterns import compile_pattern
from steersman_testing.apiserver.values import JsonObject, get_array, get_object, is_map, type_of

# Keywords that do not constrain values, or that other checks handle.
_IGNORED_KEYWORDS = {
    "type",
    "title",
    "description",
    "default",
    "example",
    "externalDocs",
    "nullable",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}
_INT32_RANGE = range(-(2**31), 2**31)
_FORMAT_RANGES = {None: range(-(2**63), 2**63), "int64": range(-(2**63), 2**63), "int32": _INT32_RANGE}


def is_certainly_valid(value: Any, schema: JsonObject) -> bool:
    """Return True if ``value`` certainly matches ``schema``.

    False if it does not match, or if the schema has keywords that are not supported here.
    """
    entry = _VALIDATORS.get((type_of(value), schema.get("type")))
    if entry is None:
        return False
    supported_keywords, is_valid = entry
    return schema.keys() <= supported_keywords and is_valid(value, schema)


def _object_is_valid(value: JsonObject, schema: JsonObject) -> bool:
    properties, additional = get_object(schema, "properties"), schema.get("additionalProperties")
    if additional is False:
        return False
    for name, content in value.items():
        inner = properties.get(name, additional)
        if is_map(inner) and not is_certainly_valid(content, inner):
            return False
    return all(name in value for name in get_array(schema, "required"))


def _list_is_valid(value: list[Any], schema: JsonObject) -> bool:
    items = schema.get("items")
    return not is_map(items) or all(is_certainly_valid(item, items) for item in value)


def _string_is_valid(value: str, schema: JsonObject) -> bool:
    allowed, pattern = schema.get("enum"), schema.get("pattern")
    return (
        (not allowed or value in allowed)
        and (not pattern or compile_pattern(pattern).search(value) is not None)
        and len(value) >= (schema.get("minLength") or 0)
        and ("maxLength" not in schema or len(value) <= schema["maxLength"])
    )


def _integer_is_valid(value: int, schema: JsonObject) -> bool:
    value_range = _FORMAT_RANGES.get(schema.get("format"))
    minimum, maximum = schema.get("minimum", value), schema.get("maximum", value)
    # Bounds outside of int32 are an error of their own.
    bounds_are_int32 = all(type(b) is int and (b is value or b in _INT32_RANGE) for b in (minimum, maximum))
    return value_range is not None and value in value_range and bounds_are_int32 and minimum <= value <= maximum


def _boolean_is_valid(value: bool, schema: JsonObject) -> bool:
    return True


_Validator = Callable[[Any, JsonObject], bool]
_VALIDATORS: dict[tuple[type, Any], tuple[set[str], _Validator]] = {
    (dict, "object"): (_IGNORED_KEYWORDS | {"properties", "additionalProperties", "required"}, _object_is_valid),
    (list, "array"): (_IGNORED_KEYWORDS | {"items"}, _list_is_valid),
    (str, "string"): (_IGNORED_KEYWORDS | {"enum", "pattern", "minLength", "maxLength"}, _string_is_valid),
    (int, "integer"): (_IGNORED_KEYWORDS | {"format", "minimum", "maximum"}, _integer_is_valid),
    (bool, "boolean"): (_IGNORED_KEYWORDS, _boolean_is_valid),
}
