"""Sets of field paths: what a manager owns, and what a change touched.

A path is a tuple of elements in the notation of FieldsV1: ``f:<field>``, ``k:<key object of a list item>``,
``v:<value in a set>``. Source: ``sigs.k8s.io/structured-merge-diff``, packages ``fieldpath`` and ``typed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.fields.shapes import Key, Shape
from steersman_testing.apiserver.values import MISSING, JsonObject, child, is_list, is_map, same, type_of

Path = tuple[str, ...]
FieldSet = frozenset[Path]

_PLAIN = (str, int, bool)
# The hook is for numbers that remember how they were written.
_encoder = msgspec.json.Encoder(order="sorted", enc_hook=float)


def _element(item: Any, shape: Shape) -> str | None:
    """The path element of a list item, or None where the item lacks its key."""
    if shape.relation == "set":
        whole = type_of(item) is float and item.is_integer()
        return f"v:{_encoder.encode(int(item) if whole else item).decode()}"
    keys = {key.name: value for key in shape.keys if (value := _key_value(item, key)) is not MISSING}
    return f"k:{_encoder.encode(keys).decode()}" if keys else None


def _key_value(item: Any, key: Key) -> Any:
    value = child(item, key.name)
    return value if value is not MISSING or key.default is None else key.default


def is_associative(value: Any, shape: Shape) -> bool:
    """Whether ``value`` is a list whose items are merged one by one."""
    return is_list(value) and shape.relation in ("map", "set")


def list_elements(items: Any, shape: Shape) -> dict[str, Any]:
    """The items of an associative list by path element, in order.

    Raises:
        ApiError: 500, as the real server: an item lacks a key, two have the same, or a set has lists or maps.
    """
    found: dict[str, Any] = {}
    if not is_list(items):
        return found
    if shape.relation == "set" and (problem := _no_scalar(items)):
        raise failures.untyped(problem)
    for position, item in enumerate(items):
        element = _element(item, shape)
        if element is None:
            names = " ".join(f'"{k.name}"' for k in shape.keys)
            raise failures.untyped(
                f"element {position}: associative list with keys has an element that omits all key fields "
                f"[{names}] (and doesn't have default values for any key fields)"
            )
        if element in found:
            raise failures.untyped(f"duplicate entries for key {path_text((element,))}")
        found[element] = item
    return found


def _no_scalar(items: list[Any]) -> str:
    """Why the elements of a set cannot be told apart: lists and maps are not, even where they are atomic."""
    for position, item in enumerate(items):
        if is_list(item):
            return f"element {position}: not supported: associative list with lists as elements"
        if is_map(item):
            return f"element {position}: associative list without keys has an element that's a map type"
    return ""


def _lenient_elements(items: Any, shape: Shape, path: Path) -> dict[str, Any]:
    """As ``list_elements``, for stored objects, in which keys may be missing or double: the last one counts.

    Raises:
        ApiError: 500, a set has lists or maps.
    """
    if not is_list(items):
        return {}
    if shape.relation == "set" and (problem := _no_scalar(items)):
        raise failures.untyped(f"{path_text(path)}: {problem}")
    return {e: item for item in items if (e := _element(item, shape)) is not None}


def field_set(value: Any, shape: Shape) -> FieldSet:
    """All fields that ``value``, an applied configuration, sets. Raises as ``list_elements``."""
    return frozenset(_fields(value, shape, ()))


def _fields(value: Any, shape: Shape, path: Path) -> Iterator[Path]:
    if is_map(value) and shape.relation != "atomic":
        for name, content in value.items():
            inner = (*path, f"f:{name}")
            yield from _fields(content, shape.field(name), inner)
            if content is None or content == {} or not shape.declares(name):
                yield inner
    elif is_associative(value, shape):
        for element, item in list_elements(value, shape).items():
            yield (*path, element)
            if shape.relation == "map":
                yield from _fields(item, shape.item(), (*path, element))
    elif path:
        yield path


@dataclass(slots=True)
class Difference:
    """The paths that a change added, removed and modified; containers are added and removed with their content."""

    added: set[Path] = field(default_factory=set[Path])
    removed: set[Path] = field(default_factory=set[Path])
    modified: set[Path] = field(default_factory=set[Path])


def compare(old: Any, new: Any, shape: Shape) -> Difference:
    """What changed from ``old`` to ``new``."""
    difference = Difference()
    _compare(old, new, shape, (), difference)
    return difference


def _compare(old: Any, new: Any, shape: Shape, path: Path, difference: Difference) -> None:
    if old is new:
        return
    children = _children(old, new, shape, path)
    if children is None:
        if not same(old, new):
            difference.modified.add(path)
        return
    before, after, prefix, inner_shape = children
    for name, was in before.items():
        now = after.get(name, MISSING)
        if now is was or (type_of(was) is type_of(now) and type_of(was) in _PLAIN and was == now):
            # Most of an object stays as it is, and needs neither path nor shape.
            continue
        inner = (*path, f"{prefix}{name}")
        if now is MISSING:
            _gather(was, inner_shape(name), inner, difference.removed)
        else:
            _compare(was, now, inner_shape(name), inner, difference)
    for name, now in after.items():
        if name not in before:
            _gather(now, inner_shape(name), (*path, f"{prefix}{name}"), difference.added)


def _gather(value: Any, shape: Shape, path: Path, gathered: set[Path]) -> None:
    """Adds ``path`` and everything within ``value``, which is on one side only."""
    gathered.add(path)
    if not value:
        return
    if is_map(value):
        if shape.relation != "atomic":
            for name, content in value.items():
                inner = (*path, f"f:{name}")
                if isinstance(content, dict | list):
                    _gather(content, shape.field(name), inner, gathered)
                else:
                    gathered.add(inner)
    elif is_associative(value, shape):
        item_shape = shape.item()
        for element, item in _lenient_elements(value, shape, path).items():
            _gather(item, item_shape, (*path, element), gathered)


def _children(
    old: Any, new: Any, shape: Shape, path: Path
) -> tuple[JsonObject, JsonObject, str, Callable[[str], Shape]] | None:
    """Both sides' children, what makes path elements of their keys, and the shape of each; None for a leaf."""
    if not _same_type(old, new):
        return None
    # An empty value beside a full one still has children, the full one's; two empty ones are leaves.
    present = new or old or None
    if is_map(present) and shape.relation != "atomic":
        return old or {}, new or {}, "f:", shape.field
    if is_associative(present, shape):
        item = shape.item()
        return _lenient_elements(old, shape, path), _lenient_elements(new, shape, path), "", lambda _: item
    return None


def _same_type(old: Any, new: Any) -> bool:
    return old is None or new is None or type(old) is type(new)


def below(path: Path, fields: Iterable[Path]) -> bool:
    """Whether ``fields`` has ``path`` or something inside of it."""
    length = len(path)
    return any(f[:length] == path for f in fields)


def with_containers(fields: Iterable[Path]) -> FieldSet:
    """``fields`` and everything that contains them."""
    return frozenset(f[:length] for f in fields for length in range(1, len(f) + 1))


def to_fields_v1(fields: FieldSet) -> JsonObject:
    """The wire form of a set: nested objects, with ``.`` for a container that is itself a member."""
    root: JsonObject = {}
    for path in sorted(fields):
        node = root
        *containers, last = path
        for element in containers:
            inner: JsonObject | None = node.get(element)
            if inner is None:
                node[element] = inner = {}
            elif not inner:
                # It came before what is within it, so it is a member.
                inner["."] = {}
            node = inner
        node[last] = {}
    return root


def from_fields_v1(wire: JsonObject, path: Path = ()) -> FieldSet:
    """The set of which ``wire`` is the form on the wire."""
    members = {path} if path and (not wire or "." in wire) else set[Path]()
    inner = (from_fields_v1(content, (*path, name)) for name, content in wire.items() if name != ".")
    return frozenset(members).union(*inner)


def path_text(path: Path) -> str:
    """For people, as the real server prints it: ``.spec.containers[name="app"].image``."""
    return "".join(_element_text(e) for e in path)


def _element_text(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    keys: JsonObject = msgspec.json.decode(text)
    return f"[{','.join(f'{k}={msgspec.json.encode(v).decode()}' for k, v in keys.items())}]"
