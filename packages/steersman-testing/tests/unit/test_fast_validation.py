"""The fast validation never accepts a value that the full validation rejects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman_testing.apiserver.schemas.fast_validation import is_certainly_valid
from steersman_testing.apiserver.schemas.validation import check_value
from steersman_testing.apiserver.values import MISSING

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 7, 2**31, 2**63, -(2**63)])
    | st.sampled_from(["", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
KEYWORDS: dict[str, st.SearchStrategy[Any]] = {
    "enum": st.lists(st.sampled_from(["a", "ab", 1, True]), min_size=1),
    "pattern": st.sampled_from(["^a", "b$", ""]),
    "minLength": st.integers(0, 2),
    "maxLength": st.integers(0, 2),
    "minimum": st.sampled_from([0, 1, 7, 2**31, 0.5]),
    "maximum": st.sampled_from([0, 1, 7, 2**31, 0.5]),
    "exclusiveMinimum": st.booleans(),
    "format": st.sampled_from(["int32", "int64", "ipv4", "float"]),
    "multipleOf": st.sampled_from([1, 2]),
    "minItems": st.integers(0, 2),
    "maxProperties": st.integers(0, 2),
    "nullable": st.booleans(),
    "required": st.lists(st.sampled_from("abc"), max_size=2),
    "x-kubernetes-int-or-string": st.just(True),
    "x-kubernetes-preserve-unknown-fields": st.just(True),
    "description": st.just("of no account"),
}
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    below: dict[str, st.SearchStrategy[Any]] = {
        "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        "additionalProperties": inner | st.booleans(),
        "items": inner,
        "not": inner,
        "anyOf": st.lists(inner, min_size=1, max_size=2),
    }
    return st.fixed_dictionaries({"type": TYPES}, optional=below).flatmap(
        lambda created: st.dictionaries(st.sampled_from(sorted(KEYWORDS)), st.none(), max_size=2).flatmap(
            lambda chosen: st.fixed_dictionaries({k: KEYWORDS[k] for k in chosen}).map(
                lambda more: {**created, **more}
            )
        )
    )


@settings(max_examples=300, deadline=None)
@given(VALUES, st.recursive(schemas(st.just({"type": "string"})), schemas, max_leaves=3))
def test_certainly_valid_values_have_no_errors(value: Any, schema: dict[str, Any]) -> None:
    if is_certainly_valid(value, schema):
        assert check_value(value, MISSING, schema, "").errors == []


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({"a": 1}, {"type": "object", "properties": {"a": {"type": "integer", "format": "int64", "minimum": 1}}}),
        ({"a": "x"}, {"type": "object", "additionalProperties": {"type": "string", "maxLength": 1}}),
        ({"z": None}, {"type": "object", "description": "Metadata."}),
        (["a"], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        ("ab", {"type": "string", "pattern": "^a", "minLength": 2}),
        (False, {"type": "boolean", "default": True}),
    ],
)
def test_certainly_valid_accepts_simple_values(value: Any, schema: dict[str, Any]) -> None:
    assert is_certainly_valid(value, schema)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({}, {"type": "object", "required": ["a"]}),
        ({"a": 1}, {"type": "object", "properties": {"a": {"type": "string"}}}),
        ({"a": 1}, {"type": "object", "additionalProperties": False}),
        (True, {"type": "integer"}),
        (1.0, {"type": "integer"}),
        (1, {"type": "number"}),
        (2**31, {"type": "integer", "format": "int32"}),
        (0, {"type": "integer", "minimum": 1}),
        (None, {"type": "string", "nullable": True}),
        ("a", {"type": "string", "format": "ipv4"}),
        ("a", {"type": "string", "anyOf": [{"pattern": "b"}]}),
        ("a", {}),
    ],
)
def test_certainly_valid_rejects_undecided_values(value: Any, schema: dict[str, Any]) -> None:
    assert not is_certainly_valid(value, schema)
