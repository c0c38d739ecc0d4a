"""Texts that Go reads and writes in a form of its own: quantities, times, bytes.

Source: ``k8s.io/apimachinery``, packages ``api/resource`` and ``apis/meta/v1``; ``encoding/base64``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from steersman_testing.apiserver import failures

_QUANTITY_PATTERN = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_QUANTITY = re.compile(
    r"[+-]?(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d+)|(?P<unit>[KMGTPE]i|[numkMGTPE]?))",
    re.ASCII,
)
_NUMBER_AND_UNIT = re.compile(r"[+-]?\d*\.?\d*[eEinumkKMGTP]*[-+]?\d*", re.ASCII)
_ONES = _DECIMAL.index("")
_MOST_DIGITS, _LARGEST = 18, 2**63 - 1
_HUGE = 1000
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<fraction>\.\d+)?(Z|[+-]\d\d:\d\d)")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")


class WrongType(ValueError):
    """A value does not fit its field; the text is Go's."""


class Spelled(float):
    """A number with a fraction or an exponent, that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> Spelled:
        self = super().__new__(cls, text)
        self.text = text
        return self


def quantity_text(value: Any, *, milli: bool = False) -> str:
    """A quantity as it is kept: as it was written, where that needs no shortening.

    Else it has the canonical form: no fraction, and the largest unit that needs none.

    Args:
        milli: whether what is less than a thousandth is rounded up, as in lists of resources.

    Raises:
        WrongType: it is none.
        ApiError: 501, it has thousands of digits.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _no_quantity("")
    text = value.text if isinstance(value, Spelled) else str(value).strip(" ")
    found = _QUANTITY.fullmatch(text)
    if found is None or not text:
        raise _no_quantity(text)
    if len(text) > _HUGE or abs(int(found["exponent"] or 0)) > _HUGE:
        raise failures.refused_here("quantities of thousands of digits")
    whole, fraction, unit, exponent = (found[n] or "" for n in ("whole", "fraction", "unit", "exponent"))
    digits = (whole.lstrip("0") or "0") + fraction
    finest = -3 if milli else -9
    if unit.endswith("i"):
        return _binary_text(text, digits, fraction, _BINARY.index(unit), finest)
    power = int(exponent) if exponent else 3 * (_DECIMAL.index(unit) - _ONES)
    power -= len(fraction)
    short = len(digits) <= _MOST_DIGITS and power % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
    if short and power >= finest:
        return text
    nano = _rounded_up(int(digits), power + 9, finest + 9)
    return ("-" if text.startswith("-") and nano else "") + (_exponential(nano) if exponent else _decimal(nano))


def _no_quantity(text: str) -> WrongType:
    if text and _NUMBER_AND_UNIT.fullmatch(text):
        return WrongType("unable to parse quantity's suffix")
    return WrongType("quantities must match the regular expression '" + _QUANTITY_PATTERN + "'")


def _rounded_up(digits: int, power: int, finest: int) -> int:
    """``digits`` by ten to the ``power``, in steps of ten to the ``finest``."""
    if power >= finest:
        return int(digits * 10**power)
    return int(-(-digits // 10 ** (finest - power)) * 10**finest)


def _binary_text(text: str, digits: str, fraction: str, thousands: int, finest: int) -> str:
    room = 15 - len(digits) - 3 * thousands - 1
    if not fraction and room >= 0 and int(digits) % 8:
        return text
    exact = int(digits) * 1024**thousands
    nano = min(_rounded_up(exact, 9 - len(fraction), finest + 9), _LARGEST * 10**9)
    amount, rest = divmod(nano, 10**9)
    # Small amounts of bytes are written without a binary unit.
    shown = _decimal(nano) if rest or amount < 1024 else _scaled(amount, 1024, _BINARY)
    return ("-" if text.startswith("-") and nano else "") + shown


def _decimal(nano: int) -> str:
    return _scaled(nano, 1000, _DECIMAL)


def _scaled(amount: int, base: int, units: tuple[str, ...]) -> str:
    if amount == 0:
        return "0"
    position = 0
    while position < len(units) - 1 and amount % base == 0:
        amount //= base
        position += 1
    return f"{amount}{units[position]}"


def _exponential(nano: int) -> str:
    if nano == 0:
        return "0"
    mantissa, exponent = nano, -9
    while mantissa % 1000 == 0:
        mantissa //= 1000
        exponent += 3
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


def time_text(value: Any) -> str:
    """A ``metav1.Time``: whole seconds in UTC.

    Raises:
        WrongType: it is none.
    """
    return _moment(value, "2006-01-02T15:04:05Z07:00").strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(value: Any) -> str:
    """A ``metav1.MicroTime``: microseconds in UTC, of which six digits must be there.

    Raises:
        WrongType: it is none.
    """
    form = "2006-01-02T15:04:05.000000Z07:00"
    moment = _moment(value, form)
    fraction = re.search(r"\.(\d+)", value)
    if fraction is None or len(fraction[1]) != 6:
        rest = value[19:]
        raise WrongType(f'parsing time "{value}" as "{form}": cannot parse "{rest}" as ".000000"')
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(value: Any, form: str) -> datetime:
    if not isinstance(value, str):
        raise WrongType(f"json: cannot unmarshal {value!r} into Go value of type string")
    try:
        if _TIME.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
    except ValueError:
        pass
    raise WrongType(f'parsing time "{value}" as "{form}": cannot parse "{value}" as "2006"')


def base64_text(value: Any) -> str:
    """Bytes as they are sent.

    Raises:
        WrongType: no base64.
    """
    if not isinstance(value, str):
        raise WrongType("json: cannot unmarshal into Go value of type []uint8")
    wrong = _NO_BASE64.search(value)
    if wrong is not None:
        raise WrongType(f"illegal base64 data at input byte {wrong.start()}")
    body = re.sub(r"[\r\n]", "", value)
    if len(body) % 4 or not re.fullmatch(r"[^=]*={0,2}", body):
        raise WrongType(f"illegal base64 data at input byte {len(body) - len(body) % 4}")
    return body
