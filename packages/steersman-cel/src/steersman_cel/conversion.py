"""Conversion of JSON values to CEL values by their schema.

Source: ``pkg/cel/common/values.go`` of ``k8s.io/apiserver``; ``pkg/validation/strfmt/duration.go`` of
``k8s.io/kube-openapi``.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Any

from steersman_cel.errors import not_implemented
from steersman_cel.precision import SUB_MICROSECOND_ERROR, is_sub_microsecond
from steersman_cel.types import escape_identifier
from steersman_cel.values import JsonObject, get_object, is_list, is_map

_DURATION_PATTERN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-zµ]+)")
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_UNIT_ALIASES = {
    **dict.fromkeys(("nano",), "ns"),
    **dict.fromkeys(("micro",), "us"),
    **dict.fromkeys(("milli",), "ms"),
    **dict.fromkeys(("sec",), "s"),
    **dict.fromkeys(("min",), "m"),
    **dict.fromkeys(("hr", "hour"), "h"),
    **dict.fromkeys(("day",), "d"),
    **dict.fromkeys(("wk", "week"), "w"),
}


def to_cel(value: Any, schema: JsonObject, *, root: bool = False) -> Any:
    """Convert ``value`` for CEL.

    Field names are escaped, numbers get the type of the schema, and times are normalized. Object
    metadata is reduced to the names.

    Args:
        value: JSON value.
        schema: schema of the value.
        root: the value is a whole object. Defaults to False.
    """
    if is_map(value):
        return _object_to_cel(value, schema, is_resource=root or bool(schema.get("x-kubernetes-embedded-resource")))
    if is_list(value):
        items = get_object(schema, "items")
        return [to_cel(v, items) for v in value]
    if schema.get("type") == "number" and type(value) is int:
        return float(value)
    if schema.get("type") == "integer" and type(value) is float:
        return int(value)
    if schema.get("type") == "string" and isinstance(value, str):
        return _string_to_cel(value, schema.get("format", ""))
    return value


def _string_to_cel(value: str, form: str) -> Any:
    match form:
        case "byte":
            return base64.b64decode(value)
        case "date":
            return f"{value}T00:00:00Z"
        case "date-time":
            if is_sub_microsecond(value):
                raise not_implemented(SUB_MICROSECOND_ERROR + value)
            moment = datetime.fromisoformat(value.upper())
            return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case "duration":
            seconds = _parse_duration_seconds(value)
            if round(seconds * 10**9) % 1000:
                raise not_implemented(SUB_MICROSECOND_ERROR + value)
            return f"{seconds:.9f}s"
        case _:
            return value


def _parse_duration_seconds(text: str) -> float:
    total = sum(float(n) * _SECONDS[_normalize_unit(unit.lower())] for n, unit in _DURATION_PATTERN.findall(text))
    return -total if text.startswith("-") else total


def _normalize_unit(unit: str) -> str:
    return unit if unit in _SECONDS else next((u for name, u in _UNIT_ALIASES.items() if unit.startswith(name)), "ns")


def _object_to_cel(value: JsonObject, schema: JsonObject, *, is_resource: bool) -> JsonObject:
    properties, additional = get_object(schema, "properties"), schema.get("additionalProperties")
    result: JsonObject = {}
    for name, content in value.items():
        if is_resource and name in ("apiVersion", "kind"):
            result[name] = content
        elif is_resource and name == "metadata":
            result[name] = object_names(content)
        elif name in properties:
            inner: JsonObject = properties[name]
            # A null counts as an absent field.
            if content is not None and (escaped_name := escape_identifier(name)):
                result[escaped_name] = to_cel(content, inner)
        elif is_map(additional):
            result[name] = to_cel(content, additional)
    return result


def object_names(metadata: JsonObject) -> JsonObject:
    """Return the fields of object metadata that rules can read."""
    return {k: metadata[k] for k in ("name", "generateName") if k in metadata}
