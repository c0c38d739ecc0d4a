"""What cel-go makes of constants before anything is evaluated, and refuses: an expression never gets further.

Source: ``cel/validator.go`` and ``interpreter/decorators.go`` of cel-go, as ``pkg/cel/environment/base.go`` of
``k8s.io/apiserver`` sets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from steersman.errors import ApiError
from steersman_cel.checker import Checked
from steersman_cel.formatting import problem
from steersman_cel.patterns import PatternError, compiled
from steersman_cel.syntax import Call, Ident, ListOf, Literal, MapOf, Node, Tree, children
from steersman_cel.types import Type

_DURATION = re.compile(r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|[-+]?0", re.ASCII)
CONVERSIONS = ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "uint")
"""Functions of one argument that are called once and for all where that is a constant."""


def mixed_literals(tree: Tree, checked: Checked) -> Iterator[tuple[int, str]]:
    """The lists and maps that hold things of several types, but for those that are formatted; and where."""
    for node in _unformatted(tree.root):
        if isinstance(node, ListOf):
            optional = set(node.optional)
            parts = [(item.id, _known(checked, item, i in optional)) for i, item in enumerate(node.items)]
            yield from list(_odd(parts))[:1]
        elif isinstance(node, MapOf) and not node.name:
            keys = [(e.key.id, _known(checked, e.key, optional=False)) for e in node.entries]
            values = [(e.value.id, _known(checked, e.value, optional=e.optional)) for e in node.entries]
            yield from [*_odd(keys), *_odd(values)]


def _unformatted(node: Node) -> Iterator[Node]:
    if isinstance(node, Call) and node.function == "format":
        return
    yield node
    for part in children(node):
        yield from _unformatted(part)


def _known(checked: Checked, node: Node, optional: bool) -> Type:
    found = checked.types[node.id]
    return found.params[0] if optional and found.params else found


def _odd(parts: list[tuple[int, Type]]) -> Iterator[tuple[int, str]]:
    for ident, found in parts[1:]:
        if found != parts[0][1]:
            yield ident, f"expected type '{parts[0][1]}' but found '{found}'"


def unfit_literals(tree: Tree, checked: Checked) -> Iterator[tuple[int, str]]:
    """The constants that are no times, no patterns, or that do not fit what formats them."""
    for node in nodes(tree.root):
        if not isinstance(node, Call):
            continue
        first = node.args[0] if node.args else None
        if isinstance(first, Literal) and _is_unfit(node.function, first):
            yield first.id, f"invalid {node.function} argument"
        if node.function == "format" and isinstance(node.target, Literal) and isinstance(first, ListOf):
            kinds = [_format_kind(checked.types[item.id]) for item in first.items]
            position, text = problem(node.target.text, kinds)
            if text:
                yield (node.id if position is None else first.items[position].id), text


def _format_kind(found: Type) -> str:
    return "dyn" if found.param else found.name


def _is_unfit(function: str, literal: Literal) -> bool:
    match function:
        case "duration":
            return literal.kind != "string" or not _is_duration(literal.text)
        case "timestamp":
            return literal.kind == "string" and not is_timestamp(literal.text)
        case "matches":
            # The engine has patterns of its own.
            return literal.kind == "string" and _is_wrong(literal.text)
        case _:
            return False


_HOURS = {"h": 1.0, "m": 1 / 60, "s": 1 / 3600, "ms": 1 / 3.6e6}
_MOST_HOURS = 2562047.788


def _is_duration(text: str) -> bool:
    if not _DURATION.fullmatch(text):
        return False
    parts = re.findall(r"([\d.]+)([a-zµμ]+)", text)
    return sum(float(n) * _HOURS.get(unit, 0) for n, unit in parts) < _MOST_HOURS


_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,]\d+)?(?:Z|[+-](\d\d):(\d\d))", re.ASCII)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_timestamp(text: str) -> bool:
    """Whether ``text`` is a time as RFC 3339 has it, from the year 1 to 9999."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return False
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    whole = year >= 1 and 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1] + leap
    return whole and hour < 24 and minute < 60 and second < 60


def _is_wrong(pattern: str) -> bool:
    try:
        return _wrong_pattern(pattern) != ""
    except ApiError:
        return False


def _wrong_pattern(pattern: str) -> str:
    try:
        compiled(pattern)
    except PatternError as error:
        return str(error)
    return ""


def wrong_constants(tree: Tree) -> Iterator[str]:
    """Why no program can be made of ``tree``, as far as no call must be made for that."""
    for node in nodes(tree.root):
        if isinstance(node, Ident) and node.name in ("duration", "timestamp"):
            yield f"reference to undefined type: {node.name}"
        if isinstance(node, Call) and node.function in ("find", "findAll") and node.args:
            pattern = node.args[0] if node.target is not None else node.args[-1]
            if isinstance(pattern, Literal) and (text := _wrong_pattern(pattern.text)):
                yield text


def constant_calls(tree: Tree) -> list[Call]:
    """The conversions of constants, innermost first."""
    return [n for n in reversed(list(nodes(tree.root))) if isinstance(n, Call) and _is_constant(n)]


def _is_constant(node: Node) -> bool:
    if isinstance(node, Literal):
        return True
    if not isinstance(node, Call) or node.target is not None or node.function not in CONVERSIONS:
        return False
    return len(node.args) == 1 and _is_constant(node.args[0])


def nodes(node: Node) -> Iterator[Node]:
    """``node`` and all within, outermost first."""
    yield node
    for part in children(node):
        yield from nodes(part)
