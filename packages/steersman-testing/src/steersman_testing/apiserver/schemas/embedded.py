"""Embedded objects in custom resources (``x-kubernetes-embedded-resource``).

Source: ``pkg/apiserver/schema/objectmeta`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from steersman_cel.name_validation import dns1035_label_error
from steersman_testing.apiserver.builtin.types import decode_metadata
from steersman_testing.apiserver.failures import InvalidFieldError, format_value, invalid_value, required_value
from steersman_testing.apiserver.go_values import UnmarshalTypeError
from steersman_testing.apiserver.names import validate_metadata
from steersman_testing.apiserver.schemas.schema_cache import has_keyword
from steersman_testing.apiserver.values import MISSING, JsonObject, get_object, is_list, is_map

has_embedded_resource = has_keyword("x-kubernetes-embedded-resource")
"""Predicate for schemas with embedded objects."""


def embedded_objects(value: Any, schema: JsonObject, path: str = "") -> Iterator[tuple[JsonObject, str]]:
    """Yield the embedded objects within ``value`` with their paths."""
    if has_embedded_resource(schema):
        yield from _find_embedded(value, schema, path)


def _find_embedded(value: Any, schema: JsonObject, path: str) -> Iterator[tuple[JsonObject, str]]:
    if is_map(value):
        if schema.get("x-kubernetes-embedded-resource"):
            yield value, path
        additional = schema.get("additionalProperties")
        for name, content in value.items():
            inner = get_object(schema, "properties").get(name)
            if is_map(inner):
                yield from _find_embedded(content, inner, f"{path}.{name}" if path else name)
            elif is_map(additional):
                yield from _find_embedded(content, additional, f"{path}[{name}]")
    elif is_list(value):
        items = schema.get("items")
        if is_map(items):
            for position, item in enumerate(value):
                yield from _find_embedded(item, items, f"{path}[{position}]")


def prune_embedded_metadata(value: Any, schema: JsonObject) -> list[str]:
    """Prune the metadata of embedded objects in place and return pruned paths."""
    unknown: list[str] = []
    for obj, path in embedded_objects(value, schema):
        meta = obj.get("metadata", MISSING)
        if meta is None:
            obj["metadata"] = {}
        elif is_map(meta):
            try:
                found, unknown_fields = decode_metadata(meta)
            except UnmarshalTypeError:
                # The object was stored before the schema declared it as embedded.
                continue
            unknown += [f"{path}.{p}" for p in unknown_fields]
            obj["metadata"] = {k: v for k, v in found.items() if v not in ({}, [])}
    return unknown


def metadata_type_errors(value: Any, schema: JsonObject, path: str = "") -> list[InvalidFieldError]:
    """Return the first type error of embedded objects."""
    for obj, field_path in embedded_objects(value, schema, path):
        for field in ("apiVersion", "kind"):
            if field in obj and not isinstance(obj[field], str):
                return [invalid_value(f"{field_path}.{field}", obj[field], "must be a string")]
        try:
            if obj.get("metadata") is not None:
                decode_metadata(obj["metadata"])
        except UnmarshalTypeError as error:
            text = f"Invalid value: {format_value(obj['metadata'])}: {error}"
            return [InvalidFieldError(f"{field_path}.metadata", "FieldValueInvalid", text)]
    return []


def metadata_errors(value: Any, schema: JsonObject, path: str = "") -> list[InvalidFieldError]:
    """Return the errors of apiVersion, kind and metadata of embedded objects."""
    return [e for obj, field_path in embedded_objects(value, schema, path) for e in _errors(obj, field_path)]


def _errors(obj: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    for field in ("apiVersion", "kind"):
        if field not in obj:
            yield required_value(f"{path}.{field}")
    for field, content in obj.items():
        if field == "apiVersion":
            if not content:
                yield invalid_value(f"{path}.apiVersion", content, "must not be empty")
            elif content.count("/") > 1:
                yield invalid_value(f"{path}.apiVersion", content, f"unexpected GroupVersion string: {content}")
        elif field == "kind":
            if not content:
                yield invalid_value(f"{path}.kind", content, "must not be empty")
            elif problem := dns1035_label_error(content.lower()):
                text = f"may have mixed case, but should otherwise match: {problem}"
                yield invalid_value(f"{path}.kind", content, text)
        elif field == "metadata" and is_map(content):
            yield from _metadata(content, f"{path}.metadata")


def _metadata(meta: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    name = meta.get("name") or "fakename"
    # Names are validated as path segments.
    if name in (".", ".."):
        yield invalid_value(f"{path}.name", name, f"may not be '{name}'")
    elif found := re.search("[/%]", name):
        yield invalid_value(f"{path}.name", name, f"may not contain '{found[0]}'")
    for error in validate_metadata("", {**meta, "name": "fakename"}, custom=True):
        yield error._replace(path=error.path.replace("metadata", path, 1))
