"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.

A strategic merge patch merges the lists that server-side apply merges, by the same keys; of its directives
``$patch: delete``, ``$patch: replace``, ``$deleteFromPrimitiveList`` and ``$retainKeys`` are understood, and
``$setElementOrder`` is accepted without effect on the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.builtin.types import json_name
from steersman.testing.apiserver.fields.sets import is_associative, list_elements
from steersman.testing.apiserver.fields.shapes import Shape
from steersman.testing.apiserver.values import JsonObject, clone, is_list, is_map, same


def merge_patch(target: Any, patch: Any) -> Any:
    """``target`` changed by a JSON merge patch: null removes."""
    if not is_map(patch):
        return clone(patch)
    result: JsonObject = dict(target) if is_map(target) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def strategic_merge_patch(target: Any, patch: Any, shape: Shape) -> Any:
    """``target`` changed by a strategic merge patch."""
    if is_associative(patch, shape):
        return _strategic_list(target, patch, shape)
    if not is_map(patch):
        return clone(patch)
    if patch.get("$patch") == "replace":
        return {k: clone(v) for k, v in patch.items() if not k.startswith("$")}
    result: JsonObject = dict(target) if is_map(target) else {}
    retained = patch.get("$retainKeys")
    if is_list(retained):
        result = {k: v for k, v in result.items() if k in retained}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            present = result.get(field)
            result[field] = [v for v in present if v not in value] if is_list(present) else []
        elif name.startswith("$"):
            continue
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = strategic_merge_patch(result.get(name), value, shape.field(name))
    return result


def _strategic_list(target: Any, patch: list[Any], shape: Shape) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [clone(i) for i in patch if i != {"$patch": "replace"}]
    items = list_elements(target, shape)
    inner = shape.item()
    for element, change in list_elements(patch, shape).items():
        if is_map(change) and change.get("$patch") == "delete":
            items.pop(element, None)
        elif element in items:
            items[element] = strategic_merge_patch(items[element], change, inner)
        else:
            items[element] = clone(change)
    return list(items.values())


def json_patch(target: Any, operations: Any) -> Any:
    """``target`` changed by a JSON patch.

    Raises:
        ApiError: 400, not a list of operations; 422, an operation does not fit, or a ``test`` fails.
    """
    if not is_list(operations):
        raise failures.bad_request("error decoding patch: json: cannot unmarshal object into Go value")
    for wrong in _misread(operations):
        raise failures.bad_request(f"error decoding patch: json: cannot unmarshal {wrong}")
    document = [clone(target)]
    for operation in operations:
        try:
            _operate(document, operation)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise failures.rejected_patch() from error
    return document[0]


def _misread(operations: list[Any]) -> Iterator[str]:
    """What of a patch is of another type than Go reads."""
    for operation in operations:
        if not is_map(operation):
            if operation is not None:
                yield f"{json_name(operation)} into Go value of type handlers.jsonPatchOp"
            continue
        for name in ("op", "path", "from"):
            if not isinstance(operation.get(name), str | None):
                yield f"{json_name(operation[name])} into Go struct field jsonPatchOp.{name} of type string"


def _operate(document: list[Any], operation: Any) -> None:
    path = ["0", *_pointer(operation["path"])]
    match operation["op"]:
        case "add":
            _add(document, path, clone(operation["value"]))
        case "remove":
            _take(document, path)
        case "replace":
            _replace(document, path, clone(operation["value"]))
        case "move":
            _add(document, path, _take(document, ["0", *_pointer(operation["from"])]))
        case "copy":
            _add(document, path, clone(_found(document, ["0", *_pointer(operation["from"])])))
        case "test":
            # What is not there is null.
            if not same(_found(document, path), operation.get("value")):
                raise ValueError("the test failed")
        case other:
            raise ValueError(f"unexpected kind: {other}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError("a JSON pointer begins with a slash")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _find(value: Any, path: list[str]) -> Any:
    for part in path:
        value = value[_index(value, part)] if is_list(value) else value[part]
    return value


def _index(items: list[Any], part: str, *, end: int | None = None) -> int:
    position = int(part)
    limit = len(items) if end is None else end
    if position < 0 or position >= limit:
        raise IndexError(part)
    return position


def _add(document: list[Any], path: list[str], value: Any) -> None:
    parent, last = _find(document, path[:-1]), path[-1]
    if parent is document:
        document[0] = value
    elif is_list(parent):
        parent.insert(len(parent) if last == "-" else _index(parent, last, end=len(parent) + 1), value)
    else:
        parent[last] = value


def _take(document: list[Any], path: list[str]) -> Any:
    if len(path) == 1:
        raise KeyError("the whole document")
    parent, last = _find(document, path[:-1]), path[-1]
    return parent.pop(_index(parent, last)) if is_list(parent) else parent.pop(last)


def _found(document: list[Any], path: list[str]) -> Any:
    """As ``_find``; of an object, a field that it does not have is null: so the real server's library reads it."""
    parent, last = _find(document, path[:-1]), path[-1]
    return parent.get(last) if is_map(parent) else _find(document, path)


def _replace(document: list[Any], path: list[str], value: Any) -> None:
    """The real server's library replaces fields that are not there, too."""
    parent, last = _find(document, path[:-1]), path[-1]
    parent[_index(parent, last) if is_list(parent) else last] = value
