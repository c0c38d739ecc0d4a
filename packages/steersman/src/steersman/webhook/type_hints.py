"""Fields of structs, and the markers of their types."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from steersman.meta import Field, FrozenStruct


@cache
def struct_fields(kind: type[FrozenStruct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of ``kind``, cached."""
    return msgspec.structs.fields(kind)


@cache
def field_types_by_wire_name(kind: type[FrozenStruct]) -> dict[str, Any]:
    """Types of fields by wire name."""
    return {f.encode_name: f.type for f in struct_fields(kind)}


def unwrap_type(hint: Any) -> Any:
    """``hint`` without Annotated and None, or None for a union."""
    return split_markers(hint)[1]


def split_markers(hint: Any) -> tuple[list[Field], Any]:
    """The markers of ``hint``, and ``hint`` without Annotated and None. The hint is None for a union."""
    markers: list[Field] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *annotations = get_args(hint)
            markers += [a for a in annotations if isinstance(a, Field)]
        elif get_origin(hint) in (Union, UnionType):
            members = [m for m in get_args(hint) if m is not type(None)]
            if len(members) != 1:
                return markers, None
            hint = members[0]
        else:
            return markers, hint
