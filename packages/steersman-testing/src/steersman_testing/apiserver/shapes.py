"""Merge strategies of values: associative lists and atomic maps.

Built-in kinds have a table, and custom resources have their schema. Other values are deduced: maps merge, and lists
are atomic.

Source: "Server-Side Apply", section "Merge strategy"; the ``x-kubernetes-list-type``, ``-list-map-keys`` and
``-map-type`` extensions of the published OpenAPI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

from steersman_testing.apiserver.values import JsonObject, is_map

Relation = Literal["granular", "atomic", "set", "map"]


class ListMapKey(NamedTuple):
    """Key field of an associative list, with its default."""

    name: str
    default: Any = None


class Shape(Protocol):
    """Merge strategy of the values at one path.

    Attributes:
        relation: ``granular`` or ``atomic`` for maps. ``map`` or ``set`` for lists, which are atomic otherwise.
        keys: keys of an associative list.
    """

    @property
    def relation(self) -> Relation: ...

    @property
    def keys(self) -> tuple[ListMapKey, ...]: ...

    def field(self, name: str) -> Shape:
        """Return the shape of the field or key ``name``."""
        ...

    def item(self) -> Shape:
        """Return the shape of the items of a list."""
        ...

    def declares(self, name: str) -> bool:
        """Return True if the schema declares the field ``name``.

        Keys of a map are not declared.
        """
        ...


@dataclass(frozen=True, slots=True)
class DeducedShape:
    """Shape without a schema: maps merge, and lists are atomic."""

    relation: Relation = "granular"
    keys: tuple[ListMapKey, ...] = ()

    def field(self, name: str) -> Shape:
        return self

    def item(self) -> Shape:
        return self

    def declares(self, name: str) -> bool:
        return False


DEDUCED = DeducedShape()

_PORT = (ListMapKey("containerPort"), ListMapKey("protocol", "TCP"))
_NAME = (ListMapKey("name"),)

# The longest matching suffix of a path decides. Paths begin with the kind and omit list items.
_LIST_MAP_KEYS: Mapping[tuple[str, ...], tuple[ListMapKey, ...]] = {
    ("metadata", "ownerReferences"): (ListMapKey("uid"),),
    ("conditions",): (ListMapKey("type"),),
    ("containers",): _NAME,
    ("initContainers",): _NAME,
    ("ephemeralContainers",): _NAME,
    ("containers", "ports"): _PORT,
    ("initContainers", "ports"): _PORT,
    ("ephemeralContainers", "ports"): _PORT,
    ("env",): _NAME,
    ("volumes",): _NAME,
    ("volumeMounts",): (ListMapKey("mountPath"),),
    ("volumeDevices",): (ListMapKey("devicePath"),),
    ("spec", "imagePullSecrets"): _NAME,
    ("hostAliases",): (ListMapKey("ip"),),
    ("topologySpreadConstraints",): (ListMapKey("topologyKey"), ListMapKey("whenUnsatisfiable")),
    ("spec", "resourceClaims"): _NAME,
    ("resources", "claims"): _NAME,
    ("schedulingGates",): _NAME,
    ("podIPs",): (ListMapKey("ip"),),
    ("ServiceAccount", "secrets"): _NAME,
    ("Service", "spec", "ports"): (ListMapKey("port"), ListMapKey("protocol", "TCP")),
    ("Node", "status", "addresses"): (ListMapKey("type"),),
    ("webhooks",): _NAME,
    ("matchConditions",): _NAME,
    ("validations",): _NAME,
}
_SETS = {("metadata", "finalizers")}
# Lists whose items are replaced as a whole.
_ATOMIC_ITEMS = {("metadata", "ownerReferences"), ("spec", "imagePullSecrets"), ("ServiceAccount", "secrets")}
_ATOMIC_MAPS = {
    ("selector",),
    ("labelSelector",),
    ("namespaceSelector",),
    ("objectSelector",),
    ("podSelector",),
    ("nodeSelector",),
    ("secretKeyRef",),
    ("configMapKeyRef",),
    ("fieldRef",),
    ("resourceFieldRef",),
    ("secretRef",),
    ("roleRef",),
    ("service", "port"),
    ("dataSource",),
    ("involvedObject",),
    ("regarding",),
    ("related",),
    ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
}


@dataclass(frozen=True, slots=True)
class BuiltinShape:
    """Shape of a path in a built-in kind. ``path`` begins with the kind."""

    path: tuple[str, ...]
    relation: Relation = field(init=False)
    keys: tuple[ListMapKey, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", _relation(self.path))
        object.__setattr__(self, "keys", _lookup(_LIST_MAP_KEYS, self.path) or ())

    def field(self, name: str) -> Shape:
        return _shape_at((*self.path, name))

    def item(self) -> Shape:
        return _ItemShape(self.path, "atomic" if self.path[-2:] in _ATOMIC_ITEMS else "granular")

    def declares(self, name: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _ItemShape:
    """Shape of an item of a list: a granular map."""

    path: tuple[str, ...]
    relation: Relation = "granular"
    keys: tuple[ListMapKey, ...] = ()

    def field(self, name: str) -> Shape:
        return _shape_at((*self.path, name))

    def item(self) -> Shape:
        return DEDUCED

    def declares(self, name: str) -> bool:
        return True


# Keys of maps, such as labels, are part of paths.
_shape_at = lru_cache(maxsize=10_000)(BuiltinShape)


def _lookup(table: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> Any:
    return next((table[path[-n:]] for n in (3, 2, 1) if path[-n:] in table), None)


def _relation(path: tuple[str, ...]) -> Relation:
    suffixes = {path[-n:] for n in (1, 2, 3)}
    if suffixes & _ATOMIC_MAPS:
        return "atomic"
    if suffixes & _SETS:
        return "set"
    return "map" if _lookup(_LIST_MAP_KEYS, path) else "granular"


_METADATA = BuiltinShape(("Object", "metadata"))


class SchemaShape:
    """Shape of a value with an OpenAPI schema."""

    __slots__ = ("_additional", "_fields", "_item", "_root", "_schema", "keys", "relation")

    def __init__(self, schema: JsonObject, *, root: bool = False) -> None:
        self._schema = schema
        self._root = root
        self._fields: dict[str, Shape] = {}
        self._additional: Shape | None = None
        self._item: Shape | None = None
        self.keys: tuple[ListMapKey, ...] = ()
        self.relation: Relation = "granular"
        if schema.get("x-kubernetes-map-type") == "atomic":
            self.relation = "atomic"
        list_type = schema.get("x-kubernetes-list-type")
        if list_type in ("set", "map"):
            self.relation = list_type
        if list_type == "map":
            properties = _schema_at(_schema_at(schema, "items"), "properties")
            names: list[str] = schema.get("x-kubernetes-list-map-keys") or []
            self.keys = tuple(ListMapKey(n, _schema_at(properties, n).get("default")) for n in names)

    def field(self, name: str) -> Shape:
        if name == "metadata" and self._is_object_root:
            return _METADATA
        if (known := self._fields.get(name)) is not None:
            return known
        properties = _schema_at(self._schema, "properties")
        if name in properties:
            shape = self._fields[name] = SchemaShape(properties[name])
            return shape
        if self._additional is None:
            self._additional = _shape_of(self._schema.get("additionalProperties"))
        return self._additional

    @property
    def _is_object_root(self) -> bool:
        """The value is an object with metadata."""
        return self._root or bool(self._schema.get("x-kubernetes-embedded-resource"))

    def declares(self, name: str) -> bool:
        declared = name in _schema_at(self._schema, "properties")
        return declared or (self._is_object_root and name in ("apiVersion", "kind", "metadata"))

    def item(self) -> Shape:
        if self._item is None:
            self._item = _shape_of(self._schema.get("items"))
        return self._item


def _shape_of(schema: Any) -> Shape:
    return SchemaShape(schema) if is_map(schema) else DEDUCED


def _schema_at(schema: JsonObject, name: str) -> JsonObject:
    found = schema.get(name)
    return found if is_map(found) else {}


class RegisteredShape(DeducedShape):
    """Shape of a kind without a schema. Its metadata is known."""

    def field(self, name: str) -> Shape:
        return _METADATA if name == "metadata" else DEDUCED

    def declares(self, name: str) -> bool:
        return name == "metadata"
