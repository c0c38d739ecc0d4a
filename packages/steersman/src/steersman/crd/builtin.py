"""Schemas of Kubernetes' own types, as controller-gen embeds them in those of custom resources.

References are resolved, and what says nothing to a structural schema is left out: strategies of patches, the zero
values that the publication gives as defaults, and enums, which grow with each release of Kubernetes.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from steersman.api.openapi import REFERENCE, published
from steersman.crd.errors import ContainsItself, SchemaError
from steersman.meta.quantity import PATTERN as QUANTITY_PATTERN

Schema = dict[str, Any]

_MACHINERY = "io.k8s.apimachinery.pkg"
_META = f"{_MACHINERY}.apis.meta.v1"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}

_EITHER: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
INT_OR_STRING: Schema = {**_EITHER, "x-kubernetes-int-or-string": True}
QUANTITY: Schema = {**_EITHER, "pattern": QUANTITY_PATTERN, "x-kubernetes-int-or-string": True}
ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
MOMENT: Schema = {"type": "string", "format": "date-time"}
EMBEDDED_METADATA: Schema = {
    "type": "object",
    "properties": {
        "annotations": _TEXTS,
        "finalizers": {"type": "array", "items": _TEXT},
        "labels": _TEXTS,
        "name": _TEXT,
        "namespace": _TEXT,
    },
}
"""Of the metadata of an object within another, such as of a template for pods: what a user may write there."""

# What is written in JSON otherwise than its Go type would say.
_KNOWN: dict[str, Schema] = {
    f"{_MACHINERY}.api.resource.Quantity": QUANTITY,
    f"{_MACHINERY}.util.intstr.IntOrString": INT_OR_STRING,
    f"{_MACHINERY}.runtime.RawExtension": {"type": "object", **ANYTHING},
    f"{_META}.FieldsV1": {"type": "object", **ANYTHING},
    f"{_META}.Time": MOMENT,
    f"{_META}.MicroTime": MOMENT,
    f"{_META}.ObjectMeta": EMBEDDED_METADATA,
    f"{_EXTENSIONS}.JSON": ANYTHING,
}
_LISTS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")
_KEPT = ("type", "format", "required", *_LISTS, "x-kubernetes-map-type")


def builtin_schema(name: str, *, descriptions: bool) -> Schema:
    """The schema of the published type ``name``, complete in itself; ``descriptions`` tells whether with its texts.

    Raises:
        SchemaError: Kubernetes does not publish it, or it contains itself.
    """
    if name not in published():
        short = name.rpartition(".")[2]
        raise SchemaError(
            f"Kubernetes publishes no schema of {short}: write a struct of the fields that you need, or keep any "
            "with Annotated[FrozenDict[str, Any], Field(preserve_unknown=True)]"
        )
    return _Inlined(descriptions, ()).named(name)


def _has_keys(schema: Schema) -> bool:
    """Whether the items of a list always have the keys that tell them apart; secrets of ServiceAccounts do not."""
    items: Schema = schema.get("items", {})
    properties: Schema = items.get("properties", {})
    keys = schema.get("x-kubernetes-list-map-keys", ())
    return all(key in items.get("required", ()) or "default" in properties[key] for key in keys)


class _Inlined:
    """A schema without references, below the types ``entered``."""

    def __init__(self, descriptions: bool, entered: tuple[str, ...]) -> None:
        self._descriptions = descriptions
        self._entered = entered

    def named(self, name: str) -> Schema:
        if name in _KNOWN:
            return deepcopy(_KNOWN[name])
        if name in self._entered:
            short = name.rpartition(".")[2]
            raise ContainsItself(
                f"{short} contains itself, which no structural schema can express: keep it unchecked, with "
                f"Annotated[{short}, Field(preserve_unknown=True)]"
            )
        return _Inlined(self._descriptions, (*self._entered, name)).of(published()[name])

    def of(self, schema: Schema) -> Schema:
        reference = schema.get("$ref") or next((s["$ref"] for s in schema.get("allOf", ()) if "$ref" in s), None)
        result = self.named(reference.removeprefix(REFERENCE)) if reference else {}
        result |= {key: deepcopy(schema[key]) for key in _KEPT if key in schema}
        if self._descriptions and "description" in schema:
            result = {**result, "description": schema["description"]}
        elif not self._descriptions:
            result.pop("description", None)
        if "items" in schema:
            result["items"] = self.of(schema["items"])
        if "additionalProperties" in schema:
            result["additionalProperties"] = self.of(schema["additionalProperties"])
        if properties := schema.get("properties"):
            required = schema.get("required", ())
            result["properties"] = {n: self._property(p, n in required) for n, p in properties.items()}
        return result if _has_keys(result) else {k: v for k, v in result.items() if k not in _LISTS}

    def _property(self, schema: Schema, required: bool) -> Schema:
        result = self.of(schema)
        # Of what is required or a struct, the publication gives the zero value of Go: nobody meant it as a default.
        default = schema.get("default", {})
        if default != {} and (default or not required):
            result["default"] = deepcopy(default)
        return result
