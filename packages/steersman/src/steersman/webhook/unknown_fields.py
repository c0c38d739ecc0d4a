"""Finds fields of a document that its type does not have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast, get_args, get_origin

from steersman.meta import FrozenDict, FrozenStruct
from steersman.webhook.type_hints import field_types_by_wire_name, unwrap_type


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
