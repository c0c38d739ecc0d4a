"""JSON Patch between two documents. Source: RFC 6902."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any, cast

from steersman.meta.codec import encode


def diff(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """Return a minimal JSON Patch from ``old`` to ``new``.

    List items match by their field ``name``, or else by their content. A matching item is patched in place, which
    keeps unknown fields. A moved item is removed and added again.

    Args:
        old: original document in wire form.
        new: changed document in wire form.
        path: JSON Pointer of both documents. Defaults to the root.
    """
    if old is new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        return _diff_objects(cast("dict[str, Any]", old), cast("dict[str, Any]", new), path)
    if isinstance(old, list) and isinstance(new, list):
        return _diff_lists(cast("list[Any]", old), cast("list[Any]", new), path)
    # Compare as JSON, because 1 equals True in Python.
    return [] if encode(old) == encode(new) else [{"op": "replace", "path": path, "value": new}]


def _diff_objects(old: dict[str, Any], new: dict[str, Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for name in sorted(old.keys() | new.keys()):
        pointer = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in new:
            operations.append({"op": "remove", "path": pointer})
        elif name not in old:
            operations.append({"op": "add", "path": pointer, "value": new[name]})
        else:
            operations += diff(old[name], new[name], pointer)
    return operations


def _diff_lists(old: list[Any], new: list[Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    matcher = SequenceMatcher(
        None, [_item_identity(item) for item in old], [_item_identity(item) for item in new], autojunk=False
    )
    # Start at the end, so that earlier indexes stay valid.
    for _, begin, end, first, last in reversed(matcher.get_opcodes()):
        matched = min(end - begin, last - first)
        operations += [
            {"op": "remove", "path": f"{path}/{pointer}"} for pointer in range(end - 1, begin + matched - 1, -1)
        ]
        for number in range(matched, last - first):
            operations.append({"op": "add", "path": f"{path}/{begin + number}", "value": new[first + number]})
        for number in range(matched):
            old_item, new_item, place = old[begin + number], new[first + number], f"{path}/{begin + number}"
            if _item_name(old_item) == _item_name(new_item):
                operations += diff(old_item, new_item, place)
            else:
                operations.append({"op": "replace", "path": place, "value": new_item})
    return operations


def _item_identity(item: Any) -> object:
    return encode(item) if (name := _item_name(item)) is None else name


def _item_name(item: Any) -> str | None:
    name = cast("dict[str, Any]", item).get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None
