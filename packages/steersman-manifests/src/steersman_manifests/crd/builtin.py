"""Structural schemas of built-in Kubernetes types, as controller-gen embeds them.

References are inlined. Keywords without a meaning in a structural schema are left out: patch strategies, zero values
that the OpenAPI publishes as defaults, and enums, which grow with each release of Kubernetes.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from steersman.meta.quantity import PATTERN as QUANTITY_PATTERN
from steersman_manifests.crd.errors import RecursiveTypeError, SchemaError
from steersman_manifests.openapi import REFERENCE_PREFIX, published_schemas

Schema = dict[str, Any]

_MACHINERY = "io.k8s.apimachinery.pkg"
_META = f"{_MACHINERY}.apis.meta.v1"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_STRING: Schema = {"type": "string"}
_STRING_MAP: Schema = {"type": "object", "additionalProperties": _STRING}

_INTEGER_OR_STRING: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
INT_OR_STRING: Schema = {**_INTEGER_OR_STRING, "x-kubernetes-int-or-string": True}
QUANTITY: Schema = {**_INTEGER_OR_STRING, "pattern": QUANTITY_PATTERN, "x-kubernetes-int-or-string": True}
PRESERVE_UNKNOWN_FIELDS: Schema = {"x-kubernetes-preserve-unknown-fields": True}
DATE_TIME: Schema = {"type": "string", "format": "date-time"}
EMBEDDED_METADATA: Schema = {
    "type": "object",
    "properties": {
        "annotations": _STRING_MAP,
        "finalizers": {"type": "array", "items": _STRING},
        "labels": _STRING_MAP,
        "name": _STRING,
        "namespace": _STRING,
    },
}
"""The metadata of an embedded object, such as a pod template."""

# Types whose JSON form differs from their Go type.
_TYPE_OVERRIDES: dict[str, Schema] = {
    f"{_MACHINERY}.api.resource.Quantity": QUANTITY,
    f"{_MACHINERY}.util.intstr.IntOrString": INT_OR_STRING,
    f"{_MACHINERY}.runtime.RawExtension": {"type": "object", **PRESERVE_UNKNOWN_FIELDS},
    f"{_META}.FieldsV1": {"type": "object", **PRESERVE_UNKNOWN_FIELDS},
    f"{_META}.Time": DATE_TIME,
    f"{_META}.MicroTime": DATE_TIME,
    f"{_META}.ObjectMeta": EMBEDDED_METADATA,
    f"{_EXTENSIONS}.JSON": PRESERVE_UNKNOWN_FIELDS,
}
_LIST_KEYWORDS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")
_COPIED_KEYWORDS = ("type", "format", "required", *_LIST_KEYWORDS, "x-kubernetes-map-type")


def builtin_schema(name: str, *, descriptions: bool) -> Schema:
    """The schema of the published type ``name``, without references.

    Args:
        descriptions: keep the descriptions of fields.

    Raises:
        SchemaError: Kubernetes does not publish the type.
        RecursiveTypeError: the type contains itself.
    """
    if name not in published_schemas():
        short = name.rpartition(".")[2]
        raise SchemaError(
            f"Kubernetes publishes no schema of {short}: write a struct of the fields that you need, or keep any "
            "with Annotated[FrozenDict[str, Any], Field(preserve_unknown=True)]"
        )
    return _ReferenceInliner(descriptions, ()).inline_type(name)


def _items_have_keys(schema: Schema) -> bool:
    """Return True if each list item always has its keys. The secrets of a ServiceAccount do not."""
    items: Schema = schema.get("items", {})
    properties: Schema = items.get("properties", {})
    keys = schema.get("x-kubernetes-list-map-keys", ())
    return all(key in items.get("required", ()) or "default" in properties[key] for key in keys)


class _ReferenceInliner:
    """Inlines references. ``ancestors`` are the types around the schema."""

    def __init__(self, descriptions: bool, ancestors: tuple[str, ...]) -> None:
        self._descriptions = descriptions
        self._ancestors = ancestors

    def inline_type(self, name: str) -> Schema:
        if name in _TYPE_OVERRIDES:
            return deepcopy(_TYPE_OVERRIDES[name])
        if name in self._ancestors:
            short = name.rpartition(".")[2]
            raise RecursiveTypeError(
                f"{short} contains itself, which no structural schema can express: keep it unchecked, with "
                f"Annotated[{short}, Field(preserve_unknown=True)]"
            )
        return _ReferenceInliner(self._descriptions, (*self._ancestors, name)).inline(published_schemas()[name])

    def inline(self, schema: Schema) -> Schema:
        reference = schema.get("$ref") or next((s["$ref"] for s in schema.get("allOf", ()) if "$ref" in s), None)
        result = self.inline_type(reference.removeprefix(REFERENCE_PREFIX)) if reference else {}
        result |= {key: deepcopy(schema[key]) for key in _COPIED_KEYWORDS if key in schema}
        if self._descriptions and "description" in schema:
            result = {**result, "description": schema["description"]}
        elif not self._descriptions:
            result.pop("description", None)
        if "items" in schema:
            result["items"] = self.inline(schema["items"])
        if "additionalProperties" in schema:
            result["additionalProperties"] = self.inline(schema["additionalProperties"])
        if properties := schema.get("properties"):
            required = schema.get("required", ())
            result["properties"] = {n: self._inline_property(p, n in required) for n, p in properties.items()}
        return result if _items_have_keys(result) else {k: v for k, v in result.items() if k not in _LIST_KEYWORDS}

    def _inline_property(self, schema: Schema, required: bool) -> Schema:
        result = self.inline(schema)
        # The OpenAPI publishes Go's zero value for required fields and structs. It is not an API default.
        default = schema.get("default", {})
        if default != {} and (default or not required):
            result["default"] = deepcopy(default)
        return result
