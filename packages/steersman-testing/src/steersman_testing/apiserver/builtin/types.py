"""Decoding of built-in kinds as their Go types.

It covers unknown fields, wrong types, times and quantities. The types are those of ``steersman.api``, which are
generated from the published OpenAPI. Other kinds are not decoded.

Source: ``k8s.io/api``, ``sigs.k8s.io/json`` and ``k8s.io/apimachinery/pkg/api/resource``.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any, cast

import msgspec

from steersman import meta
from steersman.meta import ApiResource, FrozenDict, Object, OwnerReference
from steersman_testing.apiserver.go_values import (
    NumberLiteral,
    UnmarshalTypeError,
    canonical_base64,
    canonical_micro_time,
    canonical_quantity,
    canonical_time,
)
from steersman_testing.apiserver.values import JsonObject, is_list, is_map, without_keys, without_nulls

_TYPE_META = ("apiVersion", "kind")
ROOT_FIELDS = (*_TYPE_META, "metadata")
# Quantities by type and field. The generated types have strings there.
_RESOURCE_LISTS = {
    *(("ResourceRequirements", n) for n in ("limits", "requests")),
    *(("VolumeResourceRequirements", n) for n in ("limits", "requests")),
    *(("LimitRangeItem", n) for n in ("default", "defaultRequest", "max", "min", "maxLimitRequestRatio")),
    *((s, "allocatedResources") for s in ("ContainerStatus", "PersistentVolumeClaimStatus", "PodStatus")),
    ("PersistentVolumeClaimStatus", "capacity"),
    ("PersistentVolumeSpec", "capacity"),
    ("PodSpec", "overhead"),
    *(("NodeStatus", n) for n in ("allocatable", "capacity")),
    *(("ResourceQuotaSpec", n) for n in ("hard",)),
    *(("ResourceQuotaStatus", n) for n in ("hard", "used")),
}
_PLAIN_QUANTITIES = {
    *((s, n) for s in ("MetricTarget", "MetricValueStatus") for n in ("averageValue", "value")),
    ("EmptyDirVolumeSource", "sizeLimit"),
    ("HPAScalingRules", "tolerance"),
    ("ResourceFieldSelector", "divisor"),
}
_QUANTITIES = _RESOURCE_LISTS | _PLAIN_QUANTITIES
_MICRO_TIMES = {"acquireTime", "eventTime", "lastObservedTime", "renewTime"}
_INT64_FIELDS = {
    *("activeDeadlineSeconds", "deletionGracePeriodSeconds", "expirationSeconds", "fsGroup", "generation"),
    *("gracePeriodSeconds", "observedGeneration", "revision", "runAsGroup", "runAsUser", "startingDeadlineSeconds"),
    *("terminationGracePeriodSeconds", "tolerationSeconds"),
}
# String fields with a named Go type.
_NAMED_STRING_TYPES = {
    ("AdmissionResponse", "patchType"): "v1.PatchType",
    ("AdmissionResponse", "uid"): "types.UID",
    ("DeleteOptions", "propagationPolicy"): "v1.DeletionPropagation",
    ("ManagedFieldsEntry", "operation"): "v1.ManagedFieldsOperationType",
    ("NamespaceSpec", "finalizers"): "v1.FinalizerName",
    ("ObjectMeta", "uid"): "types.UID",
    ("OwnerReference", "uid"): "types.UID",
    ("Preconditions", "uid"): "types.UID",
}
_OPENAPI_TYPES = {
    bool: "boolean",
    bytes: "string",
    datetime: "string",
    float: "number",
    int: "integer",
    str: "string",
}
# Go names of structs that have other names in Python.
_GO_NAMES = {"ApiStatus": "Status"}
_GO_SCALARS = {str: "string", bool: "bool", float: "float64"}


class ManagedFieldsEntry(msgspec.Struct, rename="camel"):
    """``metav1.ManagedFieldsEntry`` with all fields, unlike that of the client."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: datetime | None = None
    fields_type: str = ""
    fields_v1: Any = msgspec.field(default=None, name="fieldsV1")
    subresource: str = ""


class ObjectMeta(msgspec.Struct, rename="camel"):
    """``metav1.ObjectMeta`` with all fields.

    The class has the name of the Go type, which appears in errors.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: FrozenDict[str, str] = FrozenDict()
    annotations: FrozenDict[str, str] = FrozenDict()
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


METADATA_TYPES = (ObjectMeta, meta.ObjectMeta)


@dataclass(frozen=True, slots=True)
class StructField:
    """Field of a Go type.

    Attributes:
        kind: the Python type without None.
        nullable: whether None is allowed.
        default: the default of the Python type.
        exact_type: type whose values need no conversion, or None.
        is_string_map: whether it maps strings to strings.
    """

    kind: Any
    nullable: bool
    default: Any
    exact_type: Any
    is_string_map: bool

    @property
    def keeps_empty_list(self) -> bool:
        """An empty list differs from a missing one until it is stored.

        Go writes null for a missing list of this kind. Storage turns an empty one into null.
        """
        return self.nullable and self.default == ()


@cache
def struct_for(resource: ApiResource) -> type[msgspec.Struct] | None:
    """Return the generated type of a built-in kind, or None."""
    # CustomResourceDefinitions have their own decoder.
    if resource.kind == "CustomResourceDefinition":
        return None
    module = f"{resource.group.partition('.')[0] or 'core'}_{resource.version}"
    try:
        return getattr(import_module(f"steersman.api.{module}"), resource.kind, None)
    except ModuleNotFoundError:
        return None


@cache
def struct_fields(struct: type[msgspec.Struct]) -> dict[str, StructField]:
    hints = typing.get_type_hints(struct)
    found: dict[str, StructField] = {}
    for struct_field in msgspec.structs.fields(struct):
        members = _union_members(hints[struct_field.name])
        kinds = [m for m in members if m is not type(None)]
        kind = kinds[0] if len(kinds) == 1 else int | str
        is_not_quantity = (struct.__name__, struct_field.encode_name) not in _QUANTITIES
        exact_type = kind if is_not_quantity and kind in (str, bool, int) else None
        is_string_map = is_not_quantity and kind == FrozenDict[str, str]
        found[struct_field.encode_name] = StructField(
            kind, type(None) in members, struct_field.default, exact_type, is_string_map
        )
    return found


def _union_members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) or _is_union(hint) else (hint,)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Union


@dataclass(slots=True)
class _Decoder:
    """Decoder for one body. It collects the paths of unknown fields."""

    unknown_fields: list[str] = field(default_factory=list[str])

    def decode_struct(self, value: JsonObject, struct: type[msgspec.Struct], path: str, go_path: str) -> JsonObject:
        result: JsonObject = {}
        fields = struct_fields(struct)
        for name, content in value.items():
            inner = f"{path}.{name}" if path else name
            known = fields.get(name)
            if known is None and name in _TYPE_META and issubclass(struct, Object):
                result[name] = content
            elif known is None:
                self.unknown_fields.append(inner)
            elif type(content) is known.exact_type:
                result[name] = content
            elif known.is_string_map and is_map(content) and all(type(v) is str for v in content.values()):
                if content:
                    result[name] = {**content}
            elif content is not None:
                location = _Location(_go_name(struct), name, inner, f"{go_path}.{name}" if go_path else name)
                decoded = self.decode_value(content, known.kind, location)
                # Go omits empty maps and lists.
                if decoded or typing.get_origin(known.kind) not in (FrozenDict, tuple) or known.keeps_empty_list:
                    result[name] = decoded
        return result

    def decode_value(self, value: Any, kind: Any, location: _Location) -> Any:
        origin = typing.get_origin(kind)
        if origin is tuple:
            return self._decode_list(value, typing.get_args(kind)[0], location)
        if origin is FrozenDict:
            return self._decode_map(value, typing.get_args(kind)[1], location)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = ObjectMeta if kind is meta.ObjectMeta else kind
            if not is_map(value):
                raise location.type_error(value, f"v1.{_go_name(kind)}")
            return self.decode_struct(value, kind, location.path, location.go_path)
        return _decode_scalar(value, kind, location)

    def _decode_list(self, value: Any, item: Any, location: _Location) -> list[Any]:
        if not is_list(value):
            raise location.type_error(value, f"[]{_go_type_name(item, location)}")
        return [
            _zero_value(item) if v is None else self.decode_value(v, item, location.at_index(i))
            for i, v in enumerate(value)
        ]

    def _decode_map(self, value: Any, content: Any, location: _Location) -> JsonObject:
        if not is_map(value):
            raise location.type_error(value, f"map[string]{_go_type_name(content, location)}")
        found = {
            k: _zero_value(content) if v is None else self.decode_value(v, content, location.at_key(k))
            for k, v in value.items()
        }
        return without_nulls(found) if content is Any else found


def _zero_value(kind: Any) -> Any:
    """Return Go's zero value, which replaces nulls in lists and maps."""
    if kind in (int, float, bool):
        return kind()
    if typing.get_origin(kind) is tuple:
        return []
    if typing.get_origin(kind) is FrozenDict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return None if kind is Any else ""


@dataclass(frozen=True, slots=True)
class _Location:
    """Path of a value, with and without indexes, and its Go field."""

    struct: str
    name: str
    path: str
    go_path: str

    def at_index(self, position: int) -> _Location:
        return _Location(self.struct, self.name, f"{self.path}[{position}]", self.go_path)

    def at_key(self, key: str) -> _Location:
        return _Location(self.struct, self.name, f"{self.path}.{key}", self.go_path)

    def type_error(self, value: Any, go_type: str) -> UnmarshalTypeError:
        found = f"number {value}" if isinstance(value, float) and go_type.startswith("int") else json_type_name(value)
        return UnmarshalTypeError(
            f"json: cannot unmarshal {found} into Go struct field {self.struct}.{self.go_path} of type {go_type}"
        )


def _go_name(struct: type[msgspec.Struct]) -> str:
    return _GO_NAMES.get(struct.__name__, struct.__name__)


def _decode_scalar(value: Any, kind: Any, location: _Location) -> Any:
    if (location_key := (location.struct, location.name)) in _QUANTITIES:
        return canonical_quantity(value, milli=location_key in _RESOURCE_LISTS)
    if kind is datetime:
        if not isinstance(value, str):
            raise location.type_error(value, "string")
        return (canonical_micro_time if location.name in _MICRO_TIMES else canonical_time)(value)
    if kind is bytes:
        if not isinstance(value, str):
            raise location.type_error(value, _go_type_name(kind, location))
        return canonical_base64(value)
    if kind in (str, bool):
        if not isinstance(value, kind):
            raise location.type_error(value, _go_type_name(kind, location))
        return value
    if kind == int | str:
        # Go's IntOrString reports other numbers as int32.
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise location.type_error(value, "int32")
        return value
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            raise location.type_error(value, _go_type_name(kind, location))
        return float(value) if isinstance(value, NumberLiteral) else value
    return without_nulls(msgspec.json.decode(msgspec.json.encode(value, enc_hook=float)))


def _go_type_name(kind: Any, location: _Location) -> str:
    if (location.struct, location.name) in _NAMED_STRING_TYPES:
        return _NAMED_STRING_TYPES[location.struct, location.name]
    if kind is int:
        return "int64" if location.name in _INT64_FIELDS else "int32"
    if kind is bytes:
        return "[]uint8"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"v1.{_go_name(kind)}"
    return _GO_SCALARS.get(cast("type", kind), "interface {}")


def json_type_name(value: Any) -> str:
    """Return Go's name of a JSON type in errors."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if is_list(value):
        return "array"
    return "object" if is_map(value) else "number"


@cache
def openapi_schema(resource: ApiResource) -> JsonObject | None:
    """Return the OpenAPI schema of a built-in kind, or None.

    Server-side apply uses it.
    """
    struct = struct_for(resource)
    return None if struct is None else _schema(struct)


@cache
def _schema(struct: type[msgspec.Struct]) -> JsonObject:
    if struct is meta.ObjectMeta:
        return _schema(ObjectMeta)
    fields = struct_fields(struct).items()
    any_value: JsonObject = {"x-kubernetes-preserve-unknown-fields": True}
    properties = {n: any_value if (struct.__name__, n) in _QUANTITIES else _value_schema(f.kind) for n, f in fields}
    return {"type": "object", "properties": properties}


def _value_schema(kind: Any) -> JsonObject:
    origin = typing.get_origin(kind)
    if origin is tuple:
        return {"type": "array", "items": _value_schema(typing.get_args(kind)[0])}
    if origin is FrozenDict:
        return {"type": "object", "additionalProperties": _value_schema(typing.get_args(kind)[1])}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _schema(kind)
    if kind in _OPENAPI_TYPES:
        return {"type": _OPENAPI_TYPES[kind]}
    return {"x-kubernetes-preserve-unknown-fields": True}


def decode_builtin(resource: ApiResource, obj: JsonObject) -> tuple[JsonObject, list[str]]:
    """Return a decoded copy of ``obj`` and its unknown fields.

    The metadata is not decoded.

    Raises:
        UnmarshalTypeError: a value has the wrong type.
    """
    struct = struct_for(resource)
    if struct is None:
        return without_nulls(obj), []
    decoder = _Decoder()
    head = {n: obj[n] for n in ROOT_FIELDS if n in obj}
    body = decoder.decode_struct({n: v for n, v in obj.items() if n not in ROOT_FIELDS}, struct, "", "")
    return {**head, **body}, decoder.unknown_fields


def decode_as_struct(struct: type[msgspec.Struct], obj: JsonObject) -> tuple[JsonObject, list[str]]:
    """Decode an object that is not a kind, as ``decode_builtin``."""
    decoder = _Decoder()
    return decoder.decode_struct(without_keys(obj, _TYPE_META), struct, "", ""), decoder.unknown_fields


def decode_metadata(value: Any, owner: str = "") -> tuple[JsonObject, list[str]]:
    """Return decoded metadata and their unknown fields.

    Args:
        owner: the built-in kind of the object. Empty if the metadata are decoded alone, as in custom resources.

    Raises:
        UnmarshalTypeError: a value has the wrong type.
    """
    if not is_map(value):
        target = f"struct field {owner}.metadata" if owner else "value"
        raise UnmarshalTypeError(
            f"json: cannot unmarshal {json_type_name(value)} into Go {target} of type v1.ObjectMeta"
        )
    decoder = _Decoder()
    found = decoder.decode_struct(value, ObjectMeta, "metadata", "metadata" if owner else "")
    # An empty list of managers resets them, and the manager that applies an empty map owns it.
    empty = {n: v for n, v in value.items() if not v and (is_map(v) or is_list(v)) and n in struct_fields(ObjectMeta)}
    return {**found, **empty}, decoder.unknown_fields


@cache
def metadata_schema() -> JsonObject:
    """Return the OpenAPI schema of ``metav1.ObjectMeta`` for server-side apply."""
    return _schema(ObjectMeta)
