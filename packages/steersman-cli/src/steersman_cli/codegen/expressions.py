"""Expressions as Python source, laid out as ``ruff format`` and Black leave them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

INDENT = "    "


@dataclass(frozen=True)
class Bracketed:
    """Parts in brackets: ``open`` is what stands before the first, bracket included."""

    open: str
    parts: tuple[Expression, ...]
    close: str
    is_tuple: bool = False


@dataclass(frozen=True)
class UnionType:
    """Types of which one holds."""

    members: tuple[Expression, ...]


Expression: TypeAlias = str | Bracketed | UnionType


def call(name: str, *parts: Expression) -> Bracketed:
    """``name(part, …)``."""
    return Bracketed(f"{name}(", parts, ")")


def subscript(name: str, *parts: Expression) -> Bracketed:
    """``name[part, …]``."""
    return Bracketed(f"{name}[", parts, "]")


def keyword_argument(name: str, value: Expression) -> Expression:
    """The argument ``name=value``, or the member ``name: value`` where the name ends so."""
    separator = "" if name.endswith(": ") else "="
    if isinstance(value, Bracketed):
        return replace(value, open=f"{name}{separator}{value.open}")
    return f"{name}{separator}{render_flat(value)}"


def literal(value: Any) -> Expression:
    """A JSON value as Python that cannot be changed, but for maps."""
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, list | tuple):
        return tuple_literal(literal(v) for v in cast("list[Any]", value))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return Bracketed(
            "{", tuple(keyword_argument(f"{string_literal(k)}: ", literal(v)) for k, v in members.items()), "}"
        )
    return repr(value)


def tuple_literal(parts: Iterator[Expression] | tuple[Expression, ...]) -> Bracketed:
    """A tuple."""
    return Bracketed("(", tuple(parts), ")", is_tuple=True)


def string_literal(value: str) -> str:
    """A string literal, in the quotes that need fewer backslashes."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    body = "".join(_escaped(c, quote) for c in value)
    return f"{quote}{body}{quote}"


def _escaped(character: str, quote: str) -> str:
    if character in ("\\", quote):
        return f"\\{character}"
    return character if character.isprintable() else repr(character)[1:-1]


def render_flat(expression: Expression) -> str:
    """``expression`` on one line."""
    if isinstance(expression, str):
        return expression
    if isinstance(expression, UnionType):
        return " | ".join(render_flat(m) for m in expression.members)
    inner = ", ".join(render_flat(p) for p in expression.parts)
    comma = "," if expression.is_tuple and len(expression.parts) == 1 else ""
    return f"{expression.open}{inner}{comma}{expression.close}"


def render_lines(expression: Expression, width: int, indent: str = "", suffix: str = ",") -> Iterator[str]:
    """``expression`` on as few lines of ``width`` columns as that takes, ``after`` at the end of the last."""
    single_line = f"{indent}{render_flat(expression)}{suffix}"
    if (
        isinstance(expression, str)
        or len(single_line) <= width
        or (isinstance(expression, Bracketed) and not expression.parts)
    ):
        yield single_line
    elif isinstance(expression, UnionType):
        first, *others = expression.members
        yield from render_lines(first, width, indent, "")
        for position, member in enumerate(others, start=1):
            end = suffix if position == len(others) else ""
            yield from _prefixed_lines("| ", member, width, indent, end)
    else:
        yield f"{indent}{expression.open}"
        for part in expression.parts:
            yield from render_lines(part, width, indent + INDENT)
        yield f"{indent}{expression.close}{suffix}"


def _prefixed_lines(prefix: str, member: Expression, width: int, indent: str, suffix: str) -> Iterator[str]:
    first, *others = render_lines(member, width - len(prefix), indent, suffix)
    yield f"{indent}{prefix}{first.removeprefix(indent)}"
    yield from others


def attribute_lines(name: str, annotation: Expression, value: Expression | None, width: int) -> Iterator[str]:
    """An attribute of a class, four columns in."""
    end = "" if value is None else f" = {render_flat(value)}"
    single_line = f"{INDENT}{name}: {render_flat(annotation)}{end}"
    if len(single_line) <= width:
        yield single_line
    elif isinstance(annotation, Bracketed):
        closing = f"{INDENT}{annotation.close}{end}"
        yield f"{INDENT}{name}: {annotation.open}"
        for part in annotation.parts:
            yield from render_lines(part, width, INDENT * 2)
        if len(closing) <= width or not isinstance(value, Bracketed):
            yield closing
        else:
            yield from _exploded_lines(f"{annotation.close} = ", value, width)
    elif value is not None and len(f"{INDENT}{name}: {render_flat(annotation)} = {_opening_bracket(value)}") <= width:
        yield from _exploded_lines(f"{name}: {render_flat(annotation)} = ", value, width)
    elif value is not None and len(f"{INDENT}{name}: {render_flat(annotation)} = (") <= width:
        yield from _exploded_lines(f"{name}: {render_flat(annotation)} = ", render_flat(value), width)
    elif isinstance(annotation, UnionType):
        yield f"{INDENT}{name}: ("
        yield from render_lines(annotation, width, INDENT * 2, "")
        yield f"{INDENT}){end}"
    elif value is None and len(f"{INDENT * 2}{render_flat(annotation)}") <= width:
        yield from (f"{INDENT}{name}: (", f"{INDENT * 2}{render_flat(annotation)}", f"{INDENT})")
    else:
        yield single_line


def _opening_bracket(value: Expression) -> str:
    return value.open if isinstance(value, Bracketed) else "("


def _exploded_lines(prefix: str, value: Expression, width: int) -> Iterator[str]:
    if not isinstance(value, Bracketed):
        yield from (f"{INDENT}{prefix}(", f"{INDENT * 2}{render_flat(value)}", f"{INDENT})")
        return
    yield f"{INDENT}{prefix}{value.open}"
    for part in value.parts:
        yield from render_lines(part, width, INDENT * 2)
    yield f"{INDENT}{value.close}"


def docstring_lines(description: str, width: int, indent: str = INDENT) -> Iterator[str]:
    """A description as a docstring whose paragraphs and lists are as they were."""
    body = description.expandtabs(4).strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if body.endswith('"'):
        body = f'{body[:-1]}\\"'
    # Quotes stand on both sides of a single line, and in front of the first of several.
    text_width = width - len(indent) - (6 if "\n" not in body and len(body) <= width - len(indent) - 3 else 3)
    wrapped = [line.rstrip() for long in body.splitlines() for line in _wrap(long, text_width)]
    if len(wrapped) == 1:
        yield f'{indent}"""{wrapped[0]}"""'
        return
    yield f'{indent}"""{wrapped[0]}'
    for line in wrapped[1:]:
        yield f"{indent}{line}" if line else ""
    yield f'{indent}"""'


def _wrap(line: str, width: int) -> list[str]:
    margin = line[: len(line) - len(line.lstrip())]
    found = textwrap.wrap(
        line, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False, tabsize=4
    )
    return found or [""]
