"""Tables: rows with cells that kubectl prints for any kind.

Descriptions of built-in columns are omitted. Source: "Kubernetes API Concepts", "Receiving resources as Tables";
``additionalPrinterColumns`` in "Extend the Kubernetes API with CustomResourceDefinitions".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from steersman.client.transport import HttpRequest
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.kinds import Column, ServedKind
from steersman_testing.apiserver.kubectl.columns import builtin_cells, builtin_columns
from steersman_testing.apiserver.kubectl.durations import human_age
from steersman_testing.apiserver.kubectl.json_path import find_results
from steersman_testing.apiserver.kubectl.pod_cells import row_conditions
from steersman_testing.apiserver.requests.negotiation import TABLE
from steersman_testing.apiserver.shapes import BuiltinShape
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.values import JsonObject

_NAME = Column("Name", "string", ".metadata.name", format="name")
_AGE = Column("Age", "date", ".metadata.creationTimestamp")


@dataclass(frozen=True, slots=True)
class TableConverter:
    """Converts objects of one kind to Tables.

    Attributes:
        include_object: part of the object in each row: ``Metadata``, ``Object`` or ``None``.
    """

    kind: ServedKind
    include_object: str

    def encode(
        self, items: Iterable[StoredObject], meta: JsonObject, now: datetime, *, headers: bool = True
    ) -> bytes:
        """Encode a Table as JSON: see ``TableEncoder``."""
        table = {
            "kind": TABLE,
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "columnDefinitions": [_column_definition(c) for c in self._table_columns] if headers else None,
            "rows": [self._row(stored, now) for stored in items],
        }
        return msgspec.json.encode(table)

    @property
    def _table_columns(self) -> tuple[Column, ...]:
        if _is_builtin(self.kind):
            return builtin_columns(self.kind.resource.kind)
        return (_NAME, *(self.kind.columns or (_AGE,)))

    def _row(self, stored: StoredObject, now: datetime) -> JsonObject:
        row: JsonObject = {"cells": self._cells(stored.object, now)}
        is_pod = _is_builtin(self.kind) and self.kind.resource.kind == "Pod"
        if is_pod and (conditions := row_conditions(stored.object)):
            row["conditions"] = conditions
        return row | {"object": self._object(stored)}

    def _cells(self, obj: JsonObject, now: datetime) -> list[Any]:
        if _is_builtin(self.kind):
            return builtin_cells(self.kind.resource.kind, obj, lambda timestamp: human_age(timestamp, now))
        return [_custom_cell(column, obj, now) for column in self._table_columns]

    def _object(self, stored: StoredObject) -> msgspec.Raw | None:
        if self.include_object == "None":
            return None
        version = self.kind.resource.api_version
        return msgspec.Raw(stored.to_json(version, partial=self.include_object == "Metadata"))


def table_converter(kind: ServedKind, request: HttpRequest) -> TableConverter:
    """Return the converter for the Tables that ``request`` accepts.

    Raises:
        ApiError: 400, ``includeObject`` is unknown.
    """
    include = request.query.get("includeObject") or "Metadata"
    if include not in ("Metadata", "Object", "None"):
        raise failures.bad_request(f'unrecognized includeObject value: "{include}"')
    return TableConverter(kind, include)


def _is_builtin(kind: ServedKind) -> bool:
    return isinstance(kind.shape, BuiltinShape)


def _column_definition(column: Column) -> JsonObject:
    default_description = f"Custom resource definition column (in JSONPath format): {column.json_path}"
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description or (default_description if column.json_path else ""),
        "priority": column.priority,
    }


def _custom_cell(column: Column, obj: JsonObject, now: datetime) -> Any:
    value = next(find_results(column.json_path, obj), None)
    match column.type, value:
        case _, None:
            return None
        case "string", str():
            return value
        case "string", _:
            return msgspec.json.encode(value).decode()
        case "date", str():
            return human_age(value, now, invalid="<invalid>")
        case "boolean", bool():
            return value
        case "integer", int() | float() if not isinstance(value, bool):
            return int(value)
        case "number", int() | float() if not isinstance(value, bool):
            return float(value)
        case _:
            return None
