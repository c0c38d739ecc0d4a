"""Maximum costs of function calls, and sizes of their results.

Source: ``functionCost`` in ``checker/cost.go`` and the estimators in ``ext`` of cel-go; ``EstimateCallCost`` in
``pkg/cel/library/cost.go`` of ``k8s.io/apiserver`` 1.36. Authorizers are left out, since rules have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from steersman_cel.declarations import Overload
from steersman_cel.syntax_tree import Node, integer_value
from steersman_cel.types import Type

MAX_COST = (1 << 64) - 1
"""Upper limit of costs: the API server counts in 64 bits."""
_STRING_TRAVERSAL_FACTOR = 0.1
_REGEX_COST_FACTOR = 0.25
_LIST_CREATE_COST = 10
# Maximum length of the patterns of named formats, and of their names.
_MAX_FORMAT_PATTERN_LENGTH = 128
_MAX_FORMAT_NAME_LENGTH = 64
# IPv6 addresses have 16 bytes.
_MAX_ADDRESS_BYTES = 16


class SizeEstimate(NamedTuple):
    """Minimum and maximum number of characters, bytes or items."""

    least: int
    most: int

    def union(self, other: SizeEstimate) -> SizeEstimate:
        """The smallest range that contains both."""
        return SizeEstimate(min(self.least, other.least), max(self.most, other.most))

    def add(self, other: SizeEstimate) -> SizeEstimate:
        return SizeEstimate(add(self.least, other.least), add(self.most, other.most))

    def multiply(self, other: SizeEstimate) -> SizeEstimate:
        return SizeEstimate(multiply(self.least, other.least), multiply(self.most, other.most))


UNKNOWN_SIZE = SizeEstimate(0, MAX_COST)


class ArgumentEstimate(NamedTuple):
    """The target or an argument of a call.

    Attributes:
        size: size of the value.
        size_known: False if ``size`` is ``UNKNOWN_SIZE`` for lack of a declared size.
        item_size: size of the items of a list or map.
    """

    node: Node
    type: Type
    size: SizeEstimate
    size_known: bool
    item_size: SizeEstimate | None = None


class CallEstimate(NamedTuple):
    """Maximum cost of a call without arguments, and its result size."""

    cost: int
    size: SizeEstimate | None = None


_Arguments = Sequence[ArgumentEstimate]
_Estimator = Callable[[Overload, ArgumentEstimate | None, _Arguments], CallEstimate | None]


def add(left: int, right: int) -> int:
    """The sum, limited to ``MAX_COST``."""
    return min(left + right, MAX_COST)


def multiply(left: int, right: int) -> int:
    """The product, limited to ``MAX_COST``."""
    return min(left * right, MAX_COST)


def scale(count: int, factor: float) -> int:
    """``count`` times ``factor``, rounded up and limited to ``MAX_COST``."""
    product = count * factor
    return MAX_COST if product >= MAX_COST else math.ceil(product)


def estimate_call(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    """The cost of a call of ``overload`` without its target and arguments."""
    name = overload.name
    estimator = _LISTS.get(name) or _KUBERNETES.get(name) or _STANDARD.get(name)
    found = estimator(overload, target, arguments) if estimator is not None else None
    return found or CallEstimate(1)


# Lists and sets: ext/lists.go and ext/sets.go


def _list_allocation(factor: float, size: SizeEstimate) -> CallEstimate:
    return CallEstimate(add(scale(size.most, factor), 1 + _LIST_CREATE_COST), size)


def _literal_or(argument: ArgumentEstimate, default: int) -> int:
    value = integer_value(argument.node)
    return default if value is None else max(value, 0)


def _slice(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if target is None or len(arguments) != 2:
        return None
    # Go uses unsigned integers: an end before the start wraps around.
    count = (_literal_or(arguments[1], target.size.most) - _literal_or(arguments[0], 0)) & MAX_COST
    return _list_allocation(1, SizeEstimate(count, count))


def _range(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    count = _literal_or(arguments[0], MAX_COST)
    return _list_allocation(1, SizeEstimate(count, count))


def _reverse(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    return None if target is None else _list_allocation(1, target.size)


def _flatten(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    depth = _literal_or(arguments[0], MAX_COST) if arguments else 1
    return None if target is None else _list_allocation(float(depth), target.size)


def _distinct(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    return None if target is None else _list_allocation(2, target.size.multiply(target.size))


def _sort(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    sorted_by = arguments[0] if arguments else target
    if sorted_by is None:
        return None
    text = overload.params[-1].params[0].name in ("string", "bytes")
    return _list_allocation(2 + _STRING_TRAVERSAL_FACTOR if text else 2, sorted_by.size.multiply(sorted_by.size))


def _sets(factor: int) -> _Estimator:
    def estimate(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
        one, two = arguments
        return CallEstimate(add(scale(multiply(one.size.most, two.size.most), factor), 1))

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


# Kubernetes library


def _traversal_cost(size: SizeEstimate, factor: float = 1) -> int:
    return scale(size.most, factor * _STRING_TRAVERSAL_FACTOR)


def _search(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if target is None:
        return None
    if target.item_size is None:
        return CallEstimate(_traversal_cost(target.size))
    text = target.type.params[0].name in ("string", "bytes")
    return CallEstimate(multiply(target.size.most, add(1, _traversal_cost(target.item_size) if text else 0)))


def _parse(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    return CallEstimate(_traversal_cost(arguments[0].size))


def _parse_address(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    return CallEstimate(_traversal_cost(arguments[0].size)) if arguments else CallEstimate(1)


def _parse_twice(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    return CallEstimate(_traversal_cost(arguments[0].size, 2))


def _url(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    return CallEstimate(_traversal_cost(arguments[0].size), arguments[0].size)


def _same_size(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    return None if target is None else CallEstimate(_traversal_cost(target.size), target.size)


def _replace(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if target is None:
        return None
    size, old, new = target.size, arguments[0].size, arguments[1].size
    if old.least == 0:
        # The empty string matches between all characters.
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
    return CallEstimate(_traversal_cost(size, 2), SizeEstimate(least, most))


def _split(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if target is None:
        return None
    limit = integer_value(arguments[1].node) if len(arguments) > 1 else None
    most = target.size.most if limit is None else limit & MAX_COST
    return CallEstimate(_traversal_cost(target.size, 2), SizeEstimate(0, most))


def _join(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if target is None or target.item_size is None:
        return None
    size = target.size.multiply(target.item_size)
    if arguments:
        between = SizeEstimate(max(target.size.least - 1, 0), max(target.size.most - 1, 0))
        size = size.add(arguments[0].size.multiply(between))
    return CallEstimate(_traversal_cost(size), size)


def _regex_cost(text: SizeEstimate, pattern: SizeEstimate) -> int:
    return multiply(scale(add(text.most, 1), _STRING_TRAVERSAL_FACTOR), scale(pattern.most, _REGEX_COST_FACTOR))


def _find(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_regex_cost(target.size, arguments[0].size), SizeEstimate(0, target.size.most))


def _contains_ip(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    parse_cost = _traversal_cost(arguments[0].size) if overload.params[-1].name == "string" else 0
    return CallEstimate(add(scale(2 * _MAX_ADDRESS_BYTES, _STRING_TRAVERSAL_FACTOR), parse_cost))


def _contains_cidr(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    mask_cost = scale(_MAX_ADDRESS_BYTES, _STRING_TRAVERSAL_FACTOR) + 1
    return CallEstimate(add(_contains_ip(overload, target, arguments).cost, mask_cost))


def _validate(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    return CallEstimate(scale(_traversal_cost(arguments[0].size), _MAX_FORMAT_PATTERN_LENGTH * _REGEX_COST_FACTOR))


def _equal(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    left, right = arguments
    if left.type == right.type:
        match left.type.name:
            case "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver":
                return CallEstimate(1)
            case "kubernetes.NamedFormat":
                return CallEstimate(scale(_MAX_FORMAT_NAME_LENGTH, _STRING_TRAVERSAL_FACTOR))
            case "kubernetes.URL":
                return CallEstimate(_traversal_cost(right.size if right.size_known else SizeEstimate(1, 1)))
            case _:
                pass
    return _compare(overload, target, arguments)


_KUBERNETES: dict[str, _Estimator] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _search),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _parse),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_size),
    **dict.fromkeys(("find", "findAll"), _find),
    "url": _url,
    "ip": _parse_address,
    "ip.isCanonical": _parse_twice,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
}


# Standard library


def _compare(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if overload.name not in ("_==_", "_!=_") and overload.params[0].name not in ("string", "bytes"):
        return None
    one, two = arguments
    return CallEstimate(scale(min(one.size.most, two.size.most), _STRING_TRAVERSAL_FACTOR))


def _format_call(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    return None if target is None else CallEstimate(_traversal_cost(target.size))


def _to_bytes(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if overload.params[0].name != "string":
        return None
    size = arguments[0].size
    return CallEstimate(_traversal_cost(size), SizeEstimate(size.least, size.most * 4 & MAX_COST))


def _to_string(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    if overload.params[0].name != "bytes":
        return None
    size = arguments[0].size
    return CallEstimate(_traversal_cost(size), SizeEstimate(size.least // 4, size.most))


def _quote(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate:
    size = arguments[0].size
    return CallEstimate(_traversal_cost(size), SizeEstimate(size.least + 2, size.most * 2 + 2 & MAX_COST))


def _in(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    return CallEstimate(arguments[1].size.most) if overload.params[1].name == "list" else None


def _matches(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    return None if target is None else CallEstimate(_regex_cost(target.size, arguments[0].size))


def _contains(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    return (
        None
        if target is None
        else CallEstimate(multiply(_traversal_cost(target.size), _traversal_cost(arguments[0].size)))
    )


def _concatenate(overload: Overload, target: ArgumentEstimate | None, arguments: _Arguments) -> CallEstimate | None:
    kind = overload.params[0].name
    if kind not in ("string", "bytes", "list"):
        return None
    size = arguments[0].size.add(arguments[1].size)
    return CallEstimate(1 if kind == "list" else _traversal_cost(size), size)


_STANDARD: dict[str, _Estimator] = {
    **dict.fromkeys(("_!=_", "_<_", "_<=_", "_>_", "_>=_"), _compare),
    **dict.fromkeys(("startsWith", "endsWith"), _parse),
    "format": _format_call,
    "bytes": _to_bytes,
    "string": _to_string,
    "strings.quote": _quote,
    "@in": _in,
    "matches": _matches,
    "contains": _contains,
    "_+_": _concatenate,
}
