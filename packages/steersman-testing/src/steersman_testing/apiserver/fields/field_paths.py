"""Sets of field paths: owned fields and changed fields.

A path is a tuple of elements in the notation of FieldsV1: ``f:<field>``, ``k:<keys of a list item>``, ``v:<value in a
set>``. Source: ``sigs.k8s.io/structured-merge-diff``, packages ``fieldpath`` and ``typed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.shapes import ListMapKey, Shape
from steersman_testing.apiserver.values import MISSING, JsonObject, get_field, is_list, is_map, json_equal, type_of

FieldPath = tuple[str, ...]
FieldSet = frozenset[FieldPath]

_SCALAR_TYPES = (str, int, bool)
# The hook encodes ``NumberLiteral``.
_encoder = msgspec.json.Encoder(order="sorted", enc_hook=float)


def _path_element(item: Any, shape: Shape) -> str | None:
    """Return the path element of a list item, or None without keys."""
    if shape.relation == "set":
        whole = type_of(item) is float and item.is_integer()
        return f"v:{_encoder.encode(int(item) if whole else item).decode()}"
    keys = {key.name: value for key in shape.keys if (value := _key_value(item, key)) is not MISSING}
    return f"k:{_encoder.encode(keys).decode()}" if keys else None


def _key_value(item: Any, key: ListMapKey) -> Any:
    value = get_field(item, key.name)
    return value if value is not MISSING or key.default is None else key.default


def is_associative(value: Any, shape: Shape) -> bool:
    """Return True if ``value`` is an associative list."""
    return is_list(value) and shape.relation in ("map", "set")


def list_elements(items: Any, shape: Shape) -> dict[str, Any]:
    """Return the items of an associative list by path element, in order.

    Raises:
        ApiError: 500, an item has no key, two items have the same key, or a set has lists or maps.
    """
    found: dict[str, Any] = {}
    if not is_list(items):
        return found
    if shape.relation == "set" and (problem := _non_scalar_error(items)):
        raise failures.unclassified_error(problem)
    for position, item in enumerate(items):
        element = _path_element(item, shape)
        if element is None:
            names = " ".join(f'"{k.name}"' for k in shape.keys)
            raise failures.unclassified_error(
                f"element {position}: associative list with keys has an element that omits all key fields "
                f"[{names}] (and doesn't have default values for any key fields)"
            )
        if element in found:
            raise failures.unclassified_error(f"duplicate entries for key {path_text((element,))}")
        found[element] = item
    return found


def _non_scalar_error(items: list[Any]) -> str:
    """Return the error of a set with lists or maps.

    Even atomic lists and maps are not supported. Empty for scalars only.
    """
    for position, item in enumerate(items):
        if is_list(item):
            return f"element {position}: not supported: associative list with lists as elements"
        if is_map(item):
            return f"element {position}: associative list without keys has an element that's a map type"
    return ""


def _lenient_elements(items: Any, shape: Shape, path: FieldPath) -> dict[str, Any]:
    """Return the items as ``list_elements``, for stored objects.

    Items without keys are skipped, and the last duplicate wins.

    Raises:
        ApiError: 500, a set has lists or maps.
    """
    if not is_list(items):
        return {}
    if shape.relation == "set" and (problem := _non_scalar_error(items)):
        raise failures.unclassified_error(f"{path_text(path)}: {problem}")
    return {e: item for item in items if (e := _path_element(item, shape)) is not None}


def field_set(value: Any, shape: Shape) -> FieldSet:
    """Return the fields of an applied configuration.

    Raises:
        ApiError: as ``list_elements``.
    """
    found: list[FieldPath] = []
    _add_set_paths(value, shape, (), found)
    return frozenset(found)


def _add_set_paths(value: Any, shape: Shape, path: FieldPath, found: list[FieldPath]) -> None:
    if is_map(value) and shape.relation != "atomic":
        for name, content in value.items():
            inner = (*path, f"f:{name}")
            _add_set_paths(content, shape.field(name), inner, found)
            if content is None or content == {} or not shape.declares(name):
                found.append(inner)
    elif is_associative(value, shape):
        is_map_list, item_shape = shape.relation == "map", shape.item()
        for element, item in list_elements(value, shape).items():
            found.append((*path, element))
            if is_map_list:
                _add_set_paths(item, item_shape, (*path, element), found)
    elif path:
        found.append(path)


@dataclass(slots=True)
class Comparison:
    """Paths that a change added, removed and modified.

    Containers are added and removed with their content.
    """

    added: set[FieldPath] = field(default_factory=set[FieldPath])
    removed: set[FieldPath] = field(default_factory=set[FieldPath])
    modified: set[FieldPath] = field(default_factory=set[FieldPath])


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    """Compare two objects."""
    comparison = Comparison()
    _compare(old, new, shape, (), comparison)
    return comparison


def _compare(old: Any, new: Any, shape: Shape, path: FieldPath, comparison: Comparison) -> None:
    if old is new:
        return
    children = _child_maps(old, new, shape, path)
    if children is None:
        if not json_equal(old, new):
            comparison.modified.add(path)
        return
    before, after, prefix, inner_shape = children
    for name, old_child in before.items():
        new_child = after.get(name, MISSING)
        if new_child is old_child or (
            type_of(old_child) is type_of(new_child)
            and type_of(old_child) in _SCALAR_TYPES
            and old_child == new_child
        ):
            # Most fields are unchanged and need neither path nor shape.
            continue
        inner = (*path, f"{prefix}{name}")
        if new_child is MISSING:
            _collect_paths(old_child, inner_shape(name), inner, comparison.removed)
        else:
            _compare(old_child, new_child, inner_shape(name), inner, comparison)
    for name, new_child in after.items():
        if name not in before:
            _collect_paths(new_child, inner_shape(name), (*path, f"{prefix}{name}"), comparison.added)


def _collect_paths(value: Any, shape: Shape, path: FieldPath, collected: set[FieldPath]) -> None:
    """Add ``path`` and all paths within ``value``."""
    collected.add(path)
    if not value:
        return
    if is_map(value):
        if shape.relation != "atomic":
            for name, content in value.items():
                inner = (*path, f"f:{name}")
                if isinstance(content, dict | list):
                    _collect_paths(content, shape.field(name), inner, collected)
                else:
                    collected.add(inner)
    elif is_associative(value, shape):
        item_shape = shape.item()
        for element, item in _lenient_elements(value, shape, path).items():
            _collect_paths(item, item_shape, (*path, element), collected)


def _child_maps(
    old: Any, new: Any, shape: Shape, path: FieldPath
) -> tuple[JsonObject, JsonObject, str, Callable[[str], Shape]] | None:
    """Return the children of both sides, their path prefix and their shapes.

    None for a leaf.
    """
    if not _same_type(old, new):
        return None
    # An empty value has the children of a non-empty other side. Two empty values are leaves.
    present = new or old or None
    if is_map(present) and shape.relation != "atomic":
        return old or {}, new or {}, "f:", shape.field
    if is_associative(present, shape):
        item = shape.item()
        return _lenient_elements(old, shape, path), _lenient_elements(new, shape, path), "", lambda _: item
    return None


def _same_type(old: Any, new: Any) -> bool:
    return old is None or new is None or type(old) is type(new)


def contains_or_below(path: FieldPath, fields: Iterable[FieldPath]) -> bool:
    """Return True if ``fields`` has ``path`` or a path below it."""
    length = len(path)
    return any(f[:length] == path for f in fields)


def with_parents(fields: Iterable[FieldPath]) -> FieldSet:
    """Return ``fields`` and all their parents."""
    return frozenset(f[:length] for f in fields for length in range(1, len(f) + 1))


@lru_cache(maxsize=4096)
def to_fields_v1(fields: FieldSet) -> JsonObject:
    """Return a set as FieldsV1. Cached, because each write encodes the sets of all managers.

    FieldsV1 is a tree of objects. ``.`` marks a container that is itself a member.
    """
    root: JsonObject = {}
    for path in sorted(fields):
        node = root
        *containers, last = path
        for element in containers:
            inner: JsonObject | None = node.get(element)
            if inner is None:
                node[element] = inner = {}
            elif not inner:
                # Parents sort before children, so an empty node here is a member.
                inner["."] = {}
            node = inner
        node[last] = {}
    return root


def from_fields_v1(wire: JsonObject, path: FieldPath = ()) -> FieldSet:
    """Return the set of a FieldsV1 object."""
    members = {path} if path and (not wire or "." in wire) else set[FieldPath]()
    inner = (from_fields_v1(content, (*path, name)) for name, content in wire.items() if name != ".")
    return frozenset(members).union(*inner)


def path_text(path: FieldPath) -> str:
    """Return a path as the real server prints it: ``.spec.containers[name="app"].image``."""
    return "".join(_element_text(e) for e in path)


def _element_text(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    keys: JsonObject = msgspec.json.decode(text)
    return f"[{','.join(f'{k}={msgspec.json.encode(v).decode()}' for k, v in keys.items())}]"
