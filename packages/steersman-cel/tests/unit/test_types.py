"""``steersman_cel.types`` and ``conversion``: types and values that rules see."""

from __future__ import annotations

from typing import Any

import pytest

from steersman_cel.conversion import to_cel
from steersman_cel.types import MAX_REQUEST_BYTES, escape_identifier, type_from_schema

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "bool"),
        (TEXT, "string"),
        ({"type": "string", "format": "byte"}, "bytes"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "duration"}, "duration"),
        ({"type": "array", "items": TEXT}, "list(string)"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map(string, int)"),
        ({"type": "object", "properties": {"a": TEXT}}, "selfType"),
        ({"x-kubernetes-int-or-string": True}, "dyn"),
        ({}, "None"),
    ],
)
def test_type_from_schema_returns_type(schema: dict[str, Any], expected: str) -> None:
    assert str(type_from_schema(schema)) == expected


def test_type_from_schema_root_has_resource_fields() -> None:
    kind = type_from_schema({"type": "object", "properties": {"spec": TEXT}}, root=True)
    assert kind is not None and kind.fields is not None
    assert set(kind.fields) == {"apiVersion", "kind", "metadata", "spec"}
    metadata = kind.fields["metadata"].fields
    assert metadata is not None and set(metadata) == {"name", "generateName"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        # A character has up to four bytes.
        ({"type": "string", "maxLength": 5}, 20),
        (TEXT, MAX_REQUEST_BYTES - 2),
        ({"type": "array", "items": TEXT, "maxItems": 7}, 7),
    ],
)
def test_type_from_schema_has_maximum_size(schema: dict[str, Any], expected: int) -> None:
    kind = type_from_schema(schema)
    assert kind is not None and kind.max_elements == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("replicas", "replicas"),
        ("in", "__in__"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("1a", ""),
        ("a b", ""),
        ("", ""),
    ],
)
def test_escape_identifier_returns_name_in_rules(name: str, expected: str) -> None:
    assert escape_identifier(name) == expected


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (1, {"type": "number"}, 1.0),
        (2.0, {"type": "integer"}, 2),
        ("YWJj", {"type": "string", "format": "byte"}, b"abc"),
        ("2026-01-02", {"type": "string", "format": "date"}, "2026-01-02T00:00:00Z"),
        ("2026-01-02T03:04:05+01:00", {"type": "string", "format": "date-time"}, "2026-01-02T02:04:05Z"),
        ("1h30m", {"type": "string", "format": "duration"}, "5400.000000000s"),
        ({"a-b": 1, "c": None}, {"properties": {"a-b": {}, "c": {}}}, {"a__dash__b": 1}),
        ([1, 2], {"type": "array", "items": {"type": "number"}}, [1.0, 2.0]),
        ({"x": 1}, {"additionalProperties": {"type": "number"}}, {"x": 1.0}),
    ],
)
def test_to_cel_converts_by_schema(value: Any, schema: dict[str, Any], expected: Any) -> None:
    converted = to_cel(value, schema)
    assert (converted, type(converted)) == (expected, type(expected))


def test_to_cel_root_keeps_names_of_metadata_only() -> None:
    value: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Widget",
        "metadata": {"name": "a", "labels": {}},
        "extra": 1,
    }
    assert to_cel(value, {"type": "object"}, root=True) == {
        "apiVersion": "v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
    }
