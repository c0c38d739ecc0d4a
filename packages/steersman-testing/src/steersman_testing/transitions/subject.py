"""The kind whose objects are changed: its names, its schema, and the fields in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from steersman.crd import definition
from steersman.meta import ApiResource, ObjectKey, Resource
from steersman_testing.apiserver.values import JsonObject, clone, is_map, list_at, map_at
from steersman_testing.transitions.paths import Path, shown

_NOT_WANTED = ("apiVersion", "kind", "metadata", "status")
_MAP_KEY = "a"
NAME = "trial"
"""The name of every object that is explored."""


@dataclass(frozen=True, slots=True)
class Property:
    """A field of the kind.

    Attributes:
        path: where it is; in lists the first item stands for all, in maps the key ``a``.
        schema: what may be there.
        required: whether the object around it needs it.
    """

    path: Path
    schema: JsonObject
    required: bool

    @property
    def name(self) -> str:
        """The path as text."""
        return shown(self.path)


@dataclass(frozen=True, slots=True)
class Subject:
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
    def of(kind: type[Resource[Any, Any]] | Mapping[str, Any]) -> Subject:
        """The subject of a custom resource type, or of the manifest of a definition, in the version that is stored.

        Raises:
            SchemaError: the type cannot be expressed as a definition.
            ValueError: the manifest stores no version with a schema.
        """
        manifest: JsonObject = clone(dict(kind)) if isinstance(kind, Mapping) else definition(kind)
        spec = manifest["spec"]
        spec.pop("conversion", None)
        versions: list[JsonObject] = spec["versions"]
        stored = next((v for v in versions if v.get("storage") and map_at(v, "schema")), None)
        if stored is None:
            raise ValueError(f"{manifest['metadata']['name']} stores no version with a schema")
        names = spec["names"]
        namespaced = spec["scope"] == "Namespaced"
        resource = ApiResource(spec["group"], stored["name"], names["kind"], names["plural"], namespaced)
        return Subject(manifest, resource, stored["schema"]["openAPIV3Schema"])

    @property
    def wanted(self) -> JsonObject:
        """The schema of what a user writes: all but names, metadata and status."""
        fields = {n: p for n, p in map_at(self.schema, "properties").items() if n not in _NOT_WANTED}
        required = [n for n in list_at(self.schema, "required") if n in fields]
        return {**self.schema, "properties": fields, "required": required}

    def key(self, namespace: str) -> ObjectKey:
        """The key of the object that is explored."""
        return ObjectKey(namespace if self.resource.namespaced else "", NAME)

    def properties(self) -> list[Property]:
        """All fields at any depth, each after the one that it is in."""
        return list(_properties(self.wanted, ()))

    def manifest(self, document: JsonObject, namespace: str) -> JsonObject:
        """The whole object with ``document`` as its content."""
        key = self.key(namespace)
        metadata = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
        names = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata}
        return {**names, **document}

    def content(self, obj: JsonObject) -> JsonObject:
        """What a user wrote of ``obj``, with what the server filled in."""
        return {n: v for n, v in obj.items() if n not in _NOT_WANTED}


def _properties(schema: JsonObject, path: Path) -> Iterator[Property]:
    required = list_at(schema, "required")
    for name, inner in map_at(schema, "properties").items():
        here = (*path, name)
        yield Property(here, cast("JsonObject", inner), name in required)
        yield from _below(inner, here)


def _below(schema: JsonObject, path: Path) -> Iterator[Property]:
    yield from _properties(schema, path)
    items, values = schema.get("items"), schema.get("additionalProperties")
    if is_map(items):
        yield from _below(items, (*path, 0))
    if is_map(values):
        yield from _below(values, (*path, _MAP_KEY))
