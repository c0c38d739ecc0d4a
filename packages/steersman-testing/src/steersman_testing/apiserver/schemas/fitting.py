"""A first look at whether a value fits its schema: it says yes, or that somebody must look closer.

Most objects that are written are valid, and their schemas say plain things. ``validation`` does what the real server
does in its order, for the sake of its errors; that takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman_cel.patterns import compiled
from steersman_testing.apiserver.values import JsonObject, is_map, list_at, map_at, type_of

# What says nothing about values, or what is looked at elsewhere.
_ASIDE = {
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
_SMALL = range(-(2**31), 2**31)
_RANGES = {None: range(-(2**63), 2**63), "int64": range(-(2**63), 2**63), "int32": _SMALL}


def surely_fits(value: Any, schema: JsonObject) -> bool:
    """Whether ``value`` fits ``schema`` beyond doubt; False where it does not, or where ``schema`` says more than is
    understood here."""
    found = _LOOKS.get((type_of(value), schema.get("type")))
    if found is None:
        return False
    understood, look = found
    return schema.keys() <= understood and look(value, schema)


def _object(value: JsonObject, schema: JsonObject) -> bool:
    properties, additional = map_at(schema, "properties"), schema.get("additionalProperties")
    if additional is False:
        return False
    for name, content in value.items():
        inner = properties.get(name, additional)
        if is_map(inner) and not surely_fits(content, inner):
            return False
    return all(name in value for name in list_at(schema, "required"))


def _list(value: list[Any], schema: JsonObject) -> bool:
    items = schema.get("items")
    return not is_map(items) or all(surely_fits(item, items) for item in value)


def _text(value: str, schema: JsonObject) -> bool:
    allowed, pattern = schema.get("enum"), schema.get("pattern")
    return (
        (not allowed or value in allowed)
        and (not pattern or compiled(pattern).search(value) is not None)
        and len(value) >= (schema.get("minLength") or 0)
        and ("maxLength" not in schema or len(value) <= schema["maxLength"])
    )


def _integer(value: int, schema: JsonObject) -> bool:
    fits = _RANGES.get(schema.get("format"))
    least, most = schema.get("minimum", value), schema.get("maximum", value)
    # Bounds that fit no number of 32 bits are an error of their own.
    bounded = all(type(b) is int and (b is value or b in _SMALL) for b in (least, most))
    return fits is not None and value in fits and bounded and least <= value <= most


def _boolean(value: bool, schema: JsonObject) -> bool:
    return True


_Look = Callable[[Any, JsonObject], bool]
_LOOKS: dict[tuple[type, Any], tuple[set[str], _Look]] = {
    (dict, "object"): (_ASIDE | {"properties", "additionalProperties", "required"}, _object),
    (list, "array"): (_ASIDE | {"items"}, _list),
    (str, "string"): (_ASIDE | {"enum", "pattern", "minLength", "maxLength"}, _text),
    (int, "integer"): (_ASIDE | {"format", "minimum", "maximum"}, _integer),
    (bool, "boolean"): (_ASIDE, _boolean),
}
