"""Whole objects within custom resources (``x-kubernetes-embedded-resource``): their apiVersion, kind and metadata.

Source: ``pkg/apiserver/schema/objectmeta`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from steersman.testing.apiserver.failures import FieldError, invalid_value, required, shown
from steersman.testing.apiserver.keywords import Mentions
from steersman.testing.apiserver.names import METADATA_FIELDS, check_metadata, label_problem
from steersman.testing.apiserver.values import JsonObject, is_list, is_map, map_at, type_of

embeds = Mentions("x-kubernetes-embedded-resource")
"""Whether a schema has any embedded object."""
_LISTS = {
    "finalizers": "[]string",
    "managedFields": "[]v1.ManagedFieldsEntry",
    "ownerReferences": "[]v1.OwnerReference",
}
_TEXTS = ("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion")


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
        meta = obj.get("metadata")
        if is_map(meta):
            unknown += [f"{path}.metadata.{name}" for name in meta if name not in METADATA_FIELDS]
            obj["metadata"] = {k: v for k, v in meta.items() if k in METADATA_FIELDS and v not in (None, {}, [])}
    return unknown


def metadata_mismatch(value: Any, schema: JsonObject, path: str = "") -> list[FieldError]:
    """The first place where an embedded object has another JSON type than typed Go."""
    for obj, place in embedded_objects(value, schema, path):
        for field in ("apiVersion", "kind"):
            if field in obj and not isinstance(obj[field], str):
                return [invalid_value(f"{place}.{field}", obj[field], "must be a string")]
        if "metadata" in obj and (problem := undecodable(obj["metadata"])):
            text = f"Invalid value: {shown(obj['metadata'])}: {problem}"
            return [FieldError(f"{place}.metadata", "FieldValueInvalid", text)]
    return []


def undecodable(meta: Any) -> str:
    """Why typed Go cannot read ``meta`` as metadata; empty where it can."""
    if not is_map(meta):
        return f"json: cannot unmarshal {_json_type(meta)} into Go value of type v1.ObjectMeta"
    for field in _TEXTS:
        if not isinstance(meta.get(field, ""), str):
            return _unfit(meta[field], field, "string")
    for field, wanted in _LISTS.items():
        if not is_list(meta.get(field) or []):
            return _unfit(meta[field], field, wanted)
    for field in ("labels", "annotations"):
        values = meta.get(field)
        if values is not None and not is_map(values):
            return _unfit(values, field, "map[string]string")
        for content in map_at(meta, field).values():
            if not isinstance(content, str):
                return _unfit(content, field, "string")
    return ""


def _unfit(value: Any, field: str, wanted: str) -> str:
    return f"json: cannot unmarshal {_json_type(value)} into Go struct field ObjectMeta.{field} of type {wanted}"


def _json_type(value: Any) -> str:
    return {dict: "object", list: "array", str: "string", bool: "bool"}.get(type_of(value), "number")


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
