"""Kubernetes resource quantities (``resource.Quantity``)."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import total_ordering

PATTERN = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"

_PARTS = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?")
# A longer text costs time and no API server writes one. 2^63-1 has 19 digits.
_MAX_LENGTH = 4096
_MAX_VALUE = Decimal(2**63 - 1)
_SUFFIXES: dict[str | None, Decimal] = {
    None: Decimal(1),
    **{s: Decimal(1000) ** e for s, e in zip("numkMGTPE", (-3, -2, -1, 1, 2, 3, 4, 5, 6), strict=True)},
    **{f"{s}i": Decimal(1024) ** e for e, s in enumerate("KMGTPE", start=1)},
}


@total_ordering
class Quantity:
    """An amount, such as ``1Gi``, ``500m`` or ``1e3``.

    Quantities compare by value. ``str`` returns the original text. Amounts above 2^63-1 are limited to 2^63-1, as in
    Kubernetes.

    Raises:
        ValueError: the text is not a valid quantity.

    Source: Kubernetes API reference, "Quantity".
    """

    __slots__ = ("_text", "_value")

    def __init__(self, text: str | int | float) -> None:
        self._text = str(text)
        if len(self._text) > _MAX_LENGTH:
            raise ValueError(f"a quantity has at most {_MAX_LENGTH} characters, not {len(self._text)}")
        parts = _PARTS.fullmatch(self._text)
        if parts is None:
            raise ValueError(f"{self._text!r} is not a quantity: write a number with a unit, such as 10Gi or 500m")
        number, suffix, exponent = parts.groups()
        # Limit the exponent, so that it cannot overflow. Larger exponents have the same result.
        scale = Decimal(10) ** max(-1000, min(int(exponent), 1000)) if exponent else _SUFFIXES[suffix]
        self._value = max(-_MAX_VALUE, min(Decimal(number) * scale, _MAX_VALUE))

    @property
    def value(self) -> Decimal:
        """The exact amount in base units."""
        return self._value

    def __int__(self) -> int:
        """Return the amount in base units, rounded up.

        The base unit of storage and memory is the byte.
        """
        return int(self._value.to_integral_value(rounding="ROUND_CEILING"))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self._value < other._value

    def __hash__(self) -> int:
        return hash(self._value)
