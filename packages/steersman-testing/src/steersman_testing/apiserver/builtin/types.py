"""What the Go types of built-in kinds do to an object: unknown fields, wrong types, times, quantities, zero values.

The types are those of ``steersman.api``, which are generated from the published OpenAPI; a kind that is not among
them is taken as it is sent.

Source: ``k8s.io/api``, ``sigs.k8s.io/json`` and ``k8s.io/apimachinery/pkg/api/resource``.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any, cast

import msgspec

from steersman import meta
from steersman.meta import ApiResource, Condition, FrozenDict, Object, OwnerReference
from steersman_testing.apiserver.go_values import (
    Spelled,
    WrongType,
    base64_text,
    micro_time,
    quantity_text,
    time_text,
)
from steersman_testing.apiserver.values import JsonObject, clone, is_list, is_map, without_keys, without_nulls

_TYPE_META = ("apiVersion", "kind")
_ROOT = (*_TYPE_META, "metadata")
# Where a text is a quantity, by type and field: the generated types have texts there.
_RESOURCES = {
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
_FINER = {
    *((s, n) for s in ("MetricTarget", "MetricValueStatus") for n in ("averageValue", "value")),
    ("EmptyDirVolumeSource", "sizeLimit"),
    ("HPAScalingRules", "tolerance"),
    ("ResourceFieldSelector", "divisor"),
}
_QUANTITIES = _RESOURCES | _FINER
_MICRO_TIMES = {"acquireTime", "eventTime", "lastObservedTime", "renewTime"}
_LONG = {
    *("activeDeadlineSeconds", "deletionGracePeriodSeconds", "expirationSeconds", "fsGroup", "generation"),
    *("gracePeriodSeconds", "observedGeneration", "revision", "runAsGroup", "runAsUser", "startingDeadlineSeconds"),
    *("terminationGracePeriodSeconds", "tolerationSeconds"),
}
# Texts of a type of their own.
_NAMED_TEXTS = {
    ("AdmissionResponse", "patchType"): "v1.PatchType",
    ("AdmissionResponse", "uid"): "types.UID",
    ("DeleteOptions", "propagationPolicy"): "v1.DeletionPropagation",
    ("ManagedFieldsEntry", "operation"): "v1.ManagedFieldsOperationType",
    ("NamespaceSpec", "finalizers"): "v1.FinalizerName",
    ("ObjectMeta", "uid"): "types.UID",
    ("OwnerReference", "uid"): "types.UID",
    ("Preconditions", "uid"): "types.UID",
}
_OPENAPI = {bool: "boolean", bytes: "string", datetime: "string", float: "number", int: "integer", str: "string"}
_GO_SCALARS = {str: "string", bool: "bool", float: "float64"}


class ManagedFieldsEntry(msgspec.Struct, rename="camel"):
    """``metav1.ManagedFieldsEntry``, all of it: the client's leaves out what it does not read."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: datetime | None = None
    fields_type: str = ""
    fields_v1: Any = msgspec.field(default=None, name="fieldsV1")
    subresource: str = ""


class ObjectMeta(msgspec.Struct, rename="camel"):
    """``metav1.ObjectMeta``, all of it, by the name that refusals tell."""

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


_METADATA = (ObjectMeta, meta.ObjectMeta)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a Go type: the Python type without None, whether None is among it, and the default.

    ``plain`` is the type whose values are taken as they are, if any; of ``texts``, all entries must be texts.
    An ``emptiable`` list is told from none until it is stored: where it has nothing, Go writes null for none.
    """

    kind: Any
    nullable: bool
    default: Any
    plain: Any
    texts: bool

    @property
    def emptiable(self) -> bool:
        return self.nullable and self.default == ()


@cache
def struct_of(resource: ApiResource) -> type[msgspec.Struct] | None:
    """The generated type of a built-in kind; None where there is none."""
    # Definitions are checked by modules of their own.
    if resource.kind == "CustomResourceDefinition":
        return None
    module = f"{resource.group.partition('.')[0] or 'core'}_{resource.version}"
    try:
        return getattr(import_module(f"steersman.api.{module}"), resource.kind, None)
    except ModuleNotFoundError:
        return None


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, _Field]:
    hints = typing.get_type_hints(struct)
    found: dict[str, _Field] = {}
    for told in msgspec.structs.fields(struct):
        members = _members(hints[told.name])
        kinds = [m for m in members if m is not type(None)]
        kind = kinds[0] if len(kinds) == 1 else int | str
        ordinary = (struct.__name__, told.encode_name) not in _QUANTITIES
        plain = kind if ordinary and kind in (str, bool, int) else None
        texts = ordinary and kind == FrozenDict[str, str]
        found[told.encode_name] = _Field(kind, type(None) in members, told.default, plain, texts)
    return found


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) or _is_union(hint) else (hint,)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Union


@dataclass(slots=True)
class _Decoder:
    """One pass over a body; ``unknown`` gathers the paths of fields that the types do not have."""

    unknown: list[str] = field(default_factory=list[str])

    def struct(self, value: JsonObject, struct: type[msgspec.Struct], path: str, go_path: str) -> JsonObject:
        result: JsonObject = {}
        fields = _fields(struct)
        for name, content in value.items():
            inner = f"{path}.{name}" if path else name
            known = fields.get(name)
            if known is None and name in _TYPE_META and issubclass(struct, Object):
                result[name] = content
            elif known is None:
                self.unknown.append(inner)
            elif type(content) is known.plain:
                result[name] = content
            elif known.texts and is_map(content) and all(type(v) is str for v in content.values()):
                if content:
                    result[name] = {**content}
            elif content is not None:
                place = _Place(struct.__name__, name, inner, f"{go_path}.{name}" if go_path else name)
                decoded = self.value(content, known.kind, place)
                # Go leaves out empty maps and lists.
                if decoded or typing.get_origin(known.kind) not in (FrozenDict, tuple) or known.emptiable:
                    result[name] = decoded
        return result

    def value(self, value: Any, kind: Any, place: _Place) -> Any:
        origin = typing.get_origin(kind)
        if origin is tuple:
            return self._list(value, typing.get_args(kind)[0], place)
        if origin is FrozenDict:
            return self._map(value, typing.get_args(kind)[1], place)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = ObjectMeta if kind is meta.ObjectMeta else kind
            if not is_map(value):
                raise place.wrong(value, f"v1.{kind.__name__}")
            return self.struct(value, kind, place.path, place.go_path)
        return _scalar(value, kind, place)

    def _list(self, value: Any, item: Any, place: _Place) -> list[Any]:
        if not is_list(value):
            raise place.wrong(value, f"[]{_go_name(item, place)}")
        return [_nothing(item) if v is None else self.value(v, item, place.item(i)) for i, v in enumerate(value)]

    def _map(self, value: Any, content: Any, place: _Place) -> JsonObject:
        if not is_map(value):
            raise place.wrong(value, f"map[string]{_go_name(content, place)}")
        found = {
            k: _nothing(content) if v is None else self.value(v, content, place.entry(k)) for k, v in value.items()
        }
        return without_nulls(found) if content is Any else found


def _nothing(kind: Any) -> Any:
    """The zero value of a type, which is what Go makes of a null within a list or a map."""
    if kind in (int, float, bool):
        return kind()
    if typing.get_origin(kind) is tuple:
        return []
    if typing.get_origin(kind) is FrozenDict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return None if kind is Any else ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: the Go type and field for refusals, and the path, with and without indices."""

    struct: str
    name: str
    path: str
    go_path: str

    def item(self, position: int) -> _Place:
        return _Place(self.struct, self.name, f"{self.path}[{position}]", self.go_path)

    def entry(self, key: str) -> _Place:
        return _Place(self.struct, self.name, f"{self.path}.{key}", self.go_path)

    def wrong(self, value: Any, wanted: str) -> WrongType:
        found = f"number {value}" if isinstance(value, float) and wanted.startswith("int") else json_name(value)
        return WrongType(
            f"json: cannot unmarshal {found} into Go struct field {self.struct}.{self.go_path} of type {wanted}"
        )


def _scalar(value: Any, kind: Any, place: _Place) -> Any:
    if (where := (place.struct, place.name)) in _QUANTITIES:
        return quantity_text(value, milli=where in _RESOURCES)
    if kind is datetime:
        if not isinstance(value, str):
            raise place.wrong(value, "string")
        return (micro_time if place.name in _MICRO_TIMES else time_text)(value)
    if kind is bytes:
        if not isinstance(value, str):
            raise place.wrong(value, _go_name(kind, place))
        return base64_text(value)
    if kind in (str, bool):
        if not isinstance(value, kind):
            raise place.wrong(value, _go_name(kind, place))
        return value
    if kind == int | str:
        # A number of another kind is refused as Go's IntOrString does it.
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise place.wrong(value, "int32")
        return value
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            raise place.wrong(value, _go_name(kind, place))
        return float(value) if isinstance(value, Spelled) else value
    return without_nulls(msgspec.json.decode(msgspec.json.encode(value, enc_hook=float)))


def _go_name(kind: Any, place: _Place) -> str:
    if (place.struct, place.name) in _NAMED_TEXTS:
        return _NAMED_TEXTS[place.struct, place.name]
    if kind is int:
        return "int64" if place.name in _LONG else "int32"
    if kind is bytes:
        return "[]uint8"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"v1.{kind.__name__}"
    return _GO_SCALARS.get(cast("type", kind), "interface {}")


def json_name(value: Any) -> str:
    """What Go calls the type of a JSON value that it cannot read."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if is_list(value):
        return "array"
    return "object" if is_map(value) else "number"


@cache
def schema_of(resource: ApiResource) -> JsonObject | None:
    """The type of a built-in kind as an OpenAPI schema, for server-side apply; None where it is unknown."""
    struct = struct_of(resource)
    return None if struct is None else _schema(struct)


@cache
def _schema(struct: type[msgspec.Struct]) -> JsonObject:
    if struct is meta.ObjectMeta:
        return _schema(ObjectMeta)
    told = _fields(struct).items()
    anything: JsonObject = {"x-kubernetes-preserve-unknown-fields": True}
    properties = {n: anything if (struct.__name__, n) in _QUANTITIES else _value_schema(f.kind) for n, f in told}
    return {"type": "object", "properties": properties}


def _value_schema(kind: Any) -> JsonObject:
    origin = typing.get_origin(kind)
    if origin is tuple:
        return {"type": "array", "items": _value_schema(typing.get_args(kind)[0])}
    if origin is FrozenDict:
        return {"type": "object", "additionalProperties": _value_schema(typing.get_args(kind)[1])}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _schema(kind)
    if kind in _OPENAPI:
        return {"type": _OPENAPI[kind]}
    return {"x-kubernetes-preserve-unknown-fields": True}


def conform_builtin(resource: ApiResource, obj: JsonObject) -> tuple[JsonObject, list[str]]:
    """A copy of ``obj`` as the Go type holds it, its metadata aside, and the paths of fields that it does not have.

    Raises:
        WrongType: a value does not fit its field.
    """
    struct = struct_of(resource)
    if struct is None:
        return without_nulls(obj), []
    decoder = _Decoder()
    head = {n: obj[n] for n in _ROOT if n in obj}
    body = decoder.struct({n: v for n, v in obj.items() if n not in _ROOT}, struct, "", "")
    return {**head, **body}, decoder.unknown


def conform_struct(struct: type[msgspec.Struct], obj: JsonObject) -> tuple[JsonObject, list[str]]:
    """As ``conform_builtin``, of what is no kind of its own."""
    decoder = _Decoder()
    return decoder.struct(without_keys(obj, _TYPE_META), struct, "", ""), decoder.unknown


def conform_metadata(value: Any, owner: str = "") -> tuple[JsonObject, list[str]]:
    """``value`` as ``metav1.ObjectMeta`` holds it, and the paths of the fields that it does not have.

    Args:
        owner: the built-in kind whose metadata these are; empty where they are read alone, as of custom resources.

    Raises:
        WrongType: a value does not fit its field.
    """
    if not is_map(value):
        where = f"struct field {owner}.metadata" if owner else "value"
        raise WrongType(f"json: cannot unmarshal {json_name(value)} into Go {where} of type v1.ObjectMeta")
    decoder = _Decoder()
    found = decoder.struct(value, ObjectMeta, "metadata", "metadata" if owner else "")
    # An empty list of managers forgets them all, and who applies an empty map owns it.
    empty = {n: v for n, v in value.items() if not v and (is_map(v) or is_list(v)) and n in _fields(ObjectMeta)}
    return {**found, **empty}, decoder.unknown


@cache
def metadata_schema() -> JsonObject:
    """``metav1.ObjectMeta`` as an OpenAPI schema, for server-side apply."""
    return _schema(ObjectMeta)


@cache
def _blank(struct: type[msgspec.Struct]) -> Mapping[str, Any]:
    """What Go writes for the zero value of a type: what ``omitempty`` does not leave out."""
    if struct in (*_METADATA, Condition):
        return {}
    found = ((name, _zero(told)) for name, told in _fields(struct).items())
    blank = {name: zero for name, zero in found if zero is not msgspec.UNSET}
    # Times that are no pointers are never left out.
    if struct.__name__ == "Event" or struct.__name__.endswith("Condition"):
        blank |= {n: None for n, told in _fields(struct).items() if told.kind is datetime}
    return blank


def _zero(told: _Field) -> Any:
    default = told.default
    if isinstance(default, msgspec.Struct):
        return _blank(type(default))
    if told.emptiable:
        return None
    # Of numbers not 0.0: there are none in the types.
    if not told.nullable and isinstance(default, str | int) and not default:
        return default
    return msgspec.UNSET


def blank_of(resource: ApiResource) -> JsonObject:
    """What a new object has before anything is written to it: owned by nobody."""
    struct = struct_of(resource)
    if struct is None:
        return {}
    return {n: clone(v) for n, v in _blank(struct).items() if n not in _ROOT}


def fill_blanks(resource: ApiResource, obj: JsonObject) -> None:
    """Puts the zero values that Go writes where fields are missing, in place."""
    struct = struct_of(resource)
    if struct is not None:
        _fill(obj, struct, root=True)


def _fill(value: JsonObject, struct: type[msgspec.Struct], *, root: bool = False) -> None:
    for name, zero in _blank(struct).items():
        if name not in value and not (root and name in _ROOT):
            value[name] = clone(zero)
    fields = _fields(struct)
    for name, content in value.items():
        if name in fields and not (root and name in _ROOT):
            for inner, kind in _structs_in(content, fields[name].kind):
                _fill(inner, kind)


def _structs_in(value: Any, kind: Any) -> Iterator[tuple[JsonObject, type[msgspec.Struct]]]:
    if typing.get_origin(kind) is tuple and is_list(value):
        item = typing.get_args(kind)[0]
        yield from (pair for v in value for pair in _structs_in(v, item))
    elif (
        isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and is_map(value)
        and kind not in (*_METADATA, Condition)
    ):
        yield value, kind


def as_stored(resource: ApiResource, obj: JsonObject) -> JsonObject:
    """``obj`` with null in place of each empty list that Go writes null for: the store cannot tell them apart.

    Itself, where there is none. Source: the protobuf of ``k8s.io/api``.
    """
    struct = struct_of(resource)
    return obj if struct is None else _nulled(obj, struct)


def _nulled(value: JsonObject, struct: type[msgspec.Struct]) -> JsonObject:
    changes: JsonObject = {}
    for name, (emptiable, inner) in _ways_to_lists(struct).items():
        content = value.get(name)
        if content == [] and emptiable:
            changes[name] = None
        elif inner is not None and is_map(content):
            changes[name] = _nulled(content, inner)
        elif inner is not None and is_list(content):
            changes[name] = [_nulled(v, inner) for v in content]
    return {**value, **changes} if changes else value


@cache
def _ways_to_lists(struct: type[msgspec.Struct]) -> Mapping[str, tuple[bool, type[msgspec.Struct] | None]]:
    """The fields of ``struct`` that are emptiable or have such within, and of what structs they are."""
    found: dict[str, tuple[bool, type[msgspec.Struct] | None]] = {}
    for name, told in _fields(struct).items():
        kind = typing.get_args(told.kind)[0] if typing.get_origin(told.kind) is tuple else told.kind
        inner = kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None
        inner = inner if inner is not None and inner not in _METADATA and _ways_to_lists(inner) else None
        if told.emptiable or inner is not None:
            found[name] = told.emptiable, inner
    return found
