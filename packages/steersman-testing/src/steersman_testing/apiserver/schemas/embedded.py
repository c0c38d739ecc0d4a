"""Whole objects within custom resources (``x-kubernetes-embedded-resource``): their apiVersion, kind and metadata.

Source: ``pkg/apiserver/schema/objectmeta`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from steersman_cel.names import label_problem
from steersman_testing.apiserver.builtin.types import conform_metadata
from steersman_testing.apiserver.failures import FieldError, invalid_value, required, shown
from steersman_testing.apiserver.go_values import WrongType
from steersman_testing.apiserver.names import check_metadata
from steersman_testing.apiserver.schemas.keywords import Mentions
from steersman_testing.apiserver.values import MISSING, JsonObject, is_list, is_map, map_at

embeds = Mentions("x-kubernetes-embedded-resource")
"""Whether a schema has any embedded object."""


def embedded_objects(value: Any, schema: JsonObject, path: str = "") -> Iterator[tuple[JsonObject, str]]:
    """The objects within ``value`` that ``schema`` says are whole objects, with their paths."""
    if embeds(schema):
        yield from _embedded(value, schema, path)


def _embedded(value: Any, schema: JsonObject, path: str) -> Iterator[tuple[JsonObject, str]]:
    if is_map(value):
        if schema.get("x-kubernetes-embedded-resource"):
            yield value, path
        additional = schema.get("additionalProperties")
        for name, content in value.items():
            inner = map_at(schema, "properties").get(name)
            if is_map(inner):
                yield from _embedded(content, inner, f"{path}.{name}" if path else name)
            elif is_map(additional):
                yield from _embedded(content, additional, f"{path}[{name}]")
    elif is_list(value):
        items = schema.get("items")
        if is_map(items):
            for position, item in enumerate(value):
                yield from _embedded(item, items, f"{path}[{position}]")


def tidy_metadata(value: Any, schema: JsonObject) -> list[str]:
    """Drops what no metadata has from the embedded objects, in place; returns the paths."""
    unknown: list[str] = []
    for obj, path in embedded_objects(value, schema):
        meta = obj.get("metadata", MISSING)
        if meta is None:
            obj["metadata"] = {}
        elif is_map(meta):
            try:
                found, more = conform_metadata(meta)
            except WrongType:
                # What was stored before the schema said that it is an object.
                continue
            unknown += [f"{path}.{p}" for p in more]
            obj["metadata"] = {k: v for k, v in found.items() if v not in ({}, [])}
    return unknown


def metadata_mismatch(value: Any, schema: JsonObject, path: str = "") -> list[FieldError]:
    """The first place where an embedded object has another JSON type than typed Go."""
    for obj, place in embedded_objects(value, schema, path):
        for field in ("apiVersion", "kind"):
            if field in obj and not isinstance(obj[field], str):
                return [invalid_value(f"{place}.{field}", obj[field], "must be a string")]
        try:
            if obj.get("metadata") is not None:
                conform_metadata(obj["metadata"])
        except WrongType as error:
            text = f"Invalid value: {shown(obj['metadata'])}: {error}"
            return [FieldError(f"{place}.metadata", "FieldValueInvalid", text)]
    return []


def metadata_errors(value: Any, schema: JsonObject, path: str = "") -> list[FieldError]:
    """What is wrong with the embedded objects' apiVersion, kind and metadata."""
    return [e for obj, place in embedded_objects(value, schema, path) for e in _errors(obj, place)]


def _errors(obj: JsonObject, path: str) -> Iterator[FieldError]:
    for field in ("apiVersion", "kind"):
        if field not in obj:
            yield required(f"{path}.{field}")
    for field, content in obj.items():
        if field == "apiVersion":
            if not content:
                yield invalid_value(f"{path}.apiVersion", content, "must not be empty")
            elif content.count("/") > 1:
                yield invalid_value(f"{path}.apiVersion", content, f"unexpected GroupVersion string: {content}")
        elif field == "kind":
            if not content:
                yield invalid_value(f"{path}.kind", content, "must not be empty")
            elif problem := label_problem(content.lower()):
                text = f"may have mixed case, but should otherwise match: {problem}"
                yield invalid_value(f"{path}.kind", content, text)
        elif field == "metadata" and is_map(content):
            yield from _metadata(content, f"{path}.metadata")


def _metadata(meta: JsonObject, path: str) -> Iterator[FieldError]:
    name = meta.get("name") or "fakename"
    # As in a path: all but what would change the path.
    if name in (".", ".."):
        yield invalid_value(f"{path}.name", name, f"may not be '{name}'")
    elif found := re.search("[/%]", name):
        yield invalid_value(f"{path}.name", name, f"may not contain '{found[0]}'")
    for error in check_metadata("", {**meta, "name": "fakename"}, custom=True):
        yield error._replace(path=error.path.replace("metadata", path, 1))
