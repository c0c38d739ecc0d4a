"""CustomResourceDefinitions as modules of kinds with named structs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from steersman.errors import ConfigurationError
from steersman_cli.codegen.builtins import match_builtin
from steersman_cli.codegen.markers import unsupported_keywords
from steersman_cli.codegen.names import module_name
from steersman_cli.codegen.structs import assign_class_names, find_structs, is_struct, schema_fingerprint

Schema = dict[str, Any]

# Fields of each object, which the base class declares.
_OBJECT_FIELDS = ("apiVersion", "kind", "metadata")
# Names that a generated module may import.
_RESERVED_NAMES = frozenset(
    (
        *("Annotated", "Any", "Literal", "Mapping", "Sequence", "UNSET", "UnsetType"),
        *("ApplyConfiguration", "Duration", "Field", "FrozenDict", "FrozenStruct", "Object", "PrinterColumn"),
        *("Quantity", "QuantityLike", "Rule", "Scale"),
    )
)


@dataclass(frozen=True)
class Struct:
    """A struct with its class name."""

    name: str
    schema: Schema


@dataclass(frozen=True)
class CrdKind:
    """A kind in one version.

    Attributes:
        manifest: the CustomResourceDefinition.
        version: entry of ``spec.versions``.
    """

    class_name: str
    manifest: Schema
    version: Schema
    structs: dict[bytes, Struct] = field(default_factory=dict[bytes, Struct])

    @property
    def names(self) -> Schema:
        return self.manifest["spec"]["names"]

    @property
    def schema(self) -> Schema:
        """The schema without apiVersion, kind and metadata."""
        found: Schema = self.version["schema"]["openAPIV3Schema"]
        properties = {n: p for n, p in found.get("properties", {}).items() if n not in _OBJECT_FIELDS}
        return {**found, "properties": properties}

    def class_name_of(self, schema: Schema) -> str:
        """The class name of a struct of this kind."""
        return self.structs[schema_fingerprint(schema)].name

    @property
    def unsupported_features(self) -> Iterator[str]:
        """Parts of the schema that types cannot express, each with its path."""
        found: Schema = self.version["schema"]["openAPIV3Schema"]
        if bounds := found.get("properties", {}).get("metadata", {}).get("properties"):
            yield f"{self.names['kind']}.metadata: bounds on {', '.join(bounds)}"
        yield from _unsupported_features(self.schema, self.names["kind"])
        columns = [c["jsonPath"] for c in self.version.get("additionalPrinterColumns", ())]
        if columns and ".metadata.creationTimestamp" not in columns:
            yield f"{self.names['kind']}: printer columns without the age"


@dataclass(frozen=True)
class Module:
    """The kinds of one group-version."""

    group: str
    version: str
    kinds: tuple[CrdKind, ...]

    @property
    def name(self) -> str:
        return module_name(self.group, self.version)

    @property
    def class_names(self) -> frozenset[str]:
        structs = (s.name for k in self.kinds for s in k.structs.values())
        return frozenset((*(k.class_name for k in self.kinds), *structs))


def group_into_modules(manifests: Iterable[Schema]) -> list[Module]:
    """Group kinds by group and version, sorted.

    Raises:
        ConfigurationError: a manifest is not of ``apiextensions.k8s.io/v1``, has no schema, or is a duplicate.
    """
    found: dict[tuple[str, str], dict[str, tuple[Schema, Schema]]] = {}
    for manifest in manifests:
        name = manifest.get("metadata", {}).get("name", "?")
        if manifest.get("apiVersion") != "apiextensions.k8s.io/v1":
            raise ConfigurationError(
                f"{name} has the apiVersion {manifest.get('apiVersion')}: convert it to apiextensions.k8s.io/v1"
            )
        for version in manifest["spec"]["versions"]:
            if "openAPIV3Schema" not in version.get("schema", {}):
                raise ConfigurationError(
                    f"{name} has no schema for version {version['name']}: add spec.versions[].schema"
                )
            module_kinds = found.setdefault((manifest["spec"]["group"], version["name"]), {})
            kind = manifest["spec"]["names"]["kind"]
            if kind in module_kinds:
                raise ConfigurationError(
                    f"{kind} of {manifest['spec']['group']}/{version['name']} is declared twice: remove one"
                )
            module_kinds[kind] = manifest, version
    return [_build_module(*place, found[place]) for place in sorted(found)]


def _build_module(group: str, version: str, kinds: dict[str, tuple[Schema, Schema]]) -> Module:
    classes = {kind: f"{kind}Kind" if kind in _RESERVED_NAMES else kind for kind in sorted(kinds)}
    taken = {*classes.values(), *_RESERVED_NAMES}
    kind_models = [_build_kind(classes[kind], *kinds[kind], taken) for kind in classes]
    return Module(group, version, tuple(kind_models))


def _build_kind(class_name: str, manifest: Schema, version: Schema, taken: set[str]) -> CrdKind:
    kind = CrdKind(class_name, manifest, version)
    found = [
        place
        for name, schema in kind.schema["properties"].items()
        for place in find_structs(schema, (class_name, name), lambda s: match_builtin(s) is not None)
    ]
    for key, (name, _, schema) in assign_class_names(found, taken).items():
        kind.structs[key] = Struct(name, schema)
    return kind


def _unsupported_features(schema: Schema, path: str) -> Iterator[str]:
    if is_struct(schema) and match_builtin(schema):
        return
    for feature in unsupported_keywords(schema):
        yield f"{path}: {feature}"
    for name, inner in schema.get("properties", {}).items():
        yield from _unsupported_features(inner, f"{path}.{name}")
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(keyword), dict):
            if "default" in schema[keyword]:
                yield f"{path}{mark}: a default"
            yield from _unsupported_features(schema[keyword], f"{path}{mark}")
