"""Patterns of RE2 in Python."""

from __future__ import annotations

import pytest

from steersman.meta.patterns import PatternError, UnsupportedPattern, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^[[:alpha:]]+$", "orders", True),
        ("^[[:alpha:]]+$", "orders1", False),
        ("^[a[:digit:]]+$", "a1", True),
        ("orders$", "orders\n", False),
        ("(?m)orders$", "orders\nnew", True),
        ("(?m:orders$)", "orders\nnew", True),
        ("(?m:a)orders$", "aorders\nnew", False),
        ("(?i)orders", "ORDERS", True),
        ("(?i:or)ders", "ORders", True),
        ("(?i:or)ders", "ORDERS", False),
        (r"^\x{6F}rders$", "orders", True),
        ("(?P<name>or)ders", "orders", True),
    ],
)
def test_pattern_matches_as_in_re2(pattern: str, text: str, found: bool) -> None:
    assert (compile_pattern(pattern).search(text) is not None) is found


@pytest.mark.parametrize("pattern", ["orders(", "(?=orders)", r"(o)\1", "[[:letters:]]", "[z-a]"])
def test_pattern_that_re2_rejects_raises(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(?U)orders*", r"\pL", "[[:^alpha:]]"])
def test_pattern_without_translation_raises(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        compile_pattern(pattern)
