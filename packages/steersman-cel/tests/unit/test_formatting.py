"""``steersman_cel.formatting``: the CEL function ``format``, and numbers and times in Go's notation."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman_cel.formatting import format_error, format_string, format_time
from steersman_cel.numbers import format_go_float


@pytest.mark.parametrize(
    ("template", "arguments", "expected"),
    [
        ("100%%", [], "100%"),
        ("%s", ["a"], "a"),
        ("%s", [True], "true"),
        ("%s", [None], "null"),
        ("%s", [1.5], "1.5"),
        ("%s", [math.inf], "+Inf"),
        ("%s", [b"ab"], "ab"),
        ("%s", [[1, "a", None]], '[1, "a", null]'),
        ("%s", [{"b": 1, "a": 2.5}], '{"a":2.500000, "b":1}'),
        ("%s", [timedelta(seconds=90)], "90s"),
        ("%d", [-7], "-7"),
        ("%.2f", [1234.567], "1,234.57"),
        ("%f", ["Infinity"], "∞"),
        ("%e", [1234.5], "1.234500\u00d710⁰³"),
        ("%b", [5], "101"),
        ("%b", [True], "1"),
        ("%x", [255], "ff"),
        ("%X", ["az"], "617A"),
        ("%o", [8], "10"),
    ],
)
def test_format_string_formats_clauses(template: str, arguments: list[Any], expected: str) -> None:
    assert format_string(template, arguments) == expected


@pytest.mark.parametrize(
    ("template", "arguments", "message"),
    [
        ("%s", [], "index 0 out of range"),
        ("%", [1], "unexpected end of string"),
        ("%z", [1], 'unrecognized formatting clause "z"'),
        ("%d", ["a"], "decimal clause can only be used on integers, was given string"),
        ("%s", [b"\xff"], "invalid UTF-8 in bytes"),
    ],
)
def test_format_string_invalid_arguments_raise(template: str, arguments: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        format_string(template, arguments)


@pytest.mark.parametrize(
    ("template", "types", "position", "message"),
    [
        ("%d and %s", ["int", "dyn"], None, ""),
        ("%s %d", ["string", "string"], 1, "decimal clause can only be used on integers"),
        ("%s", ["int", "int"], None, "too many arguments supplied to string.format (expected 1, got 2)"),
        ("%.f", ["double"], None, "error while parsing precision"),
    ],
)
def test_format_error_checks_types(template: str, types: list[str], position: int | None, message: str) -> None:
    found, text = format_error(template, types)
    assert found == position
    assert message in text and bool(message) == bool(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(seconds=-1.5), "-1.5s"),
        (timedelta(0), "0s"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 120000, tzinfo=UTC), "2026-01-02T03:04:05.12Z"),
    ],
)
def test_format_time_omits_trailing_zeros(value: datetime | timedelta, expected: str) -> None:
    assert format_time(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (1e-5, "1e-05"),
        (-2.5, "-2.5"),
        (0.0, "0"),
    ],
)
def test_format_go_float_equals_go(value: float, expected: str) -> None:
    assert format_go_float(value) == expected
