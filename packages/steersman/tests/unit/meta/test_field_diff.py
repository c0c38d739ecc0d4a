"""``steersman.meta.field_diff``: fields in which two objects differ."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.api.core_v1 import Secret
from steersman.meta import ApiResource, ObjectMeta, unstructured
from steersman.meta.field_diff import field_differences

WIDGET = unstructured(ApiResource("example.com", "v1", "Widget", "widgets"))


def widget(**spec: Any) -> Any:
    return WIDGET.of({"metadata": {"name": "a"}, "spec": spec})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, [(("b",), 2, 3)]),
        ({"a": 1}, {"b": 2}, [(("a",), 1, None), (("b",), None, 2)]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, [(("a", 1, "b"), 2, 3)]),
        ({"a": [1]}, {"a": [1, 2]}, [(("a",), [1], [1, 2])]),
        ({"a": 1}, {"a": True}, [(("a",), 1, True)]),
        ({"a": {"b": 1}}, {"a": 1}, [(("a",), {"b": 1}, 1)]),
        ({"a": [1, 2]}, {"a": [1, 2]}, []),
        (1, 2, [((), 1, 2)]),
        (
            Secret(metadata=ObjectMeta(name="a", resource_version="1")),
            Secret(metadata=ObjectMeta(name="a", resource_version="2")),
            [(("metadata", "resourceVersion"), "1", "2")],
        ),
        (widget(size=1), widget(size=2), [(("spec", "size"), 1, 2)]),
    ],
)
def test_field_differences_yield_deepest_fields(old: Any, new: Any, expected: list[Any]) -> None:
    assert list(field_differences(old, new)) == expected


def test_field_differences_absent_value_is_configurable() -> None:
    assert list(field_differences({}, {"a": None}, absent="absent")) == [(("a",), "absent", None)]
