"""Functions of CEL that the engine does not have: lists, sets, patterns, quantities, URLs, versions, formats.

Values of Kubernetes' own types are texts here, in a form that is equal just when the values are: a quantity is its
exact value, an address its canonical text, a format its name.

Source: ``pkg/cel/library`` of ``k8s.io/apiserver`` 1.36 and ``ext/lists.go``, ``ext/sets.go`` of cel-go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from steersman.meta import Quantity
from steersman.testing.apiserver import formats
from steersman.testing.apiserver.cel import addresses
from steersman.testing.apiserver.names import (
    label_key_problem,
    label_problem,
    label_value_problem,
    lower_label_problem,
    subdomain_problem,
)
from steersman.testing.apiserver.patterns import compiled
from steersman.testing.apiserver.values import is_list, is_map

_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)

# Lists


def _sum(items: list[Any]) -> Any:
    return sum(items[1:], items[0]) if items else 0


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
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _has(items: Iterable[Any], item: Any) -> bool:
    return any(same(i, item) for i in items)


def _index_of(target: Any, wanted: Any, start: int = 0) -> int:
    if isinstance(target, str):
        return target.find(wanted, start)
    return next((i for i, item in enumerate(target) if same(item, wanted)), -1)


def _last_index_of(target: Any, wanted: Any, start: int | None = None) -> int:
    if isinstance(target, str):
        return target.rfind(wanted) if start is None else target.rfind(wanted, 0, start + len(wanted))
    return next((i for i in reversed(range(len(target))) if same(target[i], wanted)), -1)


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


def _reversed(items: list[Any]) -> list[Any]:
    return items[::-1]


def _indices(items: list[Any]) -> list[int]:
    return list(range(len(items)))


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


# URLs


def _url(text: str) -> str:
    problem = _url_problem(text)
    if problem:
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": {problem}')
    return text


def _url_problem(text: str) -> str:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        return str(error)
    if re.search(r"[\x00-\x1f\x7f]", text):
        return "net/url: invalid control character in URL"
    if not text:
        return "empty url"
    if " " in parts.netloc:
        return 'invalid character " " in host name'
    if re.search(r"%(?![0-9a-fA-F]{2})", parts.netloc + parts.path):
        return "invalid URL escape"
    if not (text.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text)):
        return "invalid URI for request"
    return ""


def _hostname(text: str) -> str:
    host = urlsplit(text).netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(text: str) -> str:
    host = urlsplit(text).netloc.rpartition("@")[2]
    found = re.search(r":(\d*)$", host)
    return found[1] if found else ""


# Quantities


def _exact(value: Decimal) -> str:
    return f"{value.normalize():f}"


def _quantity(text: str) -> str:
    try:
        return _exact(Quantity(text).value)
    except ValueError:
        raise ValueError(_QUANTITY) from None


def _fits(check: Callable[[str], Any], *arguments: Any) -> bool:
    try:
        check(*arguments)
    except ValueError:
        return False
    return True


def _compared(left: str, right: str) -> int:
    return (Decimal(left) > Decimal(right)) - (Decimal(left) < Decimal(right))


def _is_integer(value: str) -> bool:
    return Decimal(value) == Decimal(value).to_integral_value() and -(2**63) <= Decimal(value) < 2**63


def _as_integer(value: str) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(Decimal(value))


def _added(left: str, right: str | int) -> str:
    return _exact(Decimal(left) + Decimal(right))


def _subtracted(left: str, right: str | int) -> str:
    return _exact(Decimal(left) - Decimal(right))


# Versions


def _semver(text: str, normalize: bool = False) -> str:
    wanted = text
    if normalize:
        found = re.match(r"v?([^-+]*)", text)
        core = found[1] if found else ""
        rest = text[found.end() :] if found else text
        numbers = [n.lstrip("0") or "0" if n else n for n in core.split(".")]
        wanted = ".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + rest
    if not _SEMVER.fullmatch(wanted):
        raise ValueError(f"invalid semantic version: {text}")
    return wanted


def _is_semver(text: str, normalize: bool = False) -> bool:
    return _fits(_semver, text, normalize)


def _parts(version: str) -> tuple[list[int], list[str]]:
    found = _SEMVER.fullmatch(version)
    assert found is not None
    return [int(found[n]) for n in (1, 2, 3)], (found[4] or "").split(".") if found[4] else []


def _semver_compared(left: str, right: str) -> int:
    (numbers, before), (others, other_before) = _parts(left), _parts(right)
    if numbers != others:
        return 1 if numbers > others else -1
    if not before or not other_before:
        return bool(other_before) - bool(before)
    for one, two in zip(before, other_before, strict=False):
        if one != two:
            return _identifiers_compared(one, two)
    return (len(before) > len(other_before)) - (len(before) < len(other_before))


def _identifiers_compared(one: str, two: str) -> int:
    if one.isdigit() and two.isdigit():
        return 1 if int(one) > int(two) else -1
    if one.isdigit() != two.isdigit():
        return -1 if one.isdigit() else 1
    return 1 if one > two else -1


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
    "uri": lambda text: _url_problem(text) and f'parse "{text}": {_url_problem(text)}',
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


def _texts(run: Callable[[str, str], Any]) -> Implementation:
    return run


def _lists(run: Callable[[list[Any], list[Any]], Any]) -> Implementation:
    return run


# By the name of the function; where a type decides, the type comes first.
IMPLEMENTATIONS: dict[str, Implementation] = {
    "sum": _sum,
    "min": _least,
    "max": _most,
    "isSorted": _is_sorted,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "slice": _slice,
    "flatten": _flatten,
    "lists.range": _range,
    "distinct": _distinct,
    "reverse": _reversed,
    "sort": sorted,
    "sortBy": _sort_by,
    "sets.contains": _lists(lambda left, right: all(_has(left, item) for item in right)),
    "sets.equivalent": _lists(
        lambda left, right: all(_has(left, i) for i in right) and all(_has(right, i) for i in left)
    ),
    "sets.intersects": _lists(lambda left, right: any(_has(left, item) for item in right)),
    "find": _find,
    "findAll": _find_all,
    "url": _url,
    "isURL": _text(lambda text: not _url_problem(text)),
    "getScheme": _text(lambda text: urlsplit(text).scheme),
    "getHost": _text(lambda text: urlsplit(text).netloc.rpartition("@")[2]),
    "getHostname": _hostname,
    "getPort": _port,
    "getEscapedPath": _text(lambda text: urlsplit(text).path),
    "getQuery": _text(
        lambda text: {unquote(k): v for k, v in parse_qs(urlsplit(text).query, keep_blank_values=True).items()}
    ),
    "quantity": _quantity,
    "isQuantity": _text(lambda text: _fits(_quantity, text)),
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": float,
    "sign": _text(lambda value: _compared(value, "0")),
    "add": _added,
    "sub": _subtracted,
    "isLessThan": _texts(lambda left, right: _compared(left, right) < 0),
    "isGreaterThan": _texts(lambda left, right: _compared(left, right) > 0),
    "compareTo": _compared,
    "semver": _semver,
    "isSemver": _is_semver,
    "kubernetes.Semver.isLessThan": _texts(lambda left, right: _semver_compared(left, right) < 0),
    "kubernetes.Semver.isGreaterThan": _texts(lambda left, right: _semver_compared(left, right) > 0),
    "kubernetes.Semver.compareTo": _semver_compared,
    "major": _text(lambda version: _parts(version)[0][0]),
    "minor": _text(lambda version: _parts(version)[0][1]),
    "patch": _text(lambda version: _parts(version)[0][2]),
    "format.isNamed": _text(lambda name: name in _FORMATS),
    "format.problems": _problems,
    "@indices": _indices,
    "@mapOf": _map_of,
    "@merged": _merged,
    "@same": _same_as,
    "@union": _union,
    **addresses.IMPLEMENTATIONS,
}
