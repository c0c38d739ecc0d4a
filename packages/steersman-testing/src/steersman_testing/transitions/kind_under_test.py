"""The kind whose objects are changed: its names, its schema, and the fields in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from steersman.crd import definition
from steersman.meta import ApiResource, ObjectKey, Resource
from steersman_testing.apiserver.values import JsonObject, clone, get_array, get_object, is_map
from steersman_testing.transitions.document_paths import DocumentPath, format_path

_NON_SPEC_FIELDS = ("apiVersion", "kind", "metadata", "status")
_MAP_KEY = "a"
OBJECT_NAME = "trial"
"""The name of every object that is explored."""


@dataclass(frozen=True, slots=True)
class Property:
    """A field of the kind.

    Attributes:
        path: where it is; in lists the first item stands for all, in maps the key ``a``.
        schema: what may be there.
        required: whether the object around it needs it.
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
    """A kind, as its CustomResourceDefinition tells.

    Attributes:
        definition: the manifest; conversion webhooks are left out, as all is written in one version.
        resource: the version's names and scope.
        schema: of that version.
    """

    definition: JsonObject
    resource: ApiResource
    schema: JsonObject

    @staticmethod
    def from_kind(kind: type[Resource[Any, Any]] | Mapping[str, Any]) -> KindUnderTest:
        """The subject of a custom resource type, or of the manifest of a definition, in the version that is stored.

        Raises:
            SchemaError: the type cannot be expressed as a definition.
            ValueError: the manifest stores no version with a schema.
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
        """The schema of what a user writes: all but names, metadata and status."""
        fields = {n: p for n, p in get_object(self.schema, "properties").items() if n not in _NON_SPEC_FIELDS}
        required = [n for n in get_array(self.schema, "required") if n in fields]
        return {**self.schema, "properties": fields, "required": required}

    def key(self, namespace: str) -> ObjectKey:
        """The key of the object that is explored."""
        return ObjectKey(namespace if self.resource.namespaced else "", OBJECT_NAME)

    def properties(self) -> list[Property]:
        """All fields at any depth, each after the one that it is in."""
        return list(_properties(self.desired_schema, ()))

    def manifest(self, document: JsonObject, namespace: str) -> JsonObject:
        """The whole object with ``document`` as its content."""
        key = self.key(namespace)
        metadata = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
        names = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata}
        return {**names, **document}

    def desired_content(self, obj: JsonObject) -> JsonObject:
        """What a user wrote of ``obj``, with what the server filled in."""
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
