"""JSON as Python holds it: narrowing for the type checker, and copies."""

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

# Greater ones do not fit into the integers that Go reads; from the second on it writes exponents.
_INT64_LIMIT = 2**63
_EXPONENT_THRESHOLD = 1e21
_CONTAINERS = (dict, list)
_sorted_encoder = msgspec.json.Encoder(order="sorted")


def type_of(value: object) -> Any:
    """The type of ``value``, whatever is known of it."""
    return type(value)


def clone(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if is_map(value):
        return {k: clone(v) if isinstance(v, _CONTAINERS) else v for k, v in value.items()}
    if is_list(value):
        return [clone(v) if isinstance(v, _CONTAINERS) else v for v in value]
    return value


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same: for Python ``True == 1 == 1.0``, for the API no two of these are."""
    return left is right or (left == right and _sorted_encoder.encode(left) == _sorted_encoder.encode(right))


def normalize_numbers(value: Any) -> None:
    """Makes integers of the numbers without a fraction in ``value``, in place: so Go writes them, and reads them.

    Of large ones it keeps the digits of a float, and zeros: 9223372036854775808 becomes 9223372036854776000.
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
    """``obj[name]`` where that is an object, and otherwise a new object that is put there."""
    found = obj.get(name)
    if not is_map(found):
        found = obj[name] = cast("JsonObject", {})
    return found


def ensure_metadata(obj: JsonObject) -> JsonObject:
    """``obj.metadata``, made where there is none."""
    return ensure_map(obj, "metadata")


def without_keys(obj: JsonObject, keys: Iterable[str]) -> JsonObject:
    """``obj`` without some of its fields."""
    excluded = set(keys)
    return {k: v for k, v in obj.items() if k not in excluded}


def without_nulls(value: Any) -> Any:
    """``value`` without the fields that are null, as Go's ``omitempty`` leaves them out."""
    if is_map(value):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if is_list(value):
        return [without_nulls(v) for v in value]
    return value
