"""Defaulting of values, as in the API server."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

Schema = dict[str, Any]


def with_defaults(schema: Schema, value: Any) -> Any:
    """Add the defaults of ``schema`` to a copy of ``value`` (wire form)."""
    if isinstance(value, list):
        return [_fill_default(schema.get("items", {}), item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    properties: Schema = schema.get("properties", {})
    additional = schema.get("additionalProperties")
    mapping = cast("dict[str, Any]", value)
    result = {
        name: _fill_default(_property_schema(properties, additional, name), content)
        for name, content in mapping.items()
    }
    for name, inner in properties.items():
        if name not in result and "default" in inner:
            result[name] = _fill_default(inner, None)
    return result


def _property_schema(properties: Schema, additional: Any, name: str) -> Schema:
    found = properties.get(name, additional)
    return cast("Schema", found) if isinstance(found, dict) else {}


def _fill_default(schema: Schema, value: Any) -> Any:
    absent = value is None and not schema.get("nullable")
    return with_defaults(schema, deepcopy(schema.get("default")) if absent else value)
