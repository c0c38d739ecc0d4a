"""The schemas of OpenAPI documents, grouped into modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from documents import GROUP_VERSIONS, GVK_KEY, Documents, group_version_kinds

Schema = dict[str, Any]

_META_PREFIX = "io.k8s.apimachinery.pkg.apis.meta.v1"
_CRD_PREFIX = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_OBJECT_META = f"{_META_PREFIX}.ObjectMeta"

# Decoded from responses, but not part of a kind.
_EXTRA_SCHEMAS = tuple(f"{_META_PREFIX}.{name}" for name in ("APIResourceList", "DeleteOptions", "Status"))


@dataclass(frozen=True)
class Struct:
    """One schema with properties."""

    name: str
    """Schema name in the documents, such as ``io.k8s.api.core.v1.Pod``."""
    schema: Schema

    @property
    def class_name(self) -> str:
        return self.name.rsplit(".", 1)[1]

    @property
    def description(self) -> str:
        return self.schema.get("description", "")

    @property
    def required(self) -> frozenset[str]:
        return frozenset(self.schema.get("required", ()))

    @property
    def is_kind(self) -> bool:
        """Return True if the schema is one kind with object metadata."""
        properties = self.schema.get("properties", {})
        kinds = self.schema.get(GVK_KEY, ())
        return len(kinds) == 1 and referenced_name(properties.get("metadata", {})) == _OBJECT_META

    @property
    def properties(self) -> dict[str, Schema]:
        """Properties that become fields: a kind has no ``apiVersion``, ``kind`` and ``metadata``."""
        omitted = {"apiVersion", "kind"} if GVK_KEY in self.schema else set[str]()
        if self.is_kind:
            omitted |= {"metadata"}
        return {k: v for k, v in self.schema.get("properties", {}).items() if k not in omitted}


@dataclass(frozen=True)
class ResourceLocation:
    """The arguments of ``ApiResource`` for a kind."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    parent: str = ""
    """The plural of the parent, if the kind is only a subresource."""


@dataclass
class Module:
    """The structs of one group-version, sorted by name."""

    name: str
    structs: list[Struct] = field(default_factory=list[Struct])


@dataclass
class Api:
    """All schemas of the documents, and the modules to generate."""

    modules: list[Module]
    structs: dict[str, Struct]
    locations: dict[str, ResourceLocation]
    list_map_keys: dict[str, set[str]]
    """Key fields of list items in server-side apply, by struct."""


def referenced_name(schema: Schema) -> str:
    """The name of the schema that ``schema`` references, or empty."""
    ref = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), "")
    return ref.rsplit("/", 1)[-1]


def module_of(name: str) -> str | None:
    """The generated module for the schema ``name``, or None."""
    package = name.rsplit(".", 1)[0]
    if package == _META_PREFIX:
        return "meta_v1"
    if package == _CRD_PREFIX:
        return "apiextensions_v1"
    group, _, version = package.removeprefix("io.k8s.api.").partition(".")
    module = f"{group}_{version}"
    return module if module in GROUP_VERSIONS else None


def build_model(documents: Documents) -> Api:
    """The kinds of ``documents`` and all schemas that they reference."""
    schemas: dict[str, Schema] = {}
    locations: dict[str, ResourceLocation] = {}
    for document in documents.values():
        schemas |= document["components"]["schemas"]
        locations |= _resource_locations(document)
    structs = {name: Struct(name, schema) for name, schema in schemas.items()}
    roots = [n for n, s in structs.items() if s.is_kind and n in _kinds_with_location(structs, locations)]
    found = reachable_schemas([*sorted(roots), *(n for n in _EXTRA_SCHEMAS if n in structs)], structs)
    by_module: dict[str, list[Struct]] = {}
    for name in sorted(found):
        module = module_of(name)
        if module:
            by_module.setdefault(module, []).append(structs[name])
    return Api(
        modules=[Module(name, by_module[name]) for name in sorted(by_module)],
        structs=structs,
        locations={n: locations[_kind_key(structs[n])] for n in roots},
        list_map_keys=_list_map_keys(structs.values()),
    )


def referenced_schemas(schema: Schema) -> Iterator[str]:
    """Names of referenced schemas, also in lists and maps."""
    if name := referenced_name(schema):
        yield name
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from referenced_schemas(schema[inner])


def reachable_schemas(roots: list[str], structs: dict[str, Struct]) -> set[str]:
    """The names of ``roots`` and of all directly or indirectly referenced schemas."""
    found: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        pending += [n for p in structs[name].properties.values() for n in referenced_schemas(p) if n in structs]
        if name.endswith(("JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")):
            pending.append(f"{_CRD_PREFIX}.JSONSchemaProps")
    return found


def _kind_key(struct: Struct) -> str:
    kind = struct.schema[GVK_KEY][0]
    return f"{kind['group']}/{kind['version']}/{kind['kind']}"


def _kinds_with_location(structs: dict[str, Struct], locations: dict[str, ResourceLocation]) -> set[str]:
    return {n for n, s in structs.items() if s.is_kind and _kind_key(s) in locations and module_of(n)}


def _resource_locations(document: dict[str, Any]) -> dict[str, ResourceLocation]:
    """The location of each kind, from the URL paths. A collection takes precedence over a subresource."""
    found: dict[str, ResourceLocation] = {}
    for url, item in sorted(document["paths"].items()):
        segments = [s for s in url.split("/") if s]
        if "watch" in segments or segments[-1].startswith("{"):
            continue
        for kind in group_version_kinds(item):
            namespaced = "{namespace}" in segments
            parent = segments[-3] if segments[-2] == "{name}" else ""
            location = ResourceLocation(
                kind["group"], kind["version"], kind["kind"], segments[-1], namespaced, parent
            )
            key = f"{kind['group']}/{kind['version']}/{kind['kind']}"
            known = found.get(key)
            better = known is None or (known.parent and not parent)
            wider = known is not None and known.parent == parent and namespaced and not known.namespaced
            if better or wider:
                found[key] = location
    return found


def _list_map_keys(structs: Iterable[Struct]) -> dict[str, set[str]]:
    keys: dict[str, set[str]] = {}
    for struct in structs:
        for schema in struct.schema.get("properties", {}).values():
            if schema.get("x-kubernetes-list-type") == "map":
                item = referenced_name(schema["items"])
                keys.setdefault(item, set()).update(schema["x-kubernetes-list-map-keys"])
    return keys
