"""What calls of functions cost at most, and how large a value they give.

Source: ``functionCost`` in ``checker/cost.go`` and the estimators in ``ext`` of cel-go; ``EstimateCallCost`` in
``pkg/cel/library/cost.go`` of ``k8s.io/apiserver`` 1.36. Those of authorizers are not here: no rule has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from steersman_cel.declarations import Overload
from steersman_cel.syntax import Node, whole
from steersman_cel.types import Type

MOST = (1 << 64) - 1
"""What cannot be counted: the real server counts in 64 bits."""
_TRAVERSAL = 0.1
_PATTERN = 0.25
_LIST = 10
# The longest of the patterns that stand for the formats of names, and the longest format.
_FORMAT_PATTERN = 128
_FORMAT = 64
# An address has 4 or 16 bytes.
_ADDRESS = 16


class Size(NamedTuple):
    """How many characters, bytes or items a value has: at least, at most."""

    least: int
    most: int

    def union(self, other: Size) -> Size:
        """What covers both."""
        return Size(min(self.least, other.least), max(self.most, other.most))

    def plus(self, other: Size) -> Size:
        return Size(add(self.least, other.least), add(self.most, other.most))

    def times(self, other: Size) -> Size:
        return Size(multiply(self.least, other.least), multiply(self.most, other.most))


UNKNOWN = Size(0, MOST)


class Argument(NamedTuple):
    """What a function is called on, or with.

    Attributes:
        size: of the value.
        known: whether anything tells the size; else it is ``UNKNOWN``.
        item: the size of its items, where it has any.
    """

    node: Node
    type: Type
    size: Size
    known: bool
    item: Size | None = None


class Estimate(NamedTuple):
    """What a call costs at most without its arguments, and the size of its value where that is known."""

    cost: int
    size: Size | None = None


_Arguments = Sequence[Argument]
_Estimator = Callable[[Overload, Argument | None, _Arguments], Estimate | None]


def add(left: int, right: int) -> int:
    """The sum, as far as can be counted."""
    return min(left + right, MOST)


def multiply(left: int, right: int) -> int:
    """The product, as far as can be counted."""
    return min(left * right, MOST)


def scaled(count: int, factor: float) -> int:
    """``count`` times ``factor``, rounded up, as far as can be counted."""
    product = count * factor
    return MOST if product >= MOST else math.ceil(product)


def call_estimate(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    """What a call of ``overload`` costs, without what its target and arguments cost."""
    name = overload.name
    estimator = _LISTS.get(name) or _KUBERNETES.get(name) or _STANDARD.get(name)
    found = estimator(overload, target, arguments) if estimator is not None else None
    return found or Estimate(1)


# Lists and sets, by ext/lists.go and ext/sets.go


def _allocated(factor: float, size: Size) -> Estimate:
    return Estimate(add(scaled(size.most, factor), 1 + _LIST), size)


def _number(argument: Argument, otherwise: int) -> int:
    value = whole(argument.node)
    return otherwise if value is None else max(value, 0)


def _slice(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if target is None or len(arguments) != 2:
        return None
    # Unsigned: an end before the start wraps around.
    count = (_number(arguments[1], target.size.most) - _number(arguments[0], 0)) & MOST
    return _allocated(1, Size(count, count))


def _range(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    count = _number(arguments[0], MOST)
    return _allocated(1, Size(count, count))


def _reverse(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    return None if target is None else _allocated(1, target.size)


def _flatten(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    depth = _number(arguments[0], MOST) if arguments else 1
    return None if target is None else _allocated(float(depth), target.size)


def _distinct(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    return None if target is None else _allocated(2, target.size.times(target.size))


def _sort(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    sorted_by = arguments[0] if arguments else target
    if sorted_by is None:
        return None
    text = overload.params[-1].params[0].name in ("string", "bytes")
    return _allocated(2 + _TRAVERSAL if text else 2, sorted_by.size.times(sorted_by.size))


def _sets(factor: int) -> _Estimator:
    def estimate(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
        one, two = arguments
        return Estimate(add(scaled(multiply(one.size.most, two.size.most), factor), 1))

    return estimate


_LISTS: dict[str, _Estimator] = {
    "slice": _slice,
    "lists.range": _range,
    "reverse": _reverse,
    "flatten": _flatten,
    "distinct": _distinct,
    "sort": _sort,
    "@sortByAssociatedKeys": _sort,
    "sets.contains": _sets(1),
    "sets.intersects": _sets(1),
    "sets.equivalent": _sets(2),
}


# Kubernetes' own


def _traversal(size: Size, factor: float = 1) -> int:
    return scaled(size.most, factor * _TRAVERSAL)


def _searched(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if target is None:
        return None
    if target.item is None:
        return Estimate(_traversal(target.size))
    text = target.type.params[0].name in ("string", "bytes")
    return Estimate(multiply(target.size.most, add(1, _traversal(target.item) if text else 0)))


def _read(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    return Estimate(_traversal(arguments[0].size))


def _read_address(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    return Estimate(_traversal(arguments[0].size)) if arguments else Estimate(1)


def _read_twice(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    return Estimate(_traversal(arguments[0].size, 2))


def _url(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    return Estimate(_traversal(arguments[0].size), arguments[0].size)


def _same_size(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    return None if target is None else Estimate(_traversal(target.size), target.size)


def _replace(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if target is None:
        return None
    size, old, new = target.size, arguments[0].size, arguments[1].size
    if old.least == 0:
        # Nothing is between all characters, and around them.
        most = add(multiply(add(size.most, 1), new.most), size.most)
    elif new.most <= old.least:
        most = size.most
    else:
        most = multiply(math.ceil(size.most / old.least), new.most)
    if old.most == 0:
        least = add(multiply(add(size.least, 1), new.least), size.least)
    elif old.most <= new.least:
        least = size.least
    else:
        least = multiply(math.ceil(size.least / old.most), new.least)
    return Estimate(_traversal(size, 2), Size(least, most))


def _split(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if target is None:
        return None
    told = whole(arguments[1].node) if len(arguments) > 1 else None
    most = target.size.most if told is None else told & MOST
    return Estimate(_traversal(target.size, 2), Size(0, most))


def _join(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if target is None or target.item is None:
        return None
    size = target.size.times(target.item)
    if arguments:
        between = Size(max(target.size.least - 1, 0), max(target.size.most - 1, 0))
        size = size.plus(arguments[0].size.times(between))
    return Estimate(_traversal(size), size)


def _matched(text: Size, pattern: Size) -> int:
    return multiply(scaled(add(text.most, 1), _TRAVERSAL), scaled(pattern.most, _PATTERN))


def _find(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if target is None:
        return None
    return Estimate(_matched(target.size, arguments[0].size), Size(0, target.size.most))


def _contains_ip(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    read = _traversal(arguments[0].size) if overload.params[-1].name == "string" else 0
    return Estimate(add(scaled(2 * _ADDRESS, _TRAVERSAL), read))


def _contains_cidr(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    masked = scaled(_ADDRESS, _TRAVERSAL) + 1
    return Estimate(add(_contains_ip(overload, target, arguments).cost, masked))


def _validate(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    return Estimate(scaled(_traversal(arguments[0].size), _FORMAT_PATTERN * _PATTERN))


def _equal(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    left, right = arguments
    if left.type == right.type:
        match left.type.name:
            case "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver":
                return Estimate(1)
            case "kubernetes.NamedFormat":
                return Estimate(scaled(_FORMAT, _TRAVERSAL))
            case "kubernetes.URL":
                return Estimate(_traversal(right.size if right.known else Size(1, 1)))
            case _:
                pass
    return _compared(overload, target, arguments)


_KUBERNETES: dict[str, _Estimator] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _searched),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _read),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_size),
    **dict.fromkeys(("find", "findAll"), _find),
    "url": _url,
    "ip": _read_address,
    "ip.isCanonical": _read_twice,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
}


# The language's own


def _compared(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if overload.name not in ("_==_", "_!=_") and overload.params[0].name not in ("string", "bytes"):
        return None
    one, two = arguments
    return Estimate(scaled(min(one.size.most, two.size.most), _TRAVERSAL))


def _formatted(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    return None if target is None else Estimate(_traversal(target.size))


def _to_bytes(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if overload.params[0].name != "string":
        return None
    size = arguments[0].size
    return Estimate(_traversal(size), Size(size.least, size.most * 4 & MOST))


def _to_string(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    if overload.params[0].name != "bytes":
        return None
    size = arguments[0].size
    return Estimate(_traversal(size), Size(size.least // 4, size.most))


def _quoted(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate:
    size = arguments[0].size
    return Estimate(_traversal(size), Size(size.least + 2, size.most * 2 + 2 & MOST))


def _within(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    return Estimate(arguments[1].size.most) if overload.params[1].name == "list" else None


def _matches(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    return None if target is None else Estimate(_matched(target.size, arguments[0].size))


def _contains(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    return None if target is None else Estimate(multiply(_traversal(target.size), _traversal(arguments[0].size)))


def _added(overload: Overload, target: Argument | None, arguments: _Arguments) -> Estimate | None:
    kind = overload.params[0].name
    if kind not in ("string", "bytes", "list"):
        return None
    size = arguments[0].size.plus(arguments[1].size)
    return Estimate(1 if kind == "list" else _traversal(size), size)


_STANDARD: dict[str, _Estimator] = {
    **dict.fromkeys(("_!=_", "_<_", "_<=_", "_>_", "_>=_"), _compared),
    **dict.fromkeys(("startsWith", "endsWith"), _read),
    "format": _formatted,
    "bytes": _to_bytes,
    "string": _to_string,
    "strings.quote": _quoted,
    "@in": _within,
    "matches": _matches,
    "contains": _contains,
    "_+_": _added,
}
