"""Validation of the defaults in a schema.

Source: ``pkg/apiserver/schema/defaulting/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steersman_cel.validation import has_rules
from steersman_testing.apiserver.failures import InvalidFieldError, format_value
from steersman_testing.apiserver.schemas.embedded import metadata_errors, metadata_type_errors
from steersman_testing.apiserver.schemas.rules import default_rule_errors
from steersman_testing.apiserver.schemas.schema import prune, validate_value
from steersman_testing.apiserver.values import JsonObject, get_object, is_list, is_map

_META_FIELDS = ("metadata", "kind", "apiVersion")


def default_errors(schema: JsonObject, path: str) -> list[InvalidFieldError]:
    """Return the errors of the defaults in a structural schema."""
    return list(_check({**schema, "x-kubernetes-embedded-resource": True}, path, inside_meta=False))


def _check(schema: JsonObject, path: str, *, inside_meta: bool) -> Iterator[InvalidFieldError]:
    resource = bool(schema.get("x-kubernetes-embedded-resource"))
    inside_meta = inside_meta and not resource
    if schema.get("default") is not None:
        yield from _default_errors_at(schema, f"{path}.default", inside_meta=inside_meta)
    if is_map(items := schema.get("items")):
        yield from _check(items, f"{path}.items", inside_meta=inside_meta)
    for name, inner in get_object(schema, "properties").items():
        inner_meta = inside_meta or (resource and name in _META_FIELDS)
        yield from _check(inner, f"{path}.properties[{name}]", inside_meta=inner_meta)


def _default_errors_at(schema: JsonObject, path: str, *, inside_meta: bool) -> Iterator[InvalidFieldError]:
    default = schema["default"]
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if not inside_meta:
        pruned, unknown = prune(default, schema, root=embedded, keep_nulls=True)
        if unknown and pruned != default:
            text = f"Invalid value: {format_value(default)}: must not have unknown fields"
            yield InvalidFieldError(path, "FieldValueInvalid", text)
        metadata_problems = metadata_type_errors(default, schema, path) or metadata_errors(default, schema, path)
        if metadata_problems:
            yield from metadata_problems
            return
    metadata_problems = validate_value(default, _without_int_or_string(schema), path)
    if metadata_problems:
        yield from metadata_problems
    elif has_rules(schema):
        yield from default_rule_errors(default, schema, path)


def _without_int_or_string(schema: Any) -> Any:
    """Remove ``x-kubernetes-int-or-string``, which exempts defaults from type checks."""
    if is_list(schema):
        return [_without_int_or_string(s) for s in schema]
    if not is_map(schema):
        return schema
    return {k: _without_int_or_string(v) for k, v in schema.items() if k != "x-kubernetes-int-or-string"}
