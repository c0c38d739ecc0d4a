"""Functions that Kubernetes adds to CEL.

A quantity is kept as the text of its exact value: such texts are equal just when the quantities are.

Source: "Common Expression Language in Kubernetes": list library, regex library, quantity library.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from steersman.meta import Quantity


def kubernetes_functions(cel: Any) -> list[Any]:
    """The functions, declared for the module ``cel_expr_python.cel``."""
    items, text, number, truth = cel.Type.LIST, cel.Type.STRING, cel.Type.INT, cel.Type.BOOL
    anything = cel.Type.DYN

    def declare(name: str, result: Any, *overloads: tuple[Callable[..., Any], tuple[Any, ...]], member: bool) -> Any:
        return cel.FunctionDecl(
            name,
            [
                cel.Overload(
                    f"kubernetes_{name}_{position}",
                    return_type=result,
                    parameters=list(parameters),
                    is_member=member,
                    impl=run,
                )
                for position, (run, parameters) in enumerate(overloads)
            ],
        )

    def method(name: str, result: Any, run: Callable[..., Any], *parameters: Any) -> Any:
        return declare(name, result, (run, parameters), member=True)

    return [
        method("sum", anything, _sum, items),
        method("min", anything, _least, items),
        method("max", anything, _most, items),
        method("isSorted", truth, _is_sorted, items),
        method("find", text, _find, text, text),
        method("findAll", items, _find_all, text, text),
        declare("quantity", text, (_quantity, (text,)), member=False),
        declare("isQuantity", truth, (_is_quantity, (text,)), member=False),
        method("compareTo", number, _compare, text, text),
        method("isGreaterThan", truth, _is_greater, text, text),
        method("isLessThan", truth, _is_less, text, text),
        method("sign", number, _sign, text),
        method("isInteger", truth, _is_integer, text),
        method("asInteger", number, _as_integer, text),
        method("asApproximateFloat", cel.Type.DOUBLE, _as_float, text),
        declare("add", text, (_add, (text, text)), (_add, (text, number)), member=True),
        declare("sub", text, (_subtract, (text, text)), (_subtract, (text, number)), member=True),
    ]


def _sum(items: list[Any]) -> Any:
    return sum(items)


def _least(items: list[Any]) -> Any:
    return min(items)


def _most(items: list[Any]) -> Any:
    return max(items)


def _is_sorted(items: list[Any]) -> bool:
    return items == sorted(items)


def _find(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str) -> list[str]:
    return [found[0] for found in re.finditer(pattern, text)]


def _exact(value: Decimal) -> str:
    return f"{value.normalize():f}"


def _quantity(text: str) -> str:
    return _exact(Quantity(text).value)


def _is_quantity(text: str) -> bool:
    try:
        Quantity(text)
    except ValueError:
        return False
    return True


def _compare(left: str, right: str) -> int:
    return (Decimal(left) > Decimal(right)) - (Decimal(left) < Decimal(right))


def _is_greater(left: str, right: str) -> bool:
    return Decimal(left) > Decimal(right)


def _is_less(left: str, right: str) -> bool:
    return Decimal(left) < Decimal(right)


def _sign(value: str) -> int:
    return _compare(value, "0")


def _is_integer(value: str) -> bool:
    return Decimal(value) == Decimal(value).to_integral_value() and abs(Decimal(value)) < 2**63


def _as_integer(value: str) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(Decimal(value))


def _as_float(value: str) -> float:
    return float(value)


def _add(left: str, right: str | int) -> str:
    return _exact(Decimal(left) + Decimal(right))


def _subtract(left: str, right: str | int) -> str:
    return _exact(Decimal(left) - Decimal(right))
