"""The kind under test: names, schema and fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from steersman.meta import ApiResource, ObjectKey, Resource
from steersman_manifests.crd import definition
from steersman_testing.apiserver.values import JsonObject, clone, get_array, get_object, is_map
from steersman_testing.transitions.document_paths import DocumentPath, format_path

_NON_SPEC_FIELDS = ("apiVersion", "kind", "metadata", "status")
_MAP_KEY = "a"
OBJECT_NAME = "trial"
"""Name of every object under test."""


@dataclass(frozen=True, slots=True)
class Property:
    """A field of the kind.

    Attributes:
        path: path of the field. The first item stands for all items of a list, the key ``a`` for all keys of a map.
        schema: schema of the field.
        required: whether the enclosing object requires it.
    """

    path: DocumentPath
    schema: JsonObject
    required: bool

    @property
    def name(self) -> str:
        """The path as text."""
        return format_path(self.path)


@dataclass(frozen=True, slots=True)
class KindUnderTest:
    """A kind as declared by its CustomResourceDefinition.

    Attributes:
        definition: manifest without conversion webhook, since all requests use one version.
        resource: names and scope of the version.
        schema: schema of the version.
    """

    definition: JsonObject
    resource: ApiResource
    schema: JsonObject

    @staticmethod
    def from_kind(kind: type[Resource[Any, Any]] | Mapping[str, Any]) -> KindUnderTest:
        """Create it from the storage version of a type or manifest.

        Args:
            kind: a custom resource type, or the manifest of a CustomResourceDefinition.

        Raises:
            SchemaError: if the type cannot be expressed as a definition.
            ValueError: if the manifest has no storage version with a schema.
        """
        manifest: JsonObject = clone(dict(kind)) if isinstance(kind, Mapping) else definition(kind)
        spec = manifest["spec"]
        spec.pop("conversion", None)
        versions: list[JsonObject] = spec["versions"]
        stored = next((v for v in versions if v.get("storage") and get_object(v, "schema")), None)
        if stored is None:
            raise ValueError(f"{manifest['metadata']['name']} stores no version with a schema")
        names = spec["names"]
        namespaced = spec["scope"] == "Namespaced"
        resource = ApiResource(spec["group"], stored["name"], names["kind"], names["plural"], namespaced)
        return KindUnderTest(manifest, resource, stored["schema"]["openAPIV3Schema"])

    @property
    def desired_schema(self) -> JsonObject:
        """Schema without apiVersion, kind, metadata and status."""
        fields = {n: p for n, p in get_object(self.schema, "properties").items() if n not in _NON_SPEC_FIELDS}
        required = [n for n in get_array(self.schema, "required") if n in fields]
        return {**self.schema, "properties": fields, "required": required}

    def key(self, namespace: str) -> ObjectKey:
        """Key of the object under test."""
        return ObjectKey(namespace if self.resource.namespaced else "", OBJECT_NAME)

    def properties(self) -> list[Property]:
        """All fields at any depth, in pre-order."""
        return list(_properties(self.desired_schema, ()))

    def manifest(self, document: JsonObject, namespace: str) -> JsonObject:
        """Return the manifest with ``document`` as content."""
        key = self.key(namespace)
        metadata = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
        names = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata}
        return {**names, **document}

    def desired_content(self, obj: JsonObject) -> JsonObject:
        """Return the fields of ``obj`` that a user writes, including defaults."""
        return {n: v for n, v in obj.items() if n not in _NON_SPEC_FIELDS}


def _properties(schema: JsonObject, path: DocumentPath) -> Iterator[Property]:
    required = get_array(schema, "required")
    for name, inner in get_object(schema, "properties").items():
        here = (*path, name)
        yield Property(here, cast("JsonObject", inner), name in required)
        yield from _nested_properties(inner, here)


def _nested_properties(schema: JsonObject, path: DocumentPath) -> Iterator[Property]:
    yield from _properties(schema, path)
    items, values = schema.get("items"), schema.get("additionalProperties")
    if is_map(items):
        yield from _nested_properties(items, (*path, 0))
    if is_map(values):
        yield from _nested_properties(values, (*path, _MAP_KEY))
