"""Printer columns, the scale subresource and selectable fields of a version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steersman.meta import PrinterColumn, Scale
from steersman_manifests.crd.errors import SchemaError
from steersman_manifests.crd.paths import METADATA_FIELDS, FieldPathError, resolve_path
from steersman_manifests.crd.rules import Schema

_AGE_COLUMN = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
_MAX_SELECTABLE_FIELDS = 8
_SELECTABLE_TYPES = ("string", "boolean", "integer")
_COLUMN_FORMATS = ("", "int32", "int64", "float", "double", "byte", "date", "date-time", "password")
# Schema types that a column type can show. Cells of other types would be empty.
_DISPLAYABLE_TYPES = {
    "integer": ("integer", "number"),
    "number": ("integer", "number"),
    "boolean": ("boolean",),
    "date": ("string",),
}


def printer_columns(columns: Sequence[PrinterColumn], schema: Schema) -> list[Schema]:
    """``additionalPrinterColumns``, with the age as last column.

    Raises:
        SchemaError: the path of a column does not exist, or its type cannot show the field.
    """
    seen: set[str] = set()
    for column in columns:
        label = f"the column {column.name!r}"
        if not column.name or column.name.lower() in seen:
            raise SchemaError(f"{label} needs a unique name")
        seen.add(column.name.lower())
        if column.format not in _COLUMN_FORMATS:
            known = ", ".join(_COLUMN_FORMATS[1:])
            raise SchemaError(f"{label} has the format {column.format!r}: it is one of {known}")
        found = _resolve(schema, column.json_path, label, into_items=True)
        _check_column_type(column, found, label)
    with_age = columns if _AGE_COLUMN.name.lower() in seen else (*columns, _AGE_COLUMN)
    return [_column_to_wire(column) for column in with_age]


def _check_column_type(column: PrinterColumn, found: Schema | None, label: str) -> None:
    if column.type not in ("string", *_DISPLAYABLE_TYPES):
        raise SchemaError(
            f"{label} has the type {column.type!r}: it is one of string, {', '.join(_DISPLAYABLE_TYPES)}"
        )
    kind = None if found is None else found.get("type")
    if kind is not None and column.type in _DISPLAYABLE_TYPES and kind not in _DISPLAYABLE_TYPES[column.type]:
        raise SchemaError(
            f"{label} has the type {column.type}, but {column.json_path} is of type {kind}: declare that"
        )


def scale_subresource(scale: Scale, schema: Schema) -> Schema:
    """``subresources.scale``.

    Raises:
        SchemaError: a path does not exist, or is not an integer.
    """
    wire = {"specReplicasPath": scale.spec_replicas_path, "statusReplicasPath": scale.status_replicas_path}
    if scale.label_selector_path:
        wire["labelSelectorPath"] = scale.label_selector_path
    roots = {"specReplicasPath": (".spec.",), "statusReplicasPath": (".status.",)}
    for name, path in wire.items():
        label = f"the scale's {name}"
        allowed = roots.get(name, (".spec.", ".status."))
        if not path.startswith(allowed):
            raise SchemaError(f"{label} is {path!r}: it must start with {' or '.join(allowed)}")
        found = _resolve(schema, path, label)
        expected_type = "string" if name == "labelSelectorPath" else "integer"
        if found is not None and found.get("type") != expected_type:
            raise SchemaError(f"{label} {path} has the type {found.get('type')}: it must be {expected_type}")
    return wire


def selectable_fields(paths: Sequence[str], schema: Schema) -> list[Schema]:
    """``selectableFields``.

    Raises:
        SchemaError: a path does not exist, or field selectors do not support its type.
    """
    if len(paths) > _MAX_SELECTABLE_FIELDS:
        raise SchemaError(f"{len(paths)} selectable fields: a kind has at most {_MAX_SELECTABLE_FIELDS}")
    for position, path in enumerate(paths):
        label = f"the selectable field {path!r}"
        if path in paths[:position]:
            raise SchemaError(f"{label} is declared twice: remove one")
        if path.startswith(".metadata"):
            raise SchemaError(f"{label} is metadata: remove it. Name and namespace are always selectable")
        if "[" in path:
            raise SchemaError(f"{label} has brackets: write fields as .name")
        found = _resolve(schema, path, label)
        if found is None or found.get("type") not in _SELECTABLE_TYPES:
            kind = "anything" if found is None else found.get("type", "int | str")
            raise SchemaError(f"{label} is of type {kind}: only {', '.join(_SELECTABLE_TYPES)} are selectable")
    return [{"jsonPath": path} for path in paths]


def _resolve(schema: Schema, path: str, label: str, *, into_items: bool = False) -> Schema | None:
    metadata = {"type": "object", "properties": METADATA_FIELDS}
    with_metadata = {**schema, "properties": {**schema["properties"], "metadata": metadata}}
    try:
        # Recursive descent is not resolved here. The API server checks it.
        if ".." in path:
            return None
        return resolve_path(with_metadata, path, into_items=into_items)
    except FieldPathError as error:
        raise SchemaError(f"{label} has the path {path!r}, which {error}") from None


def _column_to_wire(column: PrinterColumn) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.format:
        wire["format"] = column.format
    if column.description:
        wire["description"] = column.description
    if column.priority:
        wire["priority"] = column.priority
    return wire
