"""Validation of constants, which cel-go checks before evaluation.

Source: ``cel/validator.go`` and ``interpreter/decorators.go`` of cel-go, as ``pkg/cel/environment/base.go`` of
``k8s.io/apiserver`` configures them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from steersman.errors import ApiError
from steersman_cel.checker import CheckedExpr
from steersman_cel.formatting import format_error
from steersman_cel.patterns import PatternError, compile_pattern
from steersman_cel.syntax_tree import Call, Ident, ListExpr, Literal, MapExpr, Node, Tree, children
from steersman_cel.types import Type

_DURATION_PATTERN = re.compile(r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|[-+]?0", re.ASCII)
CONVERSION_FUNCTIONS = ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "uint")
"""Functions of one argument that are evaluated at compile time on constants."""


def mixed_type_literals(tree: Tree, checked: CheckedExpr) -> Iterator[tuple[int, str]]:
    """List and map literals with mixed types, by node id. Arguments of ``format`` are left out."""
    for node in _walk_outside_format(tree.root):
        if isinstance(node, ListExpr):
            optional = set(node.optional)
            parts = [(item.id, _element_type(checked, item, i in optional)) for i, item in enumerate(node.items)]
            yield from list(_mismatched(parts))[:1]
        elif isinstance(node, MapExpr) and not node.name:
            keys = [(e.key.id, _element_type(checked, e.key, optional=False)) for e in node.entries]
            values = [(e.value.id, _element_type(checked, e.value, optional=e.optional)) for e in node.entries]
            yield from [*_mismatched(keys), *_mismatched(values)]


def _walk_outside_format(node: Node) -> Iterator[Node]:
    if isinstance(node, Call) and node.function == "format":
        return
    yield node
    for part in children(node):
        yield from _walk_outside_format(part)


def _element_type(checked: CheckedExpr, node: Node, optional: bool) -> Type:
    found = checked.types[node.id]
    return found.params[0] if optional and found.params else found


def _mismatched(parts: list[tuple[int, Type]]) -> Iterator[tuple[int, str]]:
    for ident, found in parts[1:]:
        if found != parts[0][1]:
            yield ident, f"expected type '{parts[0][1]}' but found '{found}'"


def invalid_literals(tree: Tree, checked: CheckedExpr) -> Iterator[tuple[int, str]]:
    """Invalid durations, timestamps, patterns and format strings, by node id."""
    for node in walk(tree.root):
        if not isinstance(node, Call):
            continue
        first = node.args[0] if node.args else None
        if isinstance(first, Literal) and _is_invalid(node.function, first):
            yield first.id, f"invalid {node.function} argument"
        if node.function == "format" and isinstance(node.target, Literal) and isinstance(first, ListExpr):
            kinds = [_format_type_name(checked.types[item.id]) for item in first.items]
            position, text = format_error(node.target.text, kinds)
            if text:
                yield (node.id if position is None else first.items[position].id), text


def _format_type_name(found: Type) -> str:
    return "dyn" if found.is_type_param else found.name


def _is_invalid(function: str, literal: Literal) -> bool:
    match function:
        case "duration":
            return literal.kind != "string" or not _is_duration(literal.text)
        case "timestamp":
            return literal.kind == "string" and not is_timestamp(literal.text)
        case "matches":
            # The engine accepts other patterns than RE2.
            return literal.kind == "string" and _is_invalid_pattern(literal.text)
        case _:
            return False


_HOURS_PER_UNIT = {"h": 1.0, "m": 1 / 60, "s": 1 / 3600, "ms": 1 / 3.6e6}
_MAX_HOURS = 2562047.788


def _is_duration(text: str) -> bool:
    if not _DURATION_PATTERN.fullmatch(text):
        return False
    parts = re.findall(r"([\d.]+)([a-zµμ]+)", text)
    return sum(float(n) * _HOURS_PER_UNIT.get(unit, 0) for n, unit in parts) < _MAX_HOURS


_TIMESTAMP_PATTERN = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,]\d+)?(?:Z|[+-](\d\d):(\d\d))", re.ASCII
)
_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_timestamp(text: str) -> bool:
    """Return True for an RFC 3339 time, years 1 to 9999."""
    found = _TIMESTAMP_PATTERN.fullmatch(text)
    if found is None:
        return False
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    valid_date = year >= 1 and 1 <= month <= 12 and 1 <= day <= _DAYS_IN_MONTH[month - 1] + leap
    return valid_date and hour < 24 and minute < 60 and second < 60


def _is_invalid_pattern(pattern: str) -> bool:
    try:
        return _pattern_error(pattern) != ""
    except ApiError:
        return False


def _pattern_error(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except PatternError as error:
        return str(error)
    return ""


def constant_errors(tree: Tree) -> Iterator[str]:
    """Errors of constants in ``tree`` that need no evaluation."""
    for node in walk(tree.root):
        if isinstance(node, Ident) and node.name in ("duration", "timestamp"):
            yield f"reference to undefined type: {node.name}"
        if isinstance(node, Call) and node.function in ("find", "findAll") and node.args:
            pattern = node.args[0] if node.target is not None else node.args[-1]
            if isinstance(pattern, Literal) and (text := _pattern_error(pattern.text)):
                yield text


def constant_calls(tree: Tree) -> list[Call]:
    """Conversions of constants, innermost first."""
    return [n for n in reversed(list(walk(tree.root))) if isinstance(n, Call) and _is_constant(n)]


def _is_constant(node: Node) -> bool:
    if isinstance(node, Literal):
        return True
    if not isinstance(node, Call) or node.target is not None or node.function not in CONVERSION_FUNCTIONS:
        return False
    return len(node.args) == 1 and _is_constant(node.args[0])


def walk(node: Node) -> Iterator[Node]:
    """``node`` and its descendants, outermost first."""
    yield node
    for part in children(node):
        yield from walk(part)
