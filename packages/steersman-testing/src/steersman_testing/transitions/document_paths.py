"""Paths in a JSON document, such as ``spec.servers[0].port``."""

from __future__ import annotations

import json
import re
from typing import Any

from steersman_testing.apiserver.values import MISSING, JsonObject, is_list, is_map

DocumentPath = tuple[str | int, ...]
"""Field names and list indexes from the root."""

_STEP = re.compile(r'\.?([^.\[\]"]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')
_PLAIN = re.compile(r'[^.\[\]"]+')


def format_path(path: DocumentPath) -> str:
    """Format a path, such as ``spec.labels["example.com/team"]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def parse_path(text: str) -> DocumentPath:
    """Parse the result of ``format_path``. Raises ValueError."""
    path: list[str | int] = []
    offset = 0
    while offset < len(text):
        found = _STEP.match(text, offset)
        if found is None:
            raise ValueError(f"{text!r} is not a path: write it like spec.servers[0].port")
        name, position, quoted = found.groups()
        path.append(int(position) if position else json.loads(quoted) if quoted else name)
        offset = found.end()
    return tuple(path)


def get_value(document: Any, path: DocumentPath) -> Any:
    """Return the value at ``path``, or MISSING."""
    for step in path:
        if isinstance(step, int):
            if not is_list(document) or step >= len(document):
                return MISSING
            document = document[step]
        elif is_map(document) and step in document:
            document = document[step]
        else:
            return MISSING
    return document


def with_value(document: Any, path: DocumentPath, value: Any) -> Any:
    """Return a copy of ``document`` with ``value`` at ``path``. MISSING removes the value.

    Missing parent objects and the next item of a list are created.

    Raises:
        ValueError: if a parent is not an object or list, or the list is too short.
    """
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return _with_item(document, step, rest, value)
    if document is MISSING or document is None:
        document = {}
    if not is_map(document):
        raise ValueError(f"{step} cannot be set in {json.dumps(document)}")
    inner = with_value(document.get(step, MISSING), rest, value) if rest or value is not MISSING else MISSING
    if inner is MISSING:
        return {k: v for k, v in document.items() if k != step}
    result: JsonObject = {**document, step: inner}
    return result


def _with_item(document: Any, position: int, rest: DocumentPath, value: Any) -> Any:
    items: Any = [] if document is MISSING or document is None else document
    if not is_list(items) or position > len(items):
        raise ValueError(f"item {position} cannot be set in {json.dumps(document)}")
    before, here, after = items[:position], items[position : position + 1], items[position + 1 :]
    inner = with_value(here[0] if here else MISSING, rest, value) if rest or value is not MISSING else MISSING
    return [*before, *([] if inner is MISSING else [inner]), *after]
