"""JSON values in Python: type narrowing, copies and comparison."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, cast

import msgspec

from steersman_cel.values import MISSING as MISSING
from steersman_cel.values import JsonObject as JsonObject
from steersman_cel.values import Missing as Missing
from steersman_cel.values import get_array as get_array
from steersman_cel.values import get_field as get_field
from steersman_cel.values import get_object as get_object
from steersman_cel.values import is_list as is_list
from steersman_cel.values import is_map as is_map

# Larger integers do not fit into int64. From the second limit on, Go writes exponents.
_INT64_LIMIT = 2**63
_EXPONENT_THRESHOLD = 1e21
_CONTAINERS = (dict, list)
_sorted_encoder = msgspec.json.Encoder(order="sorted")


def type_of(value: object) -> Any:
    """Return the type of ``value`` without narrowing by the type checker."""
    return type(value)


def clone(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if is_map(value):
        return {k: clone(v) if isinstance(v, _CONTAINERS) else v for k, v in value.items()}
    if is_list(value):
        return [clone(v) if isinstance(v, _CONTAINERS) else v for v in value]
    return value


def json_equal(left: Any, right: Any) -> bool:
    """Return True if two JSON values are equal.

    Unlike in Python, true, 1 and 1.0 differ.
    """
    return left is right or (left == right and _sorted_encoder.encode(left) == _sorted_encoder.encode(right))


def normalize_numbers(value: Any) -> None:
    """Convert numbers without a fraction to integers, in place, as Go does.

    Large integers lose the precision of a float: 9223372036854775808 becomes 9223372036854776000.
    """
    pairs: Iterable[tuple[Any, Any]] = value.items() if is_map(value) else enumerate(value) if is_list(value) else ()
    container: Any = value
    for key, content in pairs:
        if isinstance(content, str):
            continue
        if isinstance(content, dict | list):
            normalize_numbers(content)
        elif isinstance(content, float) and content.is_integer() and abs(content) < _EXPONENT_THRESHOLD:
            container[key] = _to_integer(content)
        elif isinstance(content, int) and not -_INT64_LIMIT <= content < _INT64_LIMIT:
            container[key] = _to_integer(float(content))


def _to_integer(number: float) -> int | float:
    if abs(number) < _INT64_LIMIT:
        return int(number)
    return int(Decimal(repr(number))) if abs(number) < _EXPONENT_THRESHOLD else number


def ensure_map(obj: JsonObject, name: str) -> JsonObject:
    """Return the object ``obj[name]``. Replace other values by a new object."""
    found = obj.get(name)
    if not is_map(found):
        found = obj[name] = cast("JsonObject", {})
    return found


def ensure_metadata(obj: JsonObject) -> JsonObject:
    """Return ``obj.metadata``, which is created if it is missing."""
    return ensure_map(obj, "metadata")


def without_keys(obj: JsonObject, keys: Iterable[str]) -> JsonObject:
    """Return a copy without some fields."""
    excluded = set(keys)
    return {k: v for k, v in obj.items() if k not in excluded}


def without_nulls(value: Any) -> Any:
    """Return a copy without fields that are null, as ``omitempty``."""
    if is_map(value):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if is_list(value):
        return [without_nulls(v) for v in value]
    return value
