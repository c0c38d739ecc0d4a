"""Texts that Go reads and writes in a form of its own: quantities, times, bytes.

Source: ``k8s.io/apimachinery``, packages ``api/resource`` and ``apis/meta/v1``; ``encoding/base64``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from steersman.meta import Quantity

_QUANTITY_PATTERN = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<fraction>\.\d+)?(Z|[+-]\d\d:\d\d)")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")


class WrongType(ValueError):
    """A value does not fit its field; the text is Go's."""


def quantity_text(value: Any) -> str:
    """A quantity in the canonical form: no fraction, and the largest unit that needs none.

    Raises:
        WrongType: it is none.
    """
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise WrongType("quantities must match the regular expression '" + _QUANTITY_PATTERN + "'")
    try:
        amount = Quantity(text).value
    except ValueError:
        raise WrongType("quantities must match the regular expression '" + _QUANTITY_PATTERN + "'") from None
    if re.search(r"[0-9.][eE][+-]?[0-9]+$", text):
        return _exponential(amount)
    # Small amounts of bytes are written without a binary unit.
    if text.endswith("i") and abs(amount) >= 1024 and amount == amount.to_integral_value():
        return _scaled(amount, 1024, _BINARY, 0)
    return _scaled((amount * 10**9).to_integral_value("ROUND_CEILING"), 1000, _DECIMAL, 0)


def _scaled(amount: Decimal, base: int, units: tuple[str, ...], position: int) -> str:
    if amount == 0:
        return "0"
    while position < len(units) - 1 and amount % base == 0:
        amount /= base
        position += 1
    return f"{int(amount)}{units[position]}"


def _exponential(amount: Decimal) -> str:
    if amount == 0:
        return "0"
    mantissa, exponent = (amount * 10**9).to_integral_value("ROUND_CEILING"), -9
    while mantissa % 1000 == 0:
        mantissa /= 1000
        exponent += 3
    return f"{int(mantissa)}e{exponent}" if exponent else str(int(mantissa))


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
