"""Paths that a version names: printer columns, the scale subresource, selectable fields; all lead somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steersman.crd.errors import SchemaError
from steersman.crd.paths import METADATA_FIELDS, PathError, follow
from steersman.crd.rules import Schema
from steersman.meta import PrinterColumn, Scale

_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
_MOST_SELECTABLE = 8
_SELECTABLE = ("string", "boolean", "integer")
_COLUMN_FORMATS = ("", "int32", "int64", "float", "double", "byte", "date", "date-time", "password")
# What a column of a type can show; of anything else its cells would be empty.
_SHOWN = {
    "integer": ("integer", "number"),
    "number": ("integer", "number"),
    "boolean": ("boolean",),
    "date": ("string",),
}


def columns_of(columns: Sequence[PrinterColumn], schema: Schema) -> list[Schema]:
    """``additionalPrinterColumns``, which end with the age.

    Raises:
        SchemaError: a column's path leads nowhere, or its type cannot show what is there.
    """
    seen: set[str] = set()
    for column in columns:
        place = f"the column {column.name!r}"
        if not column.name or column.name.lower() in seen:
            raise SchemaError(f"{place} needs a name of its own")
        seen.add(column.name.lower())
        if column.format not in _COLUMN_FORMATS:
            known = ", ".join(_COLUMN_FORMATS[1:])
            raise SchemaError(f"{place} has the format {column.format!r}: it is one of {known}")
        found = _led(schema, column.json_path, place, into_items=True)
        _check_shown(column, found, place)
    told = columns if _AGE.name.lower() in seen else (*columns, _AGE)
    return [_column(column) for column in told]


def _check_shown(column: PrinterColumn, found: Schema | None, place: str) -> None:
    if column.type not in ("string", *_SHOWN):
        raise SchemaError(f"{place} has the type {column.type!r}: it is one of string, {', '.join(_SHOWN)}")
    kind = None if found is None else found.get("type")
    if kind is not None and column.type in _SHOWN and kind not in _SHOWN[column.type]:
        raise SchemaError(f"{place} has the type {column.type}, but {column.json_path} is of type {kind}: say that")


def scale_of(scale: Scale, schema: Schema) -> Schema:
    """``subresources.scale``.

    Raises:
        SchemaError: a path leads nowhere, or to something that is no number of replicas.
    """
    wire = {"specReplicasPath": scale.spec_replicas_path, "statusReplicasPath": scale.status_replicas_path}
    if scale.label_selector_path:
        wire["labelSelectorPath"] = scale.label_selector_path
    roots = {"specReplicasPath": (".spec.",), "statusReplicasPath": (".status.",)}
    for name, path in wire.items():
        place = f"the scale's {name}"
        allowed = roots.get(name, (".spec.", ".status."))
        if not path.startswith(allowed):
            raise SchemaError(f"{place} is {path!r}: it must start with {' or '.join(allowed)}")
        found = _led(schema, path, place)
        wanted = "string" if name == "labelSelectorPath" else "integer"
        if found is not None and found.get("type") != wanted:
            raise SchemaError(f"{place} {path} leads to the type {found.get('type')}: it must be {wanted}")
    return wire


def selectable_fields_of(paths: Sequence[str], schema: Schema) -> list[Schema]:
    """``selectableFields``.

    Raises:
        SchemaError: a path leads nowhere, or to something that no field selector compares.
    """
    if len(paths) > _MOST_SELECTABLE:
        raise SchemaError(f"{len(paths)} selectable fields: a kind has at most {_MOST_SELECTABLE}")
    for position, path in enumerate(paths):
        place = f"the selectable field {path!r}"
        if path in paths[:position]:
            raise SchemaError(f"{place} is there twice: say it once")
        if path.startswith(".metadata"):
            raise SchemaError(f"{place} is metadata, of which name and namespace are selectable anyway: take it away")
        if "[" in path:
            raise SchemaError(f"{place} has brackets: write fields as .name")
        found = _led(schema, path, place)
        if found is None or found.get("type") not in _SELECTABLE:
            kind = "anything" if found is None else found.get("type", "int | str")
            raise SchemaError(f"{place} is of type {kind}: only {', '.join(_SELECTABLE)} can be selected by")
    return [{"jsonPath": path} for path in paths]


def _led(schema: Schema, path: str, place: str, *, into_items: bool = False) -> Schema | None:
    metadata = {"type": "object", "properties": METADATA_FIELDS}
    shown = {**schema, "properties": {**schema["properties"], "metadata": metadata}}
    try:
        # Recursive descent and the like are left to the API server.
        if ".." in path:
            return None
        return follow(shown, path, into_items=into_items)
    except PathError as error:
        raise SchemaError(f"{place} has the path {path!r}, which {error}") from None


def _column(column: PrinterColumn) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.format:
        wire["format"] = column.format
    if column.description:
        wire["description"] = column.description
    if column.priority:
        wire["priority"] = column.priority
    return wire
