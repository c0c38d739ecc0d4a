"""The JSONPath of printer columns, as kubectl's. Source: "JSONPath Support" in the documentation of kubectl."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from steersman_testing.apiserver.values import is_list, is_map

Step = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""(?P<descend>\.\.(?=[\w\[*]))
    | \.?(?<!\.\.)(?P<every>\*)
    | \.?(?P<name>(?:\\.|[^.\[\]\\\s*])+)
    | \[\s*(?P<all>\*)\s*\]
    | \[\s*(?P<indices>-?\d+(?:\s*,\s*-?\d+)*)\s*\]
    | \[(?P<slice>-?\d*:-?\d*(?::\d+)?)\]
    | \[\s*(?P<names>'[^']*'(?:\s*,\s*'[^']*')*)\s*\]
    | \[\s*\?\(\s*(?P<filter>.*?)\s*\)\s*\]""",
    re.VERBOSE,
)
_COMPARISON = re.compile(r"@(?P<path>.*?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<value>.+))?")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def find(path: str, value: Any) -> Iterator[Any]:
    """What ``path``, such as ``.status.conditions[?(@.type=="Ready")].status``, finds in ``value``.

    Raises:
        ValueError: it is not a JSONPath of this kind.
    """
    found = iter((value,))
    for step in _steps(path):
        found = _followed(step, found)
    return found


def _followed(step: Step, values: Iterator[Any]) -> Iterator[Any]:
    return (result for value in values for result in step(value))


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[Step, ...]:
    text = path.removeprefix("$")
    if text and text[0] not in ".[":
        raise ValueError(f"{path!r} is not a JSONPath: it begins with a dot")
    steps: list[Step] = []
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError(f"{path!r} is not a JSONPath: {text[place:]!r} is not understood")
        steps.append(_step(token))
        place = token.end()
    return tuple(steps)


def _step(token: re.Match[str]) -> Step:
    text = token[token.lastgroup or 0]
    match token.lastgroup:
        case "descend":
            return _descend
        case "every" | "all":
            return _children
        case "name":
            return _fields([re.sub(r"\\(.)", r"\1", text)])
        case "names":
            return _fields(re.findall(r"'([^']*)'", text))
        case "indices":
            return _items([int(i) for i in text.split(",")])
        case "slice":
            return _slice(*(int(part) if part else None for part in text.split(":")))
        case _:
            return _filter(text)


def _children(value: Any) -> Iterator[Any]:
    if is_map(value):
        yield from value.values()
    elif is_list(value):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    yield value
    for child in _children(value):
        yield from _descend(child)


def _fields(names: list[str]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if is_map(value):
            yield from (value[name] for name in names if name in value)

    return step


def _items(indices: list[int]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if is_list(value):
            yield from (value[i] for i in indices if -len(value) <= i < len(value))

    return step


def _slice(*bounds: int | None) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if is_list(value):
            yield from value[slice(*bounds)]

    return step


def _filter(text: str) -> Step:
    found = _COMPARISON.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a filter of JSONPath")
    path, sign, value = found["path"], found["sign"], _literal(found["value"])
    _steps(path)

    def holds(item: Any) -> bool:
        results = find(path, item)
        if sign is None:
            return next(results, None) is not None
        return any(_is_like(r, value) and _SIGNS[sign](r, value) for r in results)

    def step(items: Any) -> Iterator[Any]:
        yield from (item for item in _children(items) if holds(item))

    return step


def _is_like(left: Any, right: Any) -> bool:
    numbers = (int, float)
    return type(left) is type(right) or (type(left) in numbers and type(right) in numbers)


def _literal(text: str | None) -> Any:
    if text is None:
        return None
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise ValueError(f"{text!r} is not a value that JSONPath compares with") from None
