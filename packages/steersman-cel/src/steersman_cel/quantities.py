"""Quantities in CEL, encoded as strings: exact value and Go's representation.

The representation decides which quantities are integers.

Source: ``pkg/api/resource/quantity.go`` and ``amount.go`` of ``k8s.io/apimachinery``, ``pkg/cel/library/quantity.go``
of ``k8s.io/apiserver``.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from typing import NamedTuple

# Strings of users do not start with this private-use character.
_QUANTITY_PREFIX = "\ue000quantity "
_MALFORMED_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_QUANTITY_PATTERN = re.compile(
    r"(?P<sign>[+-]?)(?=\.?\d)(?P<whole>\d*)(?:\.(?P<part>\d*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE]?)|[eE](?P<exponent>[+-]?\d+))",
    re.ASCII,
)
_BINARY = {suffix: 10 * n for n, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_CONTEXT = Context(prec=200)
_INT64 = range(-(2**63), 2**63)


class QuantityValue(NamedTuple):
    """A quantity.

    Attributes:
        value: exact value.
        scale: power of ten of Go's int64 representation. None if Go uses a larger representation.
    """

    value: Decimal
    scale: int | None

    def encode(self) -> str:
        """The string that represents the quantity in expressions."""
        return f"{_QUANTITY_PREFIX}{self.value:f} {'' if self.scale is None else self.scale}"

    @property
    def as_integer(self) -> int | None:
        """The value if Go represents it as an integer, else None."""
        if self.scale is None or self.scale < 0 or int(self.value) not in _INT64:
            return None
        return int(self.value)


def decode_quantity(text: str) -> QuantityValue:
    """Decode the result of ``QuantityValue.encode``."""
    value, _, scale = text.removeprefix(_QUANTITY_PREFIX).partition(" ")
    return QuantityValue(Decimal(value), int(scale) if scale else None)


def is_encoded_quantity(value: object) -> bool:
    """Return True if ``value`` is an encoded quantity."""
    return isinstance(value, str) and value.startswith(_QUANTITY_PREFIX)


def parse_quantity(text: str) -> QuantityValue:
    """Parse a quantity such as ``1.5Gi``.

    Raises:
        ValueError: ``text`` is not a quantity.
    """
    found = _QUANTITY_PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(_MALFORMED_ERROR)
    integer_digits, fraction_digits = found["whole"].lstrip("0"), found["part"] or ""
    scale = _DECIMAL[found["decimal"] or ""] if found["exponent"] is None else int(found["exponent"])
    factor = Decimal(1)
    precision = 18 - len(integer_digits) - len(fraction_digits)
    if found["binary"]:
        power = _BINARY[found["binary"]]
        scale, factor = 0, Decimal(2**power)
        precision = -1 if fraction_digits else 15 - len(integer_digits) - power * 3 // 10 - 1
    value = Decimal(f"{found['sign']}{integer_digits}.{fraction_digits}0") * factor
    value = _DECIMAL_CONTEXT.scaleb(value, scale)
    fits_int64 = precision >= 0 and scale - len(fraction_digits) >= -9
    return QuantityValue(_round_up_to_nano(value), scale - len(fraction_digits) if fits_int64 else None)


def _round_up_to_nano(value: Decimal) -> Decimal:
    """Less than a billionth counts as one."""
    return value.quantize(Decimal("1e-9"), ROUND_UP, _DECIMAL_CONTEXT).normalize(_DECIMAL_CONTEXT)


def add_quantities(left: QuantityValue, right: QuantityValue) -> QuantityValue:
    """The sum, in the finer of the two scales if it fits."""
    value = _DECIMAL_CONTEXT.add(left.value, right.value)
    if left.scale is None or right.scale is None:
        return QuantityValue(value, None)
    if not right.value:
        return left
    if not left.value:
        return right
    scale = min(left.scale, right.scale)
    return QuantityValue(value, scale if int(_DECIMAL_CONTEXT.scaleb(value, -scale)) in _INT64 else None)
