"""Functions that CEL has in Kubernetes: quantities, versions, strings, names and patterns."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steersman.errors import ApiError
from steersman_cel.name_validation import (
    dns1035_label_error,
    dns1123_label_error,
    dns1123_subdomain_error,
    label_value_error,
    qualified_name_error,
)
from steersman_cel.patterns import PatternError, compile_pattern
from steersman_cel.quantities import add_quantities, decode_quantity, is_encoded_quantity, parse_quantity
from steersman_cel.semver import compare_versions, parse_version
from steersman_cel.strings import char_at, index_of, last_index_of, substring


@pytest.mark.parametrize(
    ("text", "value", "integer"),
    [
        ("1Ki", 1024, 1024),
        ("1.5Gi", 1610612736, None),
        ("500m", "0.5", None),
        ("2k", 2000, 2000),
        ("1e3", 1000, 1000),
        ("-3", -3, -3),
    ],
)
def test_parse_quantity_returns_value(text: str, value: int | str, integer: int | None) -> None:
    found = parse_quantity(text)
    assert found.value == type(found.value)(value)
    assert found.as_integer == integer


@pytest.mark.parametrize("text", ["", "Gi", "1.2.3", "1 Gi", "one"])
def test_parse_quantity_malformed_raises(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match the regular expression"):
        parse_quantity(text)


def test_quantity_encode_round_trips() -> None:
    found = parse_quantity("100m")
    assert is_encoded_quantity(found.encode()) and not is_encoded_quantity("100m")
    assert decode_quantity(found.encode()) == found


def test_add_quantities_adds_values() -> None:
    assert add_quantities(parse_quantity("1Ki"), parse_quantity("24")).value == 1048


@pytest.mark.parametrize(
    ("text", "normalize", "expected"),
    [
        ("1.2.3", False, "1.2.3"),
        ("1.2.3-rc.1+build", False, "1.2.3-rc.1"),
        ("v1.2", True, "1.2.0"),
        ("01.02.03", True, "1.2.3"),
    ],
)
def test_parse_version_returns_canonical_form(text: str, normalize: bool, expected: str) -> None:
    assert parse_version(text, normalize) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Version string empty"),
        ("1.2", "No Major.Minor.Patch elements found"),
        ("01.2.3", "Major number must not contain leading zeroes"),
        ("1.x.3", "Invalid character"),
        ("1.2.3-", "Prerelease is empty"),
    ],
)
def test_parse_version_malformed_raises(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_version(text)


def test_compare_versions_orders_prereleases() -> None:
    ordered = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0",
        "1.2.0",
        "1.10.0",
    ]
    for position, left in enumerate(ordered):
        for other, right in enumerate(ordered):
            assert compare_versions(left, right) == (position > other) - (position < other)


def test_string_functions_use_character_positions() -> None:
    assert (char_at("añb", 1), char_at("ab", 2)) == ("ñ", "")
    assert (substring("abcd", 1), substring("abcd", 1, 3)) == ("bcd", "bc")
    assert (index_of("abab", "b", 2), index_of("abab", "x"), index_of("ab", "", 1)) == (3, -1, 1)
    assert (last_index_of("abab", "ab"), last_index_of("abab", "ab", 1), last_index_of("abab", "")) == (2, 0, 4)


@pytest.mark.parametrize(
    "function", [lambda: char_at("a", 2), lambda: substring("abc", 2, 1), lambda: index_of("a", "a", -1)]
)
def test_string_functions_out_of_range_raise(function: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="range"):
        function()


@pytest.mark.parametrize(
    ("check", "valid", "invalid"),
    [
        (dns1123_subdomain_error, "a.example.com", "A.example.com"),
        (dns1123_label_error, "1-a", "a.b"),
        (dns1035_label_error, "a-1", "1-a"),
        (label_value_error, "", "-a"),
        (qualified_name_error, "example.com/Name", "a/b/c"),
    ],
)
def test_name_errors_report_invalid_names(check: Callable[[str], str], valid: str, invalid: str) -> None:
    assert check(valid) == ""
    assert check(invalid)
    assert "must be no more than 63" in check("a" * 64) or check is dns1123_subdomain_error


def test_compile_pattern_uses_re2_syntax() -> None:
    assert compile_pattern(r"^\Qa.b\E\z").fullmatch("a.b")
    with pytest.raises(PatternError):
        compile_pattern("(?=a)")
    with pytest.raises(ApiError, match="Unicode class"):
        compile_pattern(r"\pL")
