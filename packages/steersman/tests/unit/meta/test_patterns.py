"""Patterns of RE2 in Python."""

from __future__ import annotations

import time

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
        (r"^\x6Frders$", "orders", True),
        ("(or){1}{٣}", "or{٣}", True),
        ("(" * 99 + "a" + ")" * 99, "a", True),
        (r"^[\w-.]+$", "a.-b", True),
        (r"^[\s\S]$", "\v", True),
        (r"^[\0[:digit:]]$", "\1", False),
        (r"^[\.-a]$", "A", True),
        (r"^\101\12$", "A\n", True),
    ],
)
def test_pattern_matches_as_in_re2(pattern: str, text: str, found: bool) -> None:
    assert (compile_pattern(pattern).search(text) is not None) is found


@pytest.mark.parametrize(
    "pattern",
    [
        *("orders(", "(?=orders)", r"(o)\1", "[[:letters:]]", "[[:^a b:]]", "[z-a]"),
        *(r"\x{110000}", rf"\x{{{'F' * 3000}}}", r"\x\x{41}a", r"[\b]", r"\€"),
        *("(?P<é>x)", "a{1001}", "a{2,1}", f"a{{{'9' * 5000}}}"),
        *("(a{1000}){1000}", "((a{10}){10}b{3}){11}"),
        *(r"[\\--~]", r"[\x41--]a]", r"[\]--a]", r"[\_--0]", r"[\w\.--]", r"[\x01-\s]", r"[]--a]", r"\1"),
    ],
)
def test_pattern_that_re2_rejects_raises(pattern: str) -> None:
    for syntax_only in (False, True):
        with pytest.raises(PatternError):
            compile_pattern(pattern, syntax_only=syntax_only)


@pytest.mark.parametrize("pattern", ["(" * 600 + "a" + ")" * 600, "(?i)" * 600 + "a"])
def test_deeply_nested_pattern_raises(pattern: str) -> None:
    with pytest.raises(PatternError, match="expression nests too deeply"):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a*b+c?){1000}", "((a{10}){10}b{3}){10}", "(a{1000}){0}", "((a+)*)*" * 20])
def test_pattern_within_limits_of_re2_compiles(pattern: str) -> None:
    compile_pattern(pattern)


def test_syntax_of_large_classes_is_checked_fast() -> None:
    began = time.process_time()
    compile_pattern("(?i)" + "[\u0100-\uffff]" * 800, syntax_only=True)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("pattern", ["(?U)orders*", r"\pL", r"[\P{Greek}]", "[[:^alpha:]]"])
def test_pattern_without_translation_raises(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        compile_pattern(pattern)
