"""Functions of CEL that the engine does not have: lists, sets, patterns, quantities, URLs, versions, formats.

Values of Kubernetes' own types are texts here, in a form that is equal just when the values are: a quantity is its
exact value, an address its canonical text, a format its name.

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

from steersman.meta import formats
from steersman.meta.urls import check_request_uri, parse_url
from steersman_cel import addresses, quantities, texts, versions
from steersman_cel.formatting import formatted, time_text, trimmed
from steersman_cel.names import (
    label_key_problem,
    label_problem,
    label_value_problem,
    lower_label_problem,
    subdomain_problem,
)
from steersman_cel.patterns import compiled
from steersman_cel.precision import exact_duration, exact_time
from steersman_cel.values import is_list, is_map

_INT64, _UINT64 = range(-(2**63), 2**63), range(2**64)
_LONGEST = timedelta(microseconds=2**63 // 1000)

# Lists


def _sum(items: list[Any]) -> Any:
    found: Any = sum(items[1:], items[0]) if items else 0
    if isinstance(found, timedelta) and abs(found) > _LONGEST:
        raise ValueError("integer overflow")
    if isinstance(found, int) and found not in _INT64:
        raise ValueError("integer overflow")
    return found


def _unsigned_sum(items: list[int]) -> int:
    if sum(items) not in _UINT64:
        raise ValueError("unsigned integer overflow")
    return sum(items)


def _least(items: list[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def _most(items: list[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return max(items)


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


def same(left: Any, right: Any) -> bool:
    """Equal in CEL: numbers by value, but no number is a bool."""
    if is_list(left):
        return is_list(right) and len(left) == len(right) and all(map(same, left, right))
    if is_map(left):
        return is_map(right) and left.keys() == right.keys() and all(same(v, right[k]) for k, v in left.items())
    if quantities.is_amount(left) and quantities.is_amount(right):
        return quantities.amount(left).value == quantities.amount(right).value
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _has(items: Iterable[Any], item: Any) -> bool:
    return any(same(i, item) for i in items)


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((i for i, item in enumerate(items) if same(item, wanted)), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next((i for i in reversed(range(len(items))) if same(items[i], wanted)), -1)


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
        if not _has(found, item):
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
    """What the first of two variables goes over: positions, or keys."""
    return list(range(len(items))) if is_list(items) else list(items)


def _map_of(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


def _merged(entries: list[Any]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for entry in entries:
        for key, value in entry.items():
            if key in result:
                raise ValueError(f"insert failed: key {key} already exists")
            result[key] = value
    return result


# Lists whose order says nothing


def _same_as(left: Any, right: Any, shape: str) -> bool:
    return _same_in_shape(left, right, json.loads(shape))


def _within(item: Any, items: list[Any], shape: str) -> bool:
    return any(_same_in_shape(item, other, json.loads(shape)) for other in items)


def _same_in_shape(left: Any, right: Any, shape: Any) -> bool:
    """Equal, where ``shape`` tells what lists have no order: see ``rewriting``."""
    if not shape or type(left) is not type(right):
        return same(left, right)
    if is_list(left):
        if len(left) != len(right):
            return False
        if not shape["unordered"]:
            return all(_same_in_shape(a, b, shape["items"]) for a, b in zip(left, right, strict=True))
        return all(any(_same_in_shape(a, b, shape["items"]) for b in right) for a in left)
    if is_map(left):
        fields = shape.get("fields", {})
        return left.keys() == right.keys() and all(
            _same_in_shape(v, right[k], fields.get(k, shape.get("values"))) for k, v in left.items()
        )
    return same(left, right)


def _union(left: list[Any], right: list[Any], tags: str) -> list[Any]:
    """``left + right`` of lists without an order: of sets the union; of maps, what ``right`` has replaces."""
    kind, _, names = tags.partition(":")
    if kind == "set":
        return [*left, *(item for item in right if not _has(left, item))]
    keys = names.split(",")

    def key(item: Any) -> tuple[Any, ...]:
        return tuple(item.get(k) for k in keys)

    replaced = {key(item): item for item in right}
    kept = [replaced.pop(key(item), item) for item in left]
    return [*kept, *replaced.values()]


# Patterns


def _find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found = [m[0] for m in compiled(pattern).finditer(text)]
    return found if most < 0 else found[:most]


# Times


def _nanoseconds(duration: str) -> int:
    """Of a duration that is told in seconds."""
    return int(Decimal(duration.removesuffix("s")) * 10**9)


def sent(value: Any) -> Any:
    """``value`` as the engine takes it from us: it has no times, which are told as texts."""
    if is_list(value):
        return [sent(v) for v in value]
    if is_map(value):
        return {k: sent(v) for k, v in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    return time_text(value) if isinstance(value, datetime | timedelta) else value


# URLs


def _url(text: str) -> str:
    try:
        parse_url(text)
    except ValueError as error:
        raise ValueError(f"URL parse error during conversion from string: {error}") from None
    # Two are equal as Go writes them: the scheme in lower case, the path with its escapes.
    return re.sub("^[A-Za-z][A-Za-z0-9+.-]*:", lambda scheme: scheme[0].lower(), text).replace(" ", "%20")


def _uri_problem(text: str) -> str:
    try:
        check_request_uri(text)
    except ValueError as error:
        return str(error)
    return ""


# Quantities


def _fits(check: Callable[[str], Any], *arguments: Any) -> bool:
    try:
        check(*arguments)
    except ValueError:
        return False
    return True


def _quantity(text: str) -> str:
    return quantities.parsed(text).text()


def _compared(left: str, right: str) -> int:
    one, two = quantities.amount(left).value, quantities.amount(right).value
    return (one > two) - (one < two)


def _sign(text: str) -> int:
    value = quantities.amount(text).value
    return (value > 0) - (value < 0)


def _is_integer(text: str) -> bool:
    return quantities.amount(text).integer is not None


def _as_integer(text: str) -> int:
    found = quantities.amount(text).integer
    if found is None:
        raise ValueError("cannot convert value to integer")
    return found


def _amount(value: str | int) -> quantities.Amount:
    return quantities.Amount(Decimal(value), 0) if isinstance(value, int) else quantities.amount(value)


def _added(left: str, right: str | int) -> str:
    return quantities.added(_amount(left), _amount(right)).text()


def _subtracted(left: str, right: str | int) -> str:
    other = _amount(right)
    return quantities.added(_amount(left), other._replace(value=-other.value)).text()


# Formats

_FORMATS: dict[str, Callable[[str], str]] = {
    "dns1123Label": lower_label_problem,
    "dns1123Subdomain": subdomain_problem,
    "dns1035Label": label_problem,
    "qualifiedName": label_key_problem,
    "dns1123LabelPrefix": lambda text: lower_label_problem(_masked(text)),
    "dns1123SubdomainPrefix": lambda text: subdomain_problem(_masked(text)),
    "dns1035LabelPrefix": lambda text: label_problem(_masked(text)),
    "labelValue": label_value_problem,
    "uri": _uri_problem,
    "uuid": lambda text: "" if formats.has_format(text, "uuid") else "does not match the UUID format",
    "byte": lambda text: "" if formats.has_format(text, "byte") else "invalid base64",
    "date": lambda text: "" if formats.has_format(text, "date") else "invalid date",
    "datetime": lambda text: "" if formats.has_format(text, "datetime") else "invalid datetime",
}


def _masked(text: str) -> str:
    return text[:-2] + "a" if text.endswith("-") and len(text) > 1 else text


def _problems(form: str, text: str) -> list[str]:
    problem = _FORMATS[form](text)
    return [problem] if problem else []


Implementation = Callable[..., Any]


def _text(run: Callable[[str], Any]) -> Implementation:
    return run


def _pair(run: Callable[[str, str], Any]) -> Implementation:
    return run


def _lists(run: Callable[[list[Any], list[Any]], Any]) -> Implementation:
    return run


# By the name of the function; where a type decides, the type comes first.
IMPLEMENTATIONS: dict[str, Implementation] = {
    "sum": _sum,
    "@unsignedSum": _unsigned_sum,
    "min": _least,
    "max": _most,
    "isSorted": _is_sorted,
    "list.indexOf": _index_of,
    "list.lastIndexOf": _last_index_of,
    "string.indexOf": texts.index_of,
    "string.lastIndexOf": texts.last_index_of,
    "charAt": texts.char_at,
    "substring": texts.substring,
    "format": formatted,
    "slice": _slice,
    "flatten": _flatten,
    "lists.range": _range,
    "distinct": _distinct,
    "reverse": _reversed,
    "sort": sorted,
    "@sortByAssociatedKeys": _sort_by,
    "sets.contains": _lists(lambda left, right: all(_has(left, item) for item in right)),
    "sets.equivalent": _lists(
        lambda left, right: all(_has(left, i) for i in right) and all(_has(right, i) for i in left)
    ),
    "sets.intersects": _lists(lambda left, right: any(_has(left, item) for item in right)),
    "find": _find,
    "findAll": _find_all,
    "url": _url,
    "isURL": _text(lambda text: _fits(parse_url, text)),
    "getScheme": _text(lambda text: parse_url(text).scheme),
    "getHost": _text(lambda text: parse_url(text).host),
    "getHostname": _text(lambda text: parse_url(text).hostname),
    "getPort": _text(lambda text: parse_url(text).port),
    "getEscapedPath": _text(lambda text: parse_url(text).path),
    "getQuery": _text(lambda text: parse_url(text).values()),
    "quantity": _quantity,
    "isQuantity": _text(lambda text: _fits(_quantity, text)),
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": _text(lambda text: float(quantities.amount(text).value)),
    "sign": _sign,
    "add": _added,
    "sub": _subtracted,
    "isLessThan": _pair(lambda left, right: _compared(left, right) < 0),
    "isGreaterThan": _pair(lambda left, right: _compared(left, right) > 0),
    "compareTo": _compared,
    "semver": versions.version,
    "isSemver": lambda *given: _fits(versions.version, *given),
    "kubernetes.Semver.isLessThan": _pair(lambda left, right: versions.compared(left, right) < 0),
    "kubernetes.Semver.isGreaterThan": _pair(lambda left, right: versions.compared(left, right) > 0),
    "kubernetes.Semver.compareTo": versions.compared,
    "major": _text(lambda version: versions.parts(version)[0][0]),
    "minor": _text(lambda version: versions.parts(version)[0][1]),
    "patch": _text(lambda version: versions.parts(version)[0][2]),
    "format.isNamed": _text(lambda name: name in _FORMATS),
    "format.problems": _problems,
    "@keys": _keys,
    "@exact.duration": exact_duration,
    "@exact.timestamp": exact_time,
    "@nanoseconds": _nanoseconds,
    "@trimmed": trimmed,
    "@mapOf": _map_of,
    "@merged": _merged,
    "@same": _same_as,
    "@within": _within,
    "@union": _union,
    **addresses.IMPLEMENTATIONS,
}
