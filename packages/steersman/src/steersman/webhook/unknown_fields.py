"""Finds fields of a document that its type does not have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec

from steersman.meta import FrozenDict, FrozenStruct


def find_unknown_field(document: Any, hint: Any, path: str = "") -> str:
    """The path of the first field that the type ``hint`` lacks.

    It is empty if ``hint`` has all fields.
    """
    hint = unwrap_type(hint)
    if isinstance(hint, type) and issubclass(hint, FrozenStruct) and isinstance(document, dict):
        known = field_types_by_wire_name(hint)
        for name, value in cast("dict[str, Any]", document).items():
            field_path = f"{path}.{name}" if path else name
            if name not in known:
                return field_path
            if found := find_unknown_field(value, known[name], field_path):
                return found
    elif get_origin(hint) is tuple and isinstance(document, list):
        item = get_args(hint)[0]
        return _first_non_empty(
            find_unknown_field(v, item, f"{path}[{i}]") for i, v in enumerate(cast("list[Any]", document))
        )
    elif get_origin(hint) is FrozenDict and isinstance(document, dict):
        item = get_args(hint)[1]
        return _first_non_empty(
            find_unknown_field(v, item, f"{path}.{k}") for k, v in cast("dict[str, Any]", document).items()
        )
    return ""


def _first_non_empty(paths: Iterable[str]) -> str:
    return next((path for path in paths if path), "")


def unwrap_type(hint: Any) -> Any:
    """``hint`` without Annotated and None, or None for a union."""
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif get_origin(hint) in (Union, UnionType):
            members = [m for m in get_args(hint) if m is not type(None)]
            if len(members) != 1:
                return None
            hint = members[0]
        else:
            return hint


@cache
def field_types_by_wire_name(kind: type[FrozenStruct]) -> dict[str, Any]:
    """Types of fields by wire name."""
    return {f.encode_name: f.type for f in msgspec.structs.fields(kind)}
