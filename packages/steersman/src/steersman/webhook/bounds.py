"""Checks the declared bounds of values, without a schema.

The API server validates an object before its conversion, and not after it. A conversion that reads fields from an
annotation therefore checks them itself. Anybody who reaches the port can send a review, so the sizes of its objects
are checked before any handler runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast, get_args, get_origin

from steersman.meta import Field, FrozenDict, FrozenStruct, to_builtins
from steersman.meta.patterns import UnsupportedPattern, compile_pattern
from steersman.webhook.type_hints import split_markers, struct_fields

_PLAIN = (bool, int, float, str)


def bound_violations(value: Any, hint: Any, path: str = "") -> Iterator[str]:
    """Yield one message per violated bound of ``value`` and its parts.

    Bounds are sizes, limits of numbers, patterns and unique items. Formats and CEL rules are not checked. Values that
    equal the default of their field are valid.

    Args:
        value: struct, list, map or scalar.
        hint: declared type of ``value``, with its markers.
        path: path of ``value``, such as ``.spec``. Defaults to the root.

    Example: ``.spec.replicas must be at most 9, but is 10``.
    """
    markers, hint = split_markers(hint)
    for marker in markers:
        yield from _marker_violations(marker, value, path)
    for part, part_hint, part_path in _parts(value, hint, path):
        yield from bound_violations(part, part_hint, part_path)


def size_violations(value: Any, hint: Any, path: str = "") -> Iterator[str]:
    """Yield one message per part of ``value`` that exceeds its maximum size. See ``bound_violations``."""
    markers, hint = split_markers(hint)
    for marker in markers:
        size, _, maximum, unit = _size(marker, value)
        if maximum is not None and size > maximum:
            yield f"{path} must be at most {maximum}{unit}, but is {size}"
            return
    for part, part_hint, part_path in _parts(value, hint, path):
        yield from size_violations(part, part_hint, part_path)


def _parts(value: Any, hint: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield the fields or items of ``value`` with their types and paths."""
    if isinstance(value, FrozenStruct):
        if type(value).__module__.startswith("steersman.api."):
            # Generated types have no markers.
            return
        for field in struct_fields(type(value)):
            content = getattr(value, field.name)
            if content != field.default and field.name != "metadata":
                yield content, field.type, f"{path}.{field.encode_name}"
    elif isinstance(value, tuple) and get_origin(hint) is tuple:
        if (item_hint := get_args(hint)[0]) in _PLAIN:
            # A review may have millions of them.
            return
        for position, item in enumerate(cast("tuple[Any, ...]", value)):
            yield item, item_hint, f"{path}[{position}]"
    elif isinstance(value, FrozenDict) and get_origin(hint) is FrozenDict:
        for name, content in cast("FrozenDict[str, Any]", value).items():
            yield content, get_args(hint)[1], f"{path}.{name}"


def _size(marker: Field, value: Any) -> tuple[int, int | None, int | None, str]:
    """Return the size of ``value``, its minimum, its maximum and their unit."""
    if isinstance(value, str):
        return len(value), marker.min_length, marker.max_length, " characters long"
    if isinstance(value, tuple):
        return len(cast("tuple[Any, ...]", value)), marker.min_items, marker.max_items, " items long"
    if isinstance(value, FrozenDict):
        size = len(cast("FrozenDict[str, Any]", value))
        return size, marker.min_properties, marker.max_properties, " keys long"
    return 0, None, None, ""


def _marker_violations(marker: Field, value: Any, path: str) -> Iterator[str]:
    size, minimum, maximum, unit = _size(marker, value)
    yield from _limit_violations(size, minimum, maximum, path, unit)
    if isinstance(value, str):
        if marker.pattern is not None and not _matches(marker.pattern, value):
            yield f"{path} must match {marker.pattern}, but is {value!r}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _limit_violations(value, marker.ge, marker.le, path, "")
        if marker.gt is not None and value <= marker.gt:
            yield f"{path} must be greater than {marker.gt}, but is {value}"
        if marker.lt is not None and value >= marker.lt:
            yield f"{path} must be less than {marker.lt}, but is {value}"
    elif isinstance(value, tuple):
        yield from _duplicate_violations(marker, cast("tuple[Any, ...]", value), path)


def _limit_violations(
    amount: float, minimum: float | None, maximum: float | None, path: str, unit: str
) -> Iterator[str]:
    if minimum is not None and amount < minimum:
        yield f"{path} must be at least {minimum}{unit}, but is {amount}"
    if maximum is not None and amount > maximum:
        yield f"{path} must be at most {maximum}{unit}, but is {amount}"


def _duplicate_violations(marker: Field, items: tuple[Any, ...], path: str) -> Iterator[str]:
    if marker.list_type == "set":
        identities = [to_builtins(item) for item in items]
    elif marker.list_map_keys:
        identities = [{key: to_builtins(item).get(key) for key in marker.list_map_keys} for item in items]
    else:
        return
    for position, identity in enumerate(identities):
        if identity in identities[:position]:
            yield f"{path}[{position}] is a duplicate: {identity}"


def _matches(pattern: str, value: str) -> bool:
    try:
        return compile_pattern(pattern).search(value) is not None
    except UnsupportedPattern:
        # Python has no equivalent of this RE2 expression.
        return True
