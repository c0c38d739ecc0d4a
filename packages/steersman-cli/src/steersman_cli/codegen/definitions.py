"""CustomResourceDefinitions as what is written of them: kinds in their versions, with classes of their structs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from steersman.errors import ConfigurationError
from steersman_cli.codegen.builtins import builtin
from steersman_cli.codegen.markers import unsaid
from steersman_cli.codegen.names import module_name
from steersman_cli.codegen.shapes import class_names, is_struct, shape, structs

Schema = dict[str, Any]

# What every object has, and the class of a kind says by itself.
_OF_OBJECTS = ("apiVersion", "kind", "metadata")
# Names that every module may import.
_IMPORTED = frozenset(
    (
        *("Annotated", "Any", "Literal", "Mapping", "Sequence", "UNSET", "UnsetType"),
        *("ApplyConfiguration", "Duration", "Field", "FrozenDict", "FrozenStruct", "Object", "PrinterColumn"),
        *("Quantity", "QuantityLike", "Rule", "Scale"),
    )
)


@dataclass(frozen=True)
class Struct:
    """A struct that gets a class."""

    name: str
    schema: Schema


@dataclass(frozen=True)
class Kind:
    """One kind in one version."""

    class_name: str
    manifest: Schema
    """The definition."""
    version: Schema
    """As in ``spec.versions`` of it."""
    structs: dict[bytes, Struct] = field(default_factory=dict[bytes, Struct])

    @property
    def names(self) -> Schema:
        return self.manifest["spec"]["names"]

    @property
    def schema(self) -> Schema:
        """Without what every object has."""
        found: Schema = self.version["schema"]["openAPIV3Schema"]
        properties = {n: p for n, p in found.get("properties", {}).items() if n not in _OF_OBJECTS}
        return {**found, "properties": properties}

    def class_of(self, schema: Schema) -> str:
        """The class of a struct within."""
        return self.structs[shape(schema)].name

    @property
    def notes(self) -> Iterator[str]:
        """What of the schema no type can say."""
        found: Schema = self.version["schema"]["openAPIV3Schema"]
        if bounds := found.get("properties", {}).get("metadata", {}).get("properties"):
            yield f"{self.names['kind']}.metadata: bounds on {', '.join(bounds)}"
        yield from _notes(self.schema, self.names["kind"])
        columns = [c["jsonPath"] for c in self.version.get("additionalPrinterColumns", ())]
        if columns and ".metadata.creationTimestamp" not in columns:
            yield f"{self.names['kind']}: columns without an age"


@dataclass(frozen=True)
class Module:
    """The kinds of one group-version."""

    group: str
    version: str
    kinds: tuple[Kind, ...]

    @property
    def name(self) -> str:
        return module_name(self.group, self.version)

    @property
    def class_names(self) -> frozenset[str]:
        structs = (s.name for k in self.kinds for s in k.structs.values())
        return frozenset((*(k.class_name for k in self.kinds), *structs))


def modules_of(manifests: Iterable[Schema]) -> list[Module]:
    """The modules that ``manifests`` become, in the order of their names.

    Raises:
        ConfigurationError: a definition is not of ``apiextensions.k8s.io/v1``, or has no schema, or is there twice.
    """
    found: dict[tuple[str, str], dict[str, tuple[Schema, Schema]]] = {}
    for manifest in manifests:
        name = manifest.get("metadata", {}).get("name", "?")
        if manifest.get("apiVersion") != "apiextensions.k8s.io/v1":
            raise ConfigurationError(
                f"{name} is of {manifest.get('apiVersion')}: only apiextensions.k8s.io/v1 is read"
            )
        for version in manifest["spec"]["versions"]:
            if "openAPIV3Schema" not in version.get("schema", {}):
                raise ConfigurationError(f"{name} has no schema of {version['name']}: there is nothing to write")
            place = found.setdefault((manifest["spec"]["group"], version["name"]), {})
            kind = manifest["spec"]["names"]["kind"]
            if kind in place:
                raise ConfigurationError(f"{kind} of {manifest['spec']['group']}/{version['name']} is there twice")
            place[kind] = manifest, version
    return [_module(*place, found[place]) for place in sorted(found)]


def _module(group: str, version: str, kinds: dict[str, tuple[Schema, Schema]]) -> Module:
    classes = {kind: f"{kind}Kind" if kind in _IMPORTED else kind for kind in sorted(kinds)}
    taken = {*classes.values(), *_IMPORTED}
    written = [_kind(classes[kind], *kinds[kind], taken) for kind in classes]
    return Module(group, version, tuple(written))


def _kind(class_name: str, manifest: Schema, version: Schema, taken: set[str]) -> Kind:
    kind = Kind(class_name, manifest, version)
    found = [
        place
        for name, schema in kind.schema["properties"].items()
        for place in structs(schema, (class_name, name), lambda s: builtin(s) is not None)
    ]
    for key, (name, _, schema) in class_names(found, taken).items():
        kind.structs[key] = Struct(name, schema)
    return kind


def _notes(schema: Schema, path: str) -> Iterator[str]:
    if is_struct(schema) and builtin(schema):
        return
    for told in unsaid(schema):
        yield f"{path}: {told}"
    for name, inner in schema.get("properties", {}).items():
        yield from _notes(inner, f"{path}.{name}")
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(keyword), dict):
            if "default" in schema[keyword]:
                yield f"{path}{mark}: a default of its own"
            yield from _notes(schema[keyword], f"{path}{mark}")
