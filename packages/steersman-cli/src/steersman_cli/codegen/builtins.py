"""Detection of built-in Kubernetes types in schemas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from steersman.meta import Condition
from steersman_cli.codegen.names import apply_module_name
from steersman_manifests.crd.builtin import EMBEDDED_METADATA, QUANTITY, builtin_schema
from steersman_manifests.crd.errors import SchemaError
from steersman_manifests.crd.schema import schema_of
from steersman_manifests.openapi import published_schemas

Schema = dict[str, Any]

_API_MODULES = {
    "io.k8s.apimachinery.pkg.apis.meta.v1": "meta_v1",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1": "apiextensions_v1",
}
# Schemas with at least this number of equal fields are the same type.
_MIN_DISTINCTIVE_FIELDS = 4
_REFERENCE_FIELDS = {"name", "optional", "items", "defaultMode"}


class BuiltinType(NamedTuple):
    """Module and name of a framework class and its apply configuration."""

    read: tuple[str, str]
    apply: tuple[str, str]


_META_TYPES = {
    "Condition": BuiltinType(("steersman.meta", "Condition"), ("steersman.api.apply.meta", "Condition")),
    "ObjectMeta": BuiltinType(("steersman.meta", "ObjectMeta"), ("steersman.meta.apply", "TemplateMeta")),
}


def match_builtin(schema: Schema) -> BuiltinType | None:
    """The framework class with the same fields as ``schema``, or None.

    Descriptions decide between several candidates, such as key selectors of Secrets and ConfigMaps, and for structs
    with few fields.
    """
    if "properties" not in schema:
        return None
    candidates = _builtins_by_signature().get(_schema_signature(schema), ())
    if len(candidates) == 1 and len(schema["properties"]) >= _MIN_DISTINCTIVE_FIELDS:
        return candidates[0][1]
    descriptions = _field_descriptions(schema)
    matches = [
        known
        for name, known in candidates
        if any(descriptions.values()) and descriptions == _published_descriptions(name)
    ]
    return matches[0] if len(matches) == 1 else None


@cache
def _builtins_by_signature() -> dict[bytes, tuple[tuple[str, BuiltinType], ...]]:
    found: dict[bytes, tuple[tuple[str, BuiltinType], ...]] = {
        _schema_signature(schema_of(Condition)): (("", _META_TYPES["Condition"]),),
        _schema_signature(EMBEDDED_METADATA): (("", _META_TYPES["ObjectMeta"]),),
    }
    for name in sorted(published_schemas()):
        types = _builtin_types(name)
        schema = _builtin_schema(name) if types else None
        if types is None or schema is None or "properties" not in schema:
            continue
        signature = _schema_signature(schema)
        found[signature] = (*found.get(signature, ()), (name, types))
    return found


def _builtin_schema(name: str) -> Schema | None:
    try:
        return builtin_schema(name, descriptions=False)
    except SchemaError:
        return None


def _builtin_types(name: str) -> BuiltinType | None:
    package, _, kind = name.rpartition(".")
    group, _, version = package.removeprefix("io.k8s.api.").partition(".")
    module = _API_MODULES.get(package, f"{group}_{version}")
    read, apply = (f"steersman.api.{module}", kind), (f"steersman.api.apply.{apply_module_name(module)}", kind)
    if not all(_exists(*place) for place in (read, apply)):
        return None
    return BuiltinType(read, apply)


def _exists(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ModuleNotFoundError:
        return False


def _field_descriptions(schema: Schema) -> dict[str, str]:
    return {n: " ".join(p.get("description", "").split()) for n, p in schema.get("properties", {}).items()}


def _published_descriptions(name: str) -> dict[str, str]:
    return _field_descriptions(published_schemas()[name])


def _is_reference(schema: Schema) -> bool:
    return "name" in schema["properties"] and set(schema["properties"]) <= _REFERENCE_FIELDS


def _schema_signature(schema: Schema) -> bytes:
    """A key that is equal for schemas of the same type. Descriptions are ignored."""
    return msgspec.json.encode(_map_schema(schema, _normalize), order="sorted")


def _normalize(schema: Schema) -> Schema:
    result = {k: v for k, v in schema.items() if k != "description"}
    properties = schema.get("properties", {})
    if "required" in schema:
        # Definitions may make time and message of a condition optional.
        optional = ("lastTransitionTime", "message") if {"lastTransitionTime", "reason"} <= set(properties) else ()
        result["required"] = sorted(name for name in schema["required"] if name not in optional)
    if "properties" in schema and _is_reference(schema):
        # controller-gen copies the map type of an embedded struct.
        result.pop("x-kubernetes-map-type", None)
    if is_quantity(schema):
        result["pattern"] = QUANTITY["pattern"]
    return result


def is_quantity(schema: Schema) -> bool:
    """Return True if the values are quantities such as 10Gi."""
    return bool(schema.get("x-kubernetes-int-or-string")) and "(([KMGTPE]i)|[numkMGTPE]|" in schema.get("pattern", "")


def _map_schema(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    result = dict(schema)
    if "properties" in result:
        result["properties"] = {name: _map_schema(inner, change) for name, inner in result["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(result.get(keyword), dict):
            result[keyword] = _map_schema(result[keyword], change)
    return change(result)
