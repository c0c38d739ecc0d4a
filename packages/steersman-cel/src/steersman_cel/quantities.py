"""Quantities in CEL, as texts: the exact value, and how Go holds it, which decides what counts as an integer.

Source: ``pkg/api/resource/quantity.go`` and ``amount.go`` of ``k8s.io/apimachinery``, ``pkg/cel/library/quantity.go``
of ``k8s.io/apiserver``.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from typing import NamedTuple

# No text of people begins so.
_MARK = "\ue000quantity "
_MALFORMED = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?=\.?\d)(?P<whole>\d*)(?:\.(?P<part>\d*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE]?)|[eE](?P<exponent>[+-]?\d+))",
    re.ASCII,
)
_BINARY = {suffix: 10 * n for n, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXACT = Context(prec=200)
_INT64 = range(-(2**63), 2**63)


class Amount(NamedTuple):
    """A quantity.

    Attributes:
        value: what it is.
        scale: of the 64 bits that Go holds it in, as a power of ten; None where Go holds it in more.
    """

    value: Decimal
    scale: int | None

    def text(self) -> str:
        """What stands for it in expressions."""
        return f"{_MARK}{self.value:f} {'' if self.scale is None else self.scale}"

    @property
    def integer(self) -> int | None:
        """The integer that Go takes it for; not each whole number is one."""
        if self.scale is None or self.scale < 0 or int(self.value) not in _INT64:
            return None
        return int(self.value)


def amount(text: str) -> Amount:
    """The quantity that ``text`` stands for, made by ``Amount.text``."""
    value, _, scale = text.removeprefix(_MARK).partition(" ")
    return Amount(Decimal(value), int(scale) if scale else None)


def is_amount(value: object) -> bool:
    """Whether ``value`` is a text that stands for a quantity."""
    return isinstance(value, str) and value.startswith(_MARK)


def parsed(text: str) -> Amount:
    """The quantity that ``text`` writes, such as ``1.5Gi``.

    Raises:
        ValueError: it writes none.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(_MALFORMED)
    whole, part = found["whole"].lstrip("0"), found["part"] or ""
    scale = _DECIMAL[found["decimal"] or ""] if found["exponent"] is None else int(found["exponent"])
    factor = Decimal(1)
    precision = 18 - len(whole) - len(part)
    if found["binary"]:
        power = _BINARY[found["binary"]]
        scale, factor = 0, Decimal(2**power)
        precision = -1 if part else 15 - len(whole) - power * 3 // 10 - 1
    value = Decimal(f"{found['sign']}{whole}.{part}0") * factor
    value = _EXACT.scaleb(value, scale)
    small = precision >= 0 and scale - len(part) >= -9
    return Amount(_rounded(value), scale - len(part) if small else None)


def _rounded(value: Decimal) -> Decimal:
    """Less than a billionth counts as one."""
    return value.quantize(Decimal("1e-9"), ROUND_UP, _EXACT).normalize(_EXACT)


def added(left: Amount, right: Amount) -> Amount:
    """The sum, which Go holds in the finer of the two scales, if it can."""
    value = _EXACT.add(left.value, right.value)
    if left.scale is None or right.scale is None:
        return Amount(value, None)
    if not right.value:
        return left
    if not left.value:
        return right
    scale = min(left.scale, right.scale)
    return Amount(value, scale if int(_EXACT.scaleb(value, -scale)) in _INT64 else None)
