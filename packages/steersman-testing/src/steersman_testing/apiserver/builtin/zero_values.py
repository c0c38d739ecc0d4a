"""Zero values that Go writes for fields without ``omitempty``.

Source: the struct tags and the protobuf encoding of ``k8s.io/api``.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from steersman.meta import ApiResource, Condition
from steersman_testing.apiserver.builtin.types import (
    METADATA_TYPES,
    ROOT_FIELDS,
    StructField,
    struct_fields,
    struct_for,
)
from steersman_testing.apiserver.values import JsonObject, clone, is_list, is_map


@cache
def _zero_fields(struct: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the zero values of fields without ``omitempty``."""
    if struct in (*METADATA_TYPES, Condition):
        return {}
    found = ((name, _zero_or_unset(struct_field)) for name, struct_field in struct_fields(struct).items())
    zero_values = {name: zero for name, zero in found if zero is not msgspec.UNSET}
    # Times that are not pointers are never omitted.
    if struct.__name__ == "Event" or struct.__name__.endswith("Condition"):
        zero_values |= {n: None for n, struct_field in struct_fields(struct).items() if struct_field.kind is datetime}
    return zero_values


def _zero_or_unset(struct_field: StructField) -> Any:
    default = struct_field.default
    if isinstance(default, msgspec.Struct):
        return _zero_fields(type(default))
    if struct_field.keeps_empty_list:
        return None
    # The types have no float fields without ``omitempty``.
    if not struct_field.nullable and isinstance(default, str | int) and not default:
        return default
    return msgspec.UNSET


def zero_values_of(resource: ApiResource) -> JsonObject:
    """Return the fields of an empty object, which have no manager."""
    struct = struct_for(resource)
    if struct is None:
        return {}
    return {n: clone(v) for n, v in _zero_fields(struct).items() if n not in ROOT_FIELDS}


def set_zero_values(resource: ApiResource, obj: JsonObject) -> None:
    """Set the zero values that Go writes for missing fields, in place."""
    struct = struct_for(resource)
    if struct is not None:
        _set_zero_values(obj, struct, root=True)


def _set_zero_values(value: JsonObject, struct: type[msgspec.Struct], *, root: bool = False) -> None:
    for name, zero in _zero_fields(struct).items():
        if name not in value and not (root and name in ROOT_FIELDS):
            value[name] = clone(zero)
    for name, inner in _nested_structs(struct).items():
        content = value.get(name)
        if content is None or (root and name in ROOT_FIELDS):
            continue
        for nested in content if is_list(content) else (content,):
            if is_map(nested):
                _set_zero_values(nested, inner)


@cache
def _nested_structs(struct: type[msgspec.Struct]) -> Mapping[str, type[msgspec.Struct]]:
    """Return the structs of fields, and of the items of lists."""
    kinds = {name: _item_kind(struct_field.kind) for name, struct_field in struct_fields(struct).items()}
    return {
        name: kind
        for name, kind in kinds.items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in (*METADATA_TYPES, Condition)
    }


def _item_kind(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind


def nulls_for_empty_lists(resource: ApiResource, obj: JsonObject) -> JsonObject:
    """Return ``obj`` with null for empty lists that protobuf does not keep.

    Returns ``obj`` itself without such lists. Source: the protobuf encoding of ``k8s.io/api``.
    """
    struct = struct_for(resource)
    return obj if struct is None else _with_nulls(obj, struct)


def _with_nulls(value: JsonObject, struct: type[msgspec.Struct]) -> JsonObject:
    changes: JsonObject = {}
    for name, (nullable, inner) in _nullable_list_fields(struct).items():
        content = value.get(name)
        if content == [] and nullable:
            changes[name] = None
        elif inner is not None and is_map(content):
            changes[name] = _with_nulls(content, inner)
        elif inner is not None and is_list(content):
            changes[name] = [_with_nulls(v, inner) for v in content]
    return {**value, **changes} if changes else value


@cache
def _nullable_list_fields(struct: type[msgspec.Struct]) -> Mapping[str, tuple[bool, type[msgspec.Struct] | None]]:
    """Return fields that are nullable lists or contain them.

    The value has both: whether the field is such a list, and the struct of its content.
    """
    found: dict[str, tuple[bool, type[msgspec.Struct] | None]] = {}
    for name, struct_field in struct_fields(struct).items():
        kind = _item_kind(struct_field.kind)
        inner = kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None
        inner = inner if inner is not None and inner not in METADATA_TYPES and _nullable_list_fields(inner) else None
        if struct_field.keeps_empty_list or inner is not None:
            found[name] = struct_field.keeps_empty_list, inner
    return found
