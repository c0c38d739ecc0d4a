"""Normalization of CRDs, so that equivalent definitions of two generators are equal.

Each function removes one intended difference. docs/reference/controller-gen.md explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from steersman_testing.apiserver.values import is_list, is_map

Schema = dict[str, Any]

_AGE = ".metadata.creationTimestamp"
_QUANTITY = "(([KMGTPE]i)|[numkMGTPE]|"


def normal(manifest: dict[str, Any], *, descriptions: bool = False) -> dict[str, Any]:
    """Normalize ``manifest``."""
    spec = manifest["spec"]
    versions = [_version(v, descriptions) for v in sorted(spec["versions"], key=lambda v: v["name"])]
    annotations = manifest["metadata"].get("annotations", {})
    kept = {k: v for k, v in annotations.items() if k != "controller-gen.kubebuilder.io/version"}
    metadata = {k: v for k, v in {**manifest["metadata"], "annotations": kept}.items() if v}
    return {**manifest, "metadata": metadata, "spec": {**spec, "versions": versions}}


def _version(version: dict[str, Any], descriptions: bool) -> dict[str, Any]:
    schema = version["schema"]["openAPIV3Schema"]
    for change in (_without_zeroes, _conditions, _patterns, _inlined_references, _disks):
        schema = mapped(schema, change)
    if not descriptions:
        schema = mapped(schema, lambda s: {k: v for k, v in s.items() if k != "description"})
    # kubectl shows the age of kinds without columns.
    columns = [c for c in version.get("additionalPrinterColumns", ()) if c["jsonPath"] != _AGE]
    return {**version, "schema": schema, "additionalPrinterColumns": columns}


def mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Apply ``change`` to ``schema`` at each depth, inner schemas first."""
    result = dict(schema)
    if "properties" in result:
        result["properties"] = {name: mapped(inner, change) for name, inner in result["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(result.get(keyword), dict):
            result[keyword] = mapped(result[keyword], change)
    return change(result)


def _without_zeroes(schema: Schema) -> Schema:
    """Remove server defaults, and sort unordered lists."""
    result = dict(schema)
    if "required" in schema:
        result["required"] = sorted(schema["required"])
    if rules := schema.get("x-kubernetes-validations"):
        result["x-kubernetes-validations"] = [{"reason": "FieldValueInvalid", **rule} for rule in rules]
    return result


def _conditions(schema: Schema) -> Schema:
    """Make the time and the message of conditions optional."""
    if "lastTransitionTime" not in schema.get("properties", {}) or "reason" not in schema.get("required", ()):
        return schema
    return {**schema, "required": [r for r in schema["required"] if r not in ("lastTransitionTime", "message")]}


def _patterns(schema: Schema) -> Schema:
    """Remove the patterns of quantities and durations."""
    pattern = schema.get("pattern", "")
    if _QUANTITY in pattern or "µs" in pattern:
        return {k: v for k, v in schema.items() if k != "pattern"}
    return schema


def _inlined_references(schema: Schema) -> Schema:
    """Remove the map type that controller-gen copies from embedded structs."""
    properties = schema.get("properties", {})
    if set(properties) <= {"name", "optional", "items", "defaultMode"} and "name" in properties:
        return {k: v for k, v in schema.items() if k != "x-kubernetes-map-type"}
    return schema


def _disks(schema: Schema) -> Schema:
    """Remove defaults of Azure disks, which controller-gen cannot read from constants."""
    properties = schema.get("properties", {})
    if "cachingMode" not in properties:
        return schema
    shown = {
        n: {k: v for k, v in p.items() if not (n in ("cachingMode", "kind") and k == "default")}
        for n, p in properties.items()
    }
    return {**schema, "properties": shown}


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the differences between two values with their paths."""
    if is_map(one) and is_map(other):
        for key in sorted({*one, *other}):
            if key not in one or key not in other:
                yield f"{path}.{key}: only in {'the second' if key not in one else 'the first'}"
            else:
                yield from differences(one[key], other[key], f"{path}.{key}")
    elif is_list(one) and is_list(other) and len(one) == len(other):
        for position, (here, there) in enumerate(zip(one, other, strict=True)):
            yield from differences(here, there, f"{path}[{position}]")
    elif one != other:
        yield f"{path}: {one!r} and {other!r}"


def same_to_the_server(manifest: dict[str, Any], *, descriptions: bool = False) -> dict[str, Any]:
    """``normal`` without fields that the API server ignores and that types lack."""
    result = normal(manifest, descriptions=descriptions)
    versions: list[dict[str, Any]] = []
    for version in result["spec"]["versions"]:
        schema = mapped(version["schema"], _unnoticed)
        if "required" in schema:
            # Each object has metadata.
            schema["required"] = [name for name in schema["required"] if name != "metadata"]
        schema = {k: v for k, v in schema.items() if v != []}
        versions.append({**version, "schema": schema, "subresources": version.get("subresources", {})})
    spec = {k: v for k, v in result["spec"].items() if k not in ("conversion", "preserveUnknownFields")}
    names: dict[str, Any] = {
        "singular": spec["names"]["kind"].lower(),
        "listKind": f"{spec['names']['kind']}List",
        **spec["names"],
    }
    return {**result, "spec": {**spec, "names": names, "versions": versions}}


def _unnoticed(schema: Schema) -> Schema:
    result = dict(schema)
    if result.get("type") == "integer":
        # Integers default to 64 bits.
        result.setdefault("format", "int64")
    if result.get("x-kubernetes-int-or-string"):
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if result.get("properties") == {}:
        del result["properties"]
    if "required" in result:
        # A field with a default is never absent.
        properties = result.get("properties", {})
        result["required"] = [name for name in result["required"] if "default" not in properties.get(name, {})]
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    return {k: v for k, v in result.items() if v != []}
