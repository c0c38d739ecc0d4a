"""CEL functions that cel-cpp lacks.

Values of Kubernetes types are strings here. Two strings are equal if and only if the values are: a quantity is
encoded by its exact value, an address by its canonical form, a format by its name.

Source: ``pkg/cel/library`` of ``k8s.io/apiserver`` 1.36 and ``ext/lists.go``, ``ext/sets.go`` of cel-go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from steersman_cel import formats, ip_addresses, quantities, semver, strings
from steersman_cel.formatting import format_string, format_time, trim_fraction
from steersman_cel.name_validation import (
    dns1035_label_error,
    dns1123_label_error,
    dns1123_subdomain_error,
    label_value_error,
    qualified_name_error,
)
from steersman_cel.patterns import compile_pattern
from steersman_cel.precision import check_duration_precision, check_time_precision
from steersman_cel.urls import check_request_uri, parse_url
from steersman_cel.values import is_list, is_map

_INT64, _UINT64 = range(-(2**63), 2**63), range(2**64)
_MAX_DURATION = timedelta(microseconds=2**63 // 1000)

# Lists


def _sum(items: list[Any]) -> Any:
    found: Any = sum(items[1:], items[0]) if items else 0
    if isinstance(found, timedelta) and abs(found) > _MAX_DURATION:
        raise ValueError("integer overflow")
    if isinstance(found, int) and found not in _INT64:
        raise ValueError("integer overflow")
    return found


def _unsigned_sum(items: list[int]) -> int:
    if sum(items) not in _UINT64:
        raise ValueError("unsigned integer overflow")
    return sum(items)


def _min(items: list[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def _max(items: list[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return max(items)


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


def is_equal(left: Any, right: Any) -> bool:
    """Return True if two values are equal in CEL. Bools never equal numbers."""
    if is_list(left):
        return is_list(right) and len(left) == len(right) and all(map(is_equal, left, right))
    if is_map(left):
        return is_map(right) and left.keys() == right.keys() and all(is_equal(v, right[k]) for k, v in left.items())
    if quantities.is_encoded_quantity(left) and quantities.is_encoded_quantity(right):
        return quantities.decode_quantity(left).value == quantities.decode_quantity(right).value
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _contains_equal(items: Iterable[Any], item: Any) -> bool:
    return any(is_equal(i, item) for i in items)


def _index_of(items: list[Any], item_to_find: Any) -> int:
    return next((i for i, item in enumerate(items) if is_equal(item, item_to_find)), -1)


def _last_index_of(items: list[Any], item_to_find: Any) -> int:
    return next((i for i in reversed(range(len(items))) if is_equal(items[i], item_to_find)), -1)


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise ValueError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise ValueError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise ValueError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise ValueError("level must be non-negative")
    if depth == 0:
        return items
    return [i for item in items for i in (_flatten(item, depth - 1) if is_list(item) else [item])]


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not _contains_equal(found, item):
            found.append(item)
    return found


def _sort_by(items: list[Any], keys: list[Any]) -> list[Any]:
    order = sorted(range(len(items)), key=lambda i: keys[i])
    return [items[i] for i in order]


def _range(count: int) -> list[int]:
    return list(range(count))


def _reversed(items: Any) -> Any:
    return items[::-1]


def _keys(items: Any) -> list[Any]:
    """The values of the first of two iteration variables: indexes or keys."""
    return list(range(len(items))) if is_list(items) else list(items)


def _map_of(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


def _merge(entries: list[Any]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for entry in entries:
        for key, value in entry.items():
            if key in result:
                raise ValueError(f"insert failed: key {key} already exists")
            result[key] = value
    return result


# Unordered lists


def _is_equal_in_shape(left: Any, right: Any, shape: str) -> bool:
    return _equal_in_shape(left, right, json.loads(shape))


def _contains_in_shape(item: Any, items: list[Any], shape: str) -> bool:
    return any(_equal_in_shape(item, other, json.loads(shape)) for other in items)


def _equal_in_shape(left: Any, right: Any, shape: Any) -> bool:
    """Return True if two values are equal. ``shape`` marks unordered lists."""
    if not shape or type(left) is not type(right):
        return is_equal(left, right)
    if is_list(left):
        if len(left) != len(right):
            return False
        if not shape["unordered"]:
            return all(_equal_in_shape(a, b, shape["items"]) for a, b in zip(left, right, strict=True))
        return all(any(_equal_in_shape(a, b, shape["items"]) for b in right) for a in left)
    if is_map(left):
        fields = shape.get("fields", {})
        return left.keys() == right.keys() and all(
            _equal_in_shape(v, right[k], fields.get(k, shape.get("values"))) for k, v in left.items()
        )
    return is_equal(left, right)


def _union(left: list[Any], right: list[Any], tags: str) -> list[Any]:
    """The union of two sets, or of two lists of type map. Items of ``right`` replace others."""
    kind, _, names = tags.partition(":")
    if kind == "set":
        return [*left, *(item for item in right if not _contains_equal(left, item))]
    keys = names.split(",")

    def key(item: Any) -> tuple[Any, ...]:
        return tuple(item.get(k) for k in keys)

    replaced = {key(item): item for item in right}
    updated = [replaced.pop(key(item), item) for item in left]
    return [*updated, *replaced.values()]


# Patterns


def _find(text: str, pattern: str) -> str:
    found = compile_pattern(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [m[0] for m in compile_pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


# Times


def _nanoseconds(duration: str) -> int:
    """Nanoseconds of a duration in seconds."""
    return int(Decimal(duration.removesuffix("s")) * 10**9)


def to_engine_value(value: Any) -> Any:
    """Convert times in ``value`` to strings, which the engine accepts."""
    if is_list(value):
        return [to_engine_value(v) for v in value]
    if is_map(value):
        return {k: to_engine_value(v) for k, v in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    return format_time(value) if isinstance(value, datetime | timedelta) else value


# URLs


def _parse_url_value(text: str) -> str:
    try:
        parse_url(text)
    except ValueError as error:
        raise ValueError(f"URL parse error during conversion from string: {error}") from None
    # Go compares URLs in canonical form: scheme in lower case, path with its escapes.
    return re.sub("^[A-Za-z][A-Za-z0-9+.-]*:", lambda scheme: scheme[0].lower(), text).replace(" ", "%20")


def _uri_error(text: str) -> str:
    try:
        check_request_uri(text)
    except ValueError as error:
        return str(error)
    return ""


# Quantities


def _is_valid(check: Callable[[str], Any], *arguments: Any) -> bool:
    try:
        check(*arguments)
    except ValueError:
        return False
    return True


def _parse_quantity(text: str) -> str:
    return quantities.parse_quantity(text).encode()


def _compare_quantities(left: str, right: str) -> int:
    left_value, right_value = quantities.decode_quantity(left).value, quantities.decode_quantity(right).value
    return (left_value > right_value) - (left_value < right_value)


def _sign(text: str) -> int:
    value = quantities.decode_quantity(text).value
    return (value > 0) - (value < 0)


def _is_integer(text: str) -> bool:
    return quantities.decode_quantity(text).as_integer is not None


def _as_integer(text: str) -> int:
    found = quantities.decode_quantity(text).as_integer
    if found is None:
        raise ValueError("cannot convert value to integer")
    return found


def _to_amount(value: str | int) -> quantities.QuantityValue:
    return (
        quantities.QuantityValue(Decimal(value), 0) if isinstance(value, int) else quantities.decode_quantity(value)
    )


def _add(left: str, right: str | int) -> str:
    return quantities.add_quantities(_to_amount(left), _to_amount(right)).encode()


def _subtract(left: str, right: str | int) -> str:
    other = _to_amount(right)
    return quantities.add_quantities(_to_amount(left), other._replace(value=-other.value)).encode()


# Formats

_FORMAT_ERRORS: dict[str, Callable[[str], str]] = {
    "dns1123Label": dns1123_label_error,
    "dns1123Subdomain": dns1123_subdomain_error,
    "dns1035Label": dns1035_label_error,
    "qualifiedName": qualified_name_error,
    "dns1123LabelPrefix": lambda text: dns1123_label_error(_without_trailing_dash(text)),
    "dns1123SubdomainPrefix": lambda text: dns1123_subdomain_error(_without_trailing_dash(text)),
    "dns1035LabelPrefix": lambda text: dns1035_label_error(_without_trailing_dash(text)),
    "labelValue": label_value_error,
    "uri": _uri_error,
    "uuid": lambda text: "" if formats.has_format(text, "uuid") else "does not match the UUID format",
    "byte": lambda text: "" if formats.has_format(text, "byte") else "invalid base64",
    "date": lambda text: "" if formats.has_format(text, "date") else "invalid date",
    "datetime": lambda text: "" if formats.has_format(text, "datetime") else "invalid datetime",
}


def _without_trailing_dash(text: str) -> str:
    return text[:-2] + "a" if text.endswith("-") and len(text) > 1 else text


def _format_errors(form: str, text: str) -> list[str]:
    problem = _FORMAT_ERRORS[form](text)
    return [problem] if problem else []


Implementation = Callable[..., Any]


def _string_function(run: Callable[[str], Any]) -> Implementation:
    return run


def _string_pair_function(run: Callable[[str, str], Any]) -> Implementation:
    return run


def _list_pair_function(run: Callable[[list[Any], list[Any]], Any]) -> Implementation:
    return run


# By function name, or by type and function name if the type selects the implementation.
IMPLEMENTATIONS: dict[str, Implementation] = {
    "sum": _sum,
    "@unsignedSum": _unsigned_sum,
    "min": _min,
    "max": _max,
    "isSorted": _is_sorted,
    "list.indexOf": _index_of,
    "list.lastIndexOf": _last_index_of,
    "string.indexOf": strings.index_of,
    "string.lastIndexOf": strings.last_index_of,
    "charAt": strings.char_at,
    "substring": strings.substring,
    "format": format_string,
    "slice": _slice,
    "flatten": _flatten,
    "lists.range": _range,
    "distinct": _distinct,
    "reverse": _reversed,
    "sort": sorted,
    "@sortByAssociatedKeys": _sort_by,
    "sets.contains": _list_pair_function(lambda left, right: all(_contains_equal(left, item) for item in right)),
    "sets.equivalent": _list_pair_function(
        lambda left, right: (
            all(_contains_equal(left, i) for i in right) and all(_contains_equal(right, i) for i in left)
        )
    ),
    "sets.intersects": _list_pair_function(lambda left, right: any(_contains_equal(left, item) for item in right)),
    "find": _find,
    "findAll": _find_all,
    "url": _parse_url_value,
    "isURL": _string_function(lambda text: _is_valid(parse_url, text)),
    "getScheme": _string_function(lambda text: parse_url(text).scheme),
    "getHost": _string_function(lambda text: parse_url(text).host),
    "getHostname": _string_function(lambda text: parse_url(text).hostname),
    "getPort": _string_function(lambda text: parse_url(text).port),
    "getEscapedPath": _string_function(lambda text: parse_url(text).path),
    "getQuery": _string_function(lambda text: parse_url(text).values()),
    "quantity": _parse_quantity,
    "isQuantity": _string_function(lambda text: _is_valid(_parse_quantity, text)),
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": _string_function(lambda text: float(quantities.decode_quantity(text).value)),
    "sign": _sign,
    "add": _add,
    "sub": _subtract,
    "isLessThan": _string_pair_function(lambda left, right: _compare_quantities(left, right) < 0),
    "isGreaterThan": _string_pair_function(lambda left, right: _compare_quantities(left, right) > 0),
    "compareTo": _compare_quantities,
    "semver": semver.parse_version,
    "isSemver": lambda *given: _is_valid(semver.parse_version, *given),
    "kubernetes.Semver.isLessThan": _string_pair_function(
        lambda left, right: semver.compare_versions(left, right) < 0
    ),
    "kubernetes.Semver.isGreaterThan": _string_pair_function(
        lambda left, right: semver.compare_versions(left, right) > 0
    ),
    "kubernetes.Semver.compareTo": semver.compare_versions,
    "major": _string_function(lambda version: semver.version_parts(version)[0][0]),
    "minor": _string_function(lambda version: semver.version_parts(version)[0][1]),
    "patch": _string_function(lambda version: semver.version_parts(version)[0][2]),
    "format.isNamed": _string_function(lambda name: name in _FORMAT_ERRORS),
    "format.problems": _format_errors,
    "@keys": _keys,
    "@exact.duration": check_duration_precision,
    "@exact.timestamp": check_time_precision,
    "@nanoseconds": _nanoseconds,
    "@trimmed": trim_fraction,
    "@mapOf": _map_of,
    "@merged": _merge,
    "@same": _is_equal_in_shape,
    "@within": _contains_in_shape,
    "@union": _union,
    **ip_addresses.IMPLEMENTATIONS,
}
