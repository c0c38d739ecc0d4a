"""Expressions as Python source, laid out as ``ruff format`` and Black leave them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

INDENT = "    "


@dataclass(frozen=True)
class Group:
    """Parts in brackets: ``open`` is what stands before the first, bracket included."""

    open: str
    parts: tuple[Expression, ...]
    close: str
    is_tuple: bool = False


@dataclass(frozen=True)
class Union:
    """Types of which one holds."""

    members: tuple[Expression, ...]


Expression: TypeAlias = str | Group | Union


def call(name: str, *parts: Expression) -> Group:
    """``name(part, …)``."""
    return Group(f"{name}(", parts, ")")


def subscript(name: str, *parts: Expression) -> Group:
    """``name[part, …]``."""
    return Group(f"{name}[", parts, "]")


def named(name: str, value: Expression) -> Expression:
    """The argument ``name=value``, or the member ``name: value`` where the name ends so."""
    separator = "" if name.endswith(": ") else "="
    if isinstance(value, Group):
        return replace(value, open=f"{name}{separator}{value.open}")
    return f"{name}{separator}{flat(value)}"


def literal(value: Any) -> Expression:
    """A JSON value as Python that cannot be changed, but for maps."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list | tuple):
        return sequence(literal(v) for v in cast("list[Any]", value))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return Group("{", tuple(named(f"{text(k)}: ", literal(v)) for k, v in members.items()), "}")
    return repr(value)


def sequence(parts: Iterator[Expression] | tuple[Expression, ...]) -> Group:
    """A tuple."""
    return Group("(", tuple(parts), ")", is_tuple=True)


def text(value: str) -> str:
    """A string literal, in the quotes that need fewer backslashes."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    body = "".join(_escaped(c, quote) for c in value)
    return f"{quote}{body}{quote}"


def _escaped(character: str, quote: str) -> str:
    if character in ("\\", quote):
        return f"\\{character}"
    return character if character.isprintable() else repr(character)[1:-1]


def flat(expression: Expression) -> str:
    """``expression`` on one line."""
    if isinstance(expression, str):
        return expression
    if isinstance(expression, Union):
        return " | ".join(flat(m) for m in expression.members)
    inner = ", ".join(flat(p) for p in expression.parts)
    comma = "," if expression.is_tuple and len(expression.parts) == 1 else ""
    return f"{expression.open}{inner}{comma}{expression.close}"


def lines(expression: Expression, width: int, indent: str = "", after: str = ",") -> Iterator[str]:
    """``expression`` on as few lines of ``width`` columns as that takes, ``after`` at the end of the last."""
    whole = f"{indent}{flat(expression)}{after}"
    if isinstance(expression, str) or len(whole) <= width or (isinstance(expression, Group) and not expression.parts):
        yield whole
    elif isinstance(expression, Union):
        first, *others = expression.members
        yield from lines(first, width, indent, "")
        for position, member in enumerate(others, start=1):
            end = after if position == len(others) else ""
            yield from _prefixed("| ", member, width, indent, end)
    else:
        yield f"{indent}{expression.open}"
        for part in expression.parts:
            yield from lines(part, width, indent + INDENT)
        yield f"{indent}{expression.close}{after}"


def _prefixed(prefix: str, member: Expression, width: int, indent: str, after: str) -> Iterator[str]:
    first, *others = lines(member, width - len(prefix), indent, after)
    yield f"{indent}{prefix}{first.removeprefix(indent)}"
    yield from others


def assignment(name: str, annotation: Expression, value: Expression | None, width: int) -> Iterator[str]:
    """An attribute of a class, four columns in."""
    end = "" if value is None else f" = {flat(value)}"
    whole = f"{INDENT}{name}: {flat(annotation)}{end}"
    if len(whole) <= width:
        yield whole
    elif isinstance(annotation, Group):
        closing = f"{INDENT}{annotation.close}{end}"
        yield f"{INDENT}{name}: {annotation.open}"
        for part in annotation.parts:
            yield from lines(part, width, INDENT * 2)
        if len(closing) <= width or not isinstance(value, Group):
            yield closing
        else:
            yield from _exploded(f"{annotation.close} = ", value, width)
    elif value is not None and len(f"{INDENT}{name}: {flat(annotation)} = {_opening(value)}") <= width:
        yield from _exploded(f"{name}: {flat(annotation)} = ", value, width)
    elif value is not None and len(f"{INDENT}{name}: {flat(annotation)} = (") <= width:
        yield from _exploded(f"{name}: {flat(annotation)} = ", flat(value), width)
    elif isinstance(annotation, Union):
        yield f"{INDENT}{name}: ("
        yield from lines(annotation, width, INDENT * 2, "")
        yield f"{INDENT}){end}"
    elif value is None and len(f"{INDENT * 2}{flat(annotation)}") <= width:
        yield from (f"{INDENT}{name}: (", f"{INDENT * 2}{flat(annotation)}", f"{INDENT})")
    else:
        yield whole


def _opening(value: Expression) -> str:
    return value.open if isinstance(value, Group) else "("


def _exploded(before: str, value: Expression, width: int) -> Iterator[str]:
    if not isinstance(value, Group):
        yield from (f"{INDENT}{before}(", f"{INDENT * 2}{flat(value)}", f"{INDENT})")
        return
    yield f"{INDENT}{before}{value.open}"
    for part in value.parts:
        yield from lines(part, width, INDENT * 2)
    yield f"{INDENT}{value.close}"


def docstring(description: str, width: int, indent: str = INDENT) -> Iterator[str]:
    """A description as a docstring whose paragraphs and lists are as they were."""
    body = description.expandtabs(4).strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if body.endswith('"'):
        body = f'{body[:-1]}\\"'
    # Quotes stand on both sides of a single line, and in front of the first of several.
    room = width - len(indent) - (6 if "\n" not in body and len(body) <= width - len(indent) - 3 else 3)
    wrapped = [line.rstrip() for long in body.splitlines() for line in _wrapped(long, room)]
    if len(wrapped) == 1:
        yield f'{indent}"""{wrapped[0]}"""'
        return
    yield f'{indent}"""{wrapped[0]}'
    for line in wrapped[1:]:
        yield f"{indent}{line}" if line else ""
    yield f'{indent}"""'


def _wrapped(line: str, width: int) -> list[str]:
    margin = line[: len(line) - len(line.lstrip())]
    found = textwrap.wrap(
        line, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False, tabsize=4
    )
    return found or [""]
