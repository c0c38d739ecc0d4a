"""Resolution of ``fieldPath`` and ``selectableFields`` in a schema.

Source: ``ValidFieldPath`` in ``pkg/apiserver/schema/cel/validation.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from steersman_testing.apiserver.values import JsonObject, is_map

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]]+")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class InvalidFieldPath(Exception):
    """A path is malformed or does not exist in the schema."""


class ResolvedPath(NamedTuple):
    """A resolved path.

    Attributes:
        path: the path in errors.
        root: its first field.
        schema: the schema of its value.
    """

    path: str
    root: str
    schema: JsonObject | None


def resolve_path(path: str, schema: JsonObject, *, brackets: bool = True) -> ResolvedPath:
    """Resolve a path such as ``.spec.a['b']`` in ``schema``.

    Raises:
        InvalidFieldPath: the path is malformed, or the field does not exist.
    """
    found = ResolvedPath("", "", schema)
    steps: Iterator[str] = iter(_TOKEN.findall(path))
    for step in steps:
        if step == "[":
            if not brackets:
                raise InvalidFieldPath("array notation is not allowed")
            quoted = _next_token(steps)
            if len(quoted) < 2 or quoted[0] != "'" or quoted[-1] != "'":
                raise InvalidFieldPath(f"expected single quoted string but got {quoted}")
            name = _unquote(quoted)
            found = _resolve_step(found, name)
            if (closing := _next_token(steps)) != "]":
                raise InvalidFieldPath(f"expected ] but got {closing}")
        elif step == ".":
            found = _resolve_step(found, _next_token(steps))
        else:
            raise InvalidFieldPath(f"expected [ or . but got: {step}")
    return found


def _next_token(steps: Iterator[str]) -> str:
    found = next(steps, None)
    if found is None:
        raise InvalidFieldPath("unexpected end of JSON path")
    return found


def _unquote(quoted: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = _ESCAPES.get(match[0][1])
        if escaped is None:
            raise InvalidFieldPath(f"invalid string literal: invalid escape char {match[0]}")
        return escaped

    return re.sub(r"\\.", replace, quoted[1:-1])


def _resolve_step(found: ResolvedPath, name: str) -> ResolvedPath:
    schema = found.schema or {}
    properties = schema.get("properties")
    if is_map(properties):
        inner = properties.get(name)
        if not is_map(inner):
            raise InvalidFieldPath("does not refer to a valid field")
        return ResolvedPath(f"{found.path}.{name}" if found.path else name, found.root or name, inner)
    if "additionalProperties" not in schema:
        raise InvalidFieldPath("does not refer to a valid field")
    inner = schema["additionalProperties"]
    return ResolvedPath(f"{found.path}[{name}]", found.root or name, inner if is_map(inner) else None)
