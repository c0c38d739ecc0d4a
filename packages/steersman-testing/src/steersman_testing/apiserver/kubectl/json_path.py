"""JSONPath of printer columns.

Source: "JSONPath Support" in the documentation of kubectl.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from steersman_testing.apiserver.values import is_list, is_map

PathStep = Callable[[Any], Iterator[Any]]

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
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def find_results(path: str, value: Any) -> Iterator[Any]:
    """Yield the results of a path such as ``.status.conditions[?(@.type=="Ready")].status``.

    Raises:
        ValueError: the path is not supported.
    """
    found = iter((value,))
    for step in _parse_steps(path):
        found = _apply_step(step, found)
    return found


def _apply_step(step: PathStep, values: Iterator[Any]) -> Iterator[Any]:
    return (result for value in values for result in step(value))


@lru_cache(maxsize=256)
def _parse_steps(path: str) -> tuple[PathStep, ...]:
    text = path.removeprefix("$")
    if text and text[0] not in ".[":
        raise ValueError(f"{path!r} is not a JSONPath: start it with a dot")
    steps: list[PathStep] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"{path!r} is not a JSONPath: {text[position:]!r} is not supported")
        steps.append(_step_of_token(token))
        position = token.end()
    return tuple(steps)


def _step_of_token(token: re.Match[str]) -> PathStep:
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


def _fields(names: list[str]) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        if is_map(value):
            yield from (value[name] for name in names if name in value)

    return step


def _items(indices: list[int]) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        if is_list(value):
            yield from (value[i] for i in indices if -len(value) <= i < len(value))

    return step


def _slice(*bounds: int | None) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        if is_list(value):
            yield from value[slice(*bounds)]

    return step


def _filter(text: str) -> PathStep:
    found = _COMPARISON.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a filter of JSONPath")
    path, operator_text, value = found["path"], found["sign"], _literal(found["value"])
    _parse_steps(path)

    def item_matches(item: Any) -> bool:
        results = find_results(path, item)
        if operator_text is None:
            return next(results, None) is not None
        return any(_is_comparable(r, value) and _OPERATORS[operator_text](r, value) for r in results)

    def step(items: Any) -> Iterator[Any]:
        yield from (item for item in _children(items) if item_matches(item))

    return step


def _is_comparable(left: Any, right: Any) -> bool:
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
