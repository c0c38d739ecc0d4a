"""JSON patch, JSON merge patch and strategic merge patch.

JSON patch is RFC 6902, and JSON merge patch is RFC 7386. A strategic merge patch merges associative lists by the keys
of server-side apply. Its directives are ``$patch: delete``, ``$patch: replace``, ``$deleteFromPrimitiveList``,
``$retainKeys`` and ``$setElementOrder``. Source: ``pkg/util/strategicpatch`` of ``k8s.io/apimachinery``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.types import json_type_name
from steersman_testing.apiserver.fields.field_paths import is_associative, list_elements
from steersman_testing.apiserver.go_values import go_value_text
from steersman_testing.apiserver.shapes import Shape
from steersman_testing.apiserver.values import JsonObject, clone, get_object, is_list, is_map, json_equal

_SET_ELEMENT_ORDER = "$setElementOrder/"


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch. Null removes a field."""
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
    """Apply a strategic merge patch."""
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
    for name, order in patch.items():
        field = name.removeprefix(_SET_ELEMENT_ORDER)
        if field != name and is_list(merged := result.get(field)):
            inner = shape.field(field)
            _check_order(patch.get(field), order, inner)
            present = list(list_elements(get_object({"target": target}, "target").get(field), inner))
            result[field] = _reorder(list_elements(merged, inner), list(list_elements(order, inner)), present)
    return result


def _strategic_list(target: Any, patch: list[Any], shape: Shape) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [clone(i) for i in patch if i != {"$patch": "replace"}]
    items = list_elements(target, shape)
    present, inner = list(items), shape.item()
    for element, change in list_elements(patch, shape).items():
        if is_map(change) and change.get("$patch") == "delete":
            items.pop(element, None)
        elif element in items:
            items[element] = strategic_merge_patch(items[element], change, inner)
        else:
            items[element] = clone(change)
    return _reorder(items, list(list_elements(patch, shape)), present)


def _reorder(items: dict[str, Any], order: list[str], present: list[str]) -> list[Any]:
    """Return ``items`` in the given order.

    Other items keep their order and stay before the items that they preceded.
    """
    ordered = [element for element in order if element in items]
    others = [element for element in items if element not in ordered]
    result: list[str] = []
    for element in ordered:
        target_position = present.index(element) if element in present else -1
        while others and others[0] in present and present.index(others[0]) < target_position:
            result.append(others.pop(0))
        result.append(element)
    return [items[element] for element in (*result, *others)]


def _check_order(patch: Any, order: Any, shape: Shape) -> None:
    """Check that a list patch has the order of ``$setElementOrder``.

    Raises:
        ApiError: 500, the order differs.
    """
    if not patch or not order:
        return
    patched_items = [i for i in patch if not (is_map(i) and "$patch" in i)]
    expected = iter(list_elements(order, shape))
    if not all(element in expected for element in list_elements(patched_items, shape)):
        formatted = f"{go_value_text(patch)}\n doesn't match $setElementOrder list:\n{go_value_text(order)}\n"
        raise failures.unclassified_error(f"The order in patch list:\n{formatted}")


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON patch.

    Raises:
        ApiError: 400, the patch is not a list of operations; 422, an operation does not apply.
    """
    if not is_list(operations):
        raise failures.bad_request("error decoding patch: json: cannot unmarshal object into Go value")
    for wrong in _type_errors(operations):
        raise failures.bad_request(f"error decoding patch: json: cannot unmarshal {wrong}")
    document = [clone(target)]
    for operation in operations:
        try:
            _apply_operation(document, operation)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise failures.inapplicable_patch() from error
    return document[0]


def _type_errors(operations: list[Any]) -> Iterator[str]:
    """Yield the type errors of Go's decoder."""
    for operation in operations:
        if not is_map(operation):
            if operation is not None:
                yield f"{json_type_name(operation)} into Go value of type handlers.jsonPatchOp"
            continue
        for name in ("op", "path", "from"):
            if not isinstance(operation.get(name), str | None):
                yield f"{json_type_name(operation[name])} into Go struct field jsonPatchOp.{name} of type string"


def _apply_operation(document: list[Any], operation: Any) -> None:
    path = ["0", *_pointer(operation["path"])]
    match operation["op"]:
        case "add":
            _add(document, path, clone(operation["value"]))
        case "remove":
            _remove(document, path)
        case "replace":
            _replace(document, path, clone(operation["value"]))
        case "move":
            _add(document, path, _remove(document, ["0", *_pointer(operation["from"])]))
        case "copy":
            _add(document, path, clone(_find_or_null(document, ["0", *_pointer(operation["from"])])))
        case "test":
            # A missing value is null.
            if not json_equal(_find_or_null(document, path), operation.get("value")):
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


def _index(items: list[Any], part: str, *, upper_bound: int | None = None) -> int:
    position = int(part)
    limit = len(items) if upper_bound is None else upper_bound
    if position < 0 or position >= limit:
        raise IndexError(part)
    return position


def _add(document: list[Any], path: list[str], value: Any) -> None:
    parent, last = _find(document, path[:-1]), path[-1]
    if parent is document:
        document[0] = value
    elif is_list(parent):
        parent.insert(len(parent) if last == "-" else _index(parent, last, upper_bound=len(parent) + 1), value)
    else:
        parent[last] = value


def _remove(document: list[Any], path: list[str]) -> Any:
    if len(path) == 1:
        raise KeyError("the whole document")
    parent, last = _find(document, path[:-1]), path[-1]
    return parent.pop(_index(parent, last)) if is_list(parent) else parent.pop(last)


def _find_or_null(document: list[Any], path: list[str]) -> Any:
    """Return the value at a path. A missing field of an object is null.

    Source: ``gopkg.in/evanphx/json-patch.v4``.
    """
    parent, last = _find(document, path[:-1]), path[-1]
    return parent.get(last) if is_map(parent) else _find(document, path)


def _replace(document: list[Any], path: list[str], value: Any) -> None:
    """Replace the value at a path.

    A missing field is added, as json-patch does.
    """
    parent, last = _find(document, path[:-1]), path[-1]
    parent[_index(parent, last) if is_list(parent) else last] = value
