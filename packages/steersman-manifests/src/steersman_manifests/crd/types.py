"""Schemas of Python types."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import UNSET

from steersman.meta import Duration, Field, FrozenDict, FrozenStruct, ObjectMeta, Quantity
from steersman.meta.duration import PATTERN as DURATION_PATTERN
from steersman_manifests.crd.builtin import (
    DATE_TIME,
    EMBEDDED_METADATA,
    INT_OR_STRING,
    PRESERVE_UNKNOWN_FIELDS,
    QUANTITY,
    builtin_schema,
)
from steersman_manifests.crd.docstrings import class_docstring
from steersman_manifests.crd.errors import RecursiveTypeError, SchemaError
from steersman_manifests.crd.markers import apply_marker
from steersman_manifests.crd.rules import Schema
from steersman_manifests.openapi import published_schema_name

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    bytes: {"type": "string", "format": "byte"},
    datetime: DATE_TIME,
    date: {"type": "string", "format": "date"},
    UUID: {"type": "string", "format": "uuid"},
    Duration: {"type": "string", "pattern": DURATION_PATTERN},
    Quantity: QUANTITY,
    Any: PRESERVE_UNKNOWN_FIELDS,
    msgspec.Raw: PRESERVE_UNKNOWN_FIELDS,
    ObjectMeta: EMBEDDED_METADATA,
}
_ALTERNATIVES = {
    list: "a list is written tuple[X, ...]",
    dict: "a map is written FrozenDict[str, X]",
    set: 'a set is written Annotated[tuple[X, ...], Field(list_type="set")]',
    frozenset: 'a set is written Annotated[tuple[X, ...], Field(list_type="set")]',
    timedelta: "a duration is written steersman.meta.Duration: Kubernetes writes them as Go does",
    FrozenDict: "a map is written FrozenDict[str, X]",
    tuple: "a list is written tuple[X, ...]",
}


@dataclass(frozen=True)
class TypeSchemaContext:
    """The context of a type within a schema.

    Attributes:
        struct_schema: returns the schema of a struct.
        builtin_descriptions: keep the descriptions of built-in types.
        ancestors: the structs around the type.
        correlatable: the API server can match the value with its old value (KEP-2876).
        keyed: the type is a list of type map, whose items have an old value.
    """

    struct_schema: Callable[[type[FrozenStruct], TypeSchemaContext], Schema] = field(repr=False)
    builtin_descriptions: bool = False
    ancestors: tuple[type, ...] = ()
    correlatable: bool = True
    keyed: bool = False


def type_schema(hint: Any, context: TypeSchemaContext) -> Schema:
    """The schema of the type hint, with its markers.

    Raises:
        SchemaError: the type has no structural schema.
    """
    hint = _resolve_alias(hint)
    if get_origin(hint) is Annotated:
        return _annotated_schema(hint, context)
    if (isinstance(hint, type) and hint in _SCALARS) or hint is Any:
        return deepcopy(_SCALARS[hint])
    origin = get_origin(hint)
    if origin is Literal:
        return _enum_schema(get_args(hint))
    if origin in (Union, UnionType):
        return _union_schema(get_args(hint), context)
    if origin is tuple:
        return _list_schema(get_args(hint), context)
    if origin is FrozenDict:
        return _map_schema(get_args(hint), context)
    if isinstance(hint, type):
        return _class_schema(cast("type[Any]", hint), context)
    if origin in _ALTERNATIVES:
        raise SchemaError(f"{hint!r} has no structural schema: {_ALTERNATIVES[origin]}")
    raise SchemaError(f"{hint!r} has no structural schema: use scalars, Literal, tuples, FrozenDict or structs")


def markers_of(hint: Any) -> list[Field]:
    """The markers of ``hint``, also of union members and aliases.

    Markers of list items and map values are left out.
    """
    hint = _resolve_alias(hint)
    if get_origin(hint) is Annotated:
        base, *markers = get_args(hint)
        return [*markers_of(base), *(m for m in markers if isinstance(m, Field))]
    if get_origin(hint) in (Union, UnionType):
        return [m for member in get_args(hint) for m in markers_of(member)]
    return []


def _resolve_alias(hint: Any) -> Any:
    """The target of a type alias or a ``NewType``."""
    while (target := getattr(hint, "__value__", getattr(hint, "__supertype__", None))) is not None:
        hint = target
    return hint


def _annotated_schema(hint: Any, context: TypeSchemaContext) -> Schema:
    base, *markers = get_args(hint)
    if any(isinstance(m, msgspec.Meta) for m in markers):
        raise SchemaError("msgspec.Meta would reject stored objects of an older schema: use Field instead")
    fields = [m for m in markers if isinstance(m, Field)]
    if any(m.nullable for m in fields) and not _accepts_none(base):
        raise SchemaError("nullable keeps an explicit null, which the type does not accept: write X | None")
    try:
        schema = type_schema(base, replace(context, keyed=any(m.list_map_keys for m in fields)))
    except RecursiveTypeError:
        # A list needs the marker at its items: as an object, it would reject every list.
        if not any(m.preserve_unknown for m in fields) or get_origin(_present_type(base)) is tuple:
            raise
        schema = {"type": "object", **PRESERVE_UNKNOWN_FIELDS}
    for marker in fields:
        schema = apply_marker(schema, marker, correlatable=context.correlatable)
    if schema.get("nullable") and "enum" in schema:
        # The API server compares null with the values of the enum, and skips a null among them.
        raise SchemaError("an enum rejects null, also if nullable: remove nullable, since an absent field is None")
    return schema


def _present_type(hint: Any) -> Any:
    """The only member of ``X | None`` besides None."""
    hint = _resolve_alias(hint)
    if get_origin(hint) in (Union, UnionType):
        present = [member for member in get_args(hint) if member is not NoneType]
        return _present_type(present[0]) if len(present) == 1 else hint
    return hint


def _accepts_none(hint: Any) -> bool:
    hint = _resolve_alias(hint)
    if get_origin(hint) in (Union, UnionType):
        return NoneType in get_args(hint)
    return hint is Any


def _class_schema(kind: type[Any], context: TypeSchemaContext) -> Schema:
    if issubclass(kind, Enum):
        text = class_docstring(kind)
        found = _enum_schema(tuple(member.value for member in kind))
        return {"description": text, **found} if text else found
    name = published_schema_name(kind)
    if name is not None:
        return builtin_schema(name, descriptions=context.builtin_descriptions)
    if issubclass(kind, FrozenStruct):
        return context.struct_schema(kind, context)
    if kind in _ALTERNATIVES:
        raise SchemaError(f"{kind.__name__} has no structural schema: {_ALTERNATIVES[kind]}")
    raise SchemaError(f"{kind!r} has no structural schema: use scalars, Literal, tuples, FrozenDict or structs")


def _enum_schema(values: tuple[Any, ...]) -> Schema:
    if not values:
        raise SchemaError("an enum without members accepts no value: add a member")
    if all(isinstance(v, str) for v in values):
        return {"type": "string", "enum": [str(v) for v in values]}
    if all(type(v) is int for v in values):
        return {"type": "integer", "format": "int64", "enum": list(values)}
    raise SchemaError("an enum has only strings or only integers: for null write X | None, for others use two fields")


def _union_schema(members: tuple[Any, ...], context: TypeSchemaContext) -> Schema:
    present = [m for m in members if m is not NoneType]
    if len(present) == 1:
        return type_schema(present[0], context)
    if set(present) == {int, str}:
        return deepcopy(INT_OR_STRING)
    if set(present) == {int, float}:
        return dict(_SCALARS[float])
    raise SchemaError(
        "structural schemas support only the unions X | None and int | str: write a struct with an optional field "
        "for each member, and above it @schema(rules=[exactly_one_of(…)])"
    )


def _list_schema(arguments: tuple[Any, ...], context: TypeSchemaContext) -> Schema:
    if len(arguments) != 2 or arguments[1] is not Ellipsis:
        raise SchemaError("a list is written tuple[X, ...]")
    inner = replace(context, correlatable=context.correlatable and context.keyed, keyed=False)
    return {"type": "array", "items": _element_schema(arguments[0], "an item", inner)}


def _map_schema(arguments: tuple[Any, ...], context: TypeSchemaContext) -> Schema:
    key, value = arguments
    if isinstance(key, TypeVar) or type_schema(key, context).get("type") != "string":
        raise SchemaError("the keys of a map are strings: write FrozenDict[str, X]")
    return {"type": "object", "additionalProperties": _element_schema(value, "a value", context)}


def _element_schema(hint: Any, label: str, context: TypeSchemaContext) -> Schema:
    """The schema of list items or map values."""
    for marker in markers_of(hint):
        if marker.default is not UNSET:
            raise SchemaError(f"{label} cannot have a default: declare one for the whole field")
        if marker.immutable:
            raise SchemaError(f'{label} cannot be immutable: write a rule, such as Rule(rule="self == oldSelf", …)')
    return type_schema(hint, context)
