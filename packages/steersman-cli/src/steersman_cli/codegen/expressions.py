"""Python expressions as source text. ``ruff format`` breaks long lines afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast


def call(name: str, *arguments: str) -> str:
    return f"{name}({', '.join(arguments)})"


def subscript(name: str, *parameters: str) -> str:
    return f"{name}[{', '.join(parameters)}]"


def union(*members: str) -> str:
    """``members`` joined by ``|``, without duplicates."""
    return " | ".join(dict.fromkeys(members))


def keyword_argument(name: str, value: str) -> str:
    return f"{name}={value}"


def literal(value: Any) -> str:
    """A JSON value as a Python literal, with tuples for arrays."""
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, list | tuple):
        return tuple_literal(literal(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return f"{{{', '.join(f'{string_literal(key)}: {literal(member)}' for key, member in members.items())}}}"
    return repr(value)


def tuple_literal(items: Iterable[str]) -> str:
    found = tuple(items)
    return f"({found[0]},)" if len(found) == 1 else f"({', '.join(found)})"


def string_literal(value: str) -> str:
    """A string literal, in the quotes that need fewer backslashes."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    return f"{quote}{''.join(_escape(character, quote) for character in value)}{quote}"


def _escape(character: str, quote: str) -> str:
    if character in ("\\", quote):
        return f"\\{character}"
    return character if character.isprintable() else repr(character)[1:-1]
