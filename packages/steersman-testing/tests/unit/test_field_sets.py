"""Comparison of objects by field paths, and keywords of schemas."""

from __future__ import annotations

from typing import Any

import pytest

from steersman_testing.apiserver.fields.field_paths import compare
from steersman_testing.apiserver.schemas.schema_cache import has_keyword
from steersman_testing.apiserver.shapes import DEDUCED, SchemaShape, Shape

SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}},
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set"},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic"},
    },
}
SHAPE = SchemaShape(SPEC)
WEB = 'k:{"name":"web"}'


def text(paths: set[tuple[str, ...]]) -> list[str]:
    return sorted(" ".join(p) for p in paths)


@pytest.mark.parametrize(
    ("old", "new", "shape", "added", "removed", "modified"),
    [
        ({}, {"a": {"b": 1}}, DEDUCED, ["f:a", "f:a f:b"], [], []),
        ({"a": {"b": 1}}, {}, DEDUCED, [], ["f:a", "f:a f:b"], []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, DEDUCED, [], [], ["f:a f:b"]),
        ({"a": {"b": 1}}, {"a": {}}, DEDUCED, [], ["f:a f:b"], []),
        ({"a": {}}, {"a": {"b": None}}, DEDUCED, ["f:a f:b"], [], []),
        ({"a": {"b": 1}}, {"a": None}, DEDUCED, [], ["f:a f:b"], []),
        ({"a": {}}, {"a": None}, DEDUCED, [], [], ["f:a"]),
        ({"a": {"b": 1}}, {"a": [1]}, DEDUCED, [], [], ["f:a"]),
        ({"a": [1]}, {"a": [1, 2]}, DEDUCED, [], [], ["f:a"]),
        ({"a": 1}, {"a": 1}, DEDUCED, [], [], []),
        ({}, {"a": {}, "b": []}, DEDUCED, ["f:a", "f:b"], [], []),
        (
            {},
            {"ports": [{"name": "web", "port": 80}]},
            SHAPE,
            ["f:ports", f"f:ports {WEB}", f"f:ports {WEB} f:name", f"f:ports {WEB} f:port"],
            [],
            [],
        ),
        (
            {"ports": [{"name": "web", "port": 80}, {"name": "ssh"}]},
            {"ports": [{"name": "web", "port": 81}]},
            SHAPE,
            [],
            ['f:ports k:{"name":"ssh"}', 'f:ports k:{"name":"ssh"} f:name'],
            [f"f:ports {WEB} f:port"],
        ),
        ({"tags": ["a"]}, {"tags": ["a", "b"]}, SHAPE, ['f:tags v:"b"'], [], []),
        ({}, {"whole": {"a": 1}}, SHAPE, ["f:whole"], [], []),
        ({"whole": {"a": 1}}, {"whole": {"a": 2}}, SHAPE, [], [], ["f:whole"]),
    ],
)
def test_compare_returns_added_removed_and_modified(
    old: Any, new: Any, shape: Shape, added: list[str], removed: list[str], modified: list[str]
) -> None:
    found = compare(old, new, shape)
    assert (text(found.added), text(found.removed), text(found.modified)) == (added, removed, modified)


def test_keyword_is_found_at_any_depth() -> None:
    mentions = has_keyword("x-kubernetes-list-type")
    without = {"properties": {"a": {"type": "array"}}}
    assert [mentions(s) for s in (SPEC, without, SPEC, without)] == [True, False, True, False]
    assert mentions({"anyOf": [{"items": {"x-kubernetes-list-type": "set"}}]})


def test_keywords_distinguish_schemas_at_reused_addresses() -> None:
    mentions = has_keyword("a")
    # Create more schemas than the cache keeps, at reused addresses if possible.
    assert [mentions({"a" if n % 3 else "b": n}) for n in range(30_000)] == [bool(n % 3) for n in range(30_000)]
