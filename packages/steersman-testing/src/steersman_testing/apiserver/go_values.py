"""Values in Go's form: quantities, times, bytes, and texts in errors.

Source: ``k8s.io/apimachinery``, packages ``api/resource`` and ``apis/meta/v1``; ``encoding/base64``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.values import is_list, is_map, type_of

_QUANTITY_PATTERN = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_QUANTITY = re.compile(
    r"[+-]?(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d+)|(?P<unit>[KMGTPE]i|[numkMGTPE]?))",
    re.ASCII,
)
_NUMBER_AND_SUFFIX = re.compile(r"[+-]?\d*\.?\d*[eEinumkKMGTP]*[-+]?\d*", re.ASCII)
_UNIT_INDEX = _DECIMAL_SUFFIXES.index("")
_MAX_DIGITS, _MAX_INT64 = 18, 2**63 - 1
_MAX_SUPPORTED_DIGITS = 1000
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<fraction>\.\d+)?(Z|[+-]\d\d:\d\d)")
_NON_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")


class UnmarshalTypeError(ValueError):
    """A value does not fit its field. The text is that of Go."""


class NumberLiteral(float):
    """Number with a fraction or an exponent that keeps its literal."""

    text: str

    def __new__(cls, text: str) -> NumberLiteral:
        self = super().__new__(cls, text)
        self.text = text
        return self


def canonical_quantity(value: Any, *, milli: bool = False) -> str:
    """Return a quantity in the form that is stored.

    A literal that needs no shortening is kept. Otherwise the canonical form has no fraction and the largest possible
    unit.

    Args:
        milli: whether to round up to thousandths, as in resource lists.

    Raises:
        UnmarshalTypeError: the quantity is malformed.
        ApiError: 501, it has thousands of digits.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _quantity_error("")
    text = value.text if isinstance(value, NumberLiteral) else str(value).strip(" ")
    found = _QUANTITY.fullmatch(text)
    if found is None or not text:
        raise _quantity_error(text)
    if len(text) > _MAX_SUPPORTED_DIGITS or abs(int(found["exponent"] or 0)) > _MAX_SUPPORTED_DIGITS:
        raise failures.not_implemented("quantities of thousands of digits")
    whole, fraction, unit, exponent = (found[n] or "" for n in ("whole", "fraction", "unit", "exponent"))
    digits = (whole.lstrip("0") or "0") + fraction
    min_power = -3 if milli else -9
    if unit.endswith("i"):
        return _binary_quantity(text, digits, fraction, _BINARY_SUFFIXES.index(unit), min_power)
    power = int(exponent) if exponent else 3 * (_DECIMAL_SUFFIXES.index(unit) - _UNIT_INDEX)
    power -= len(fraction)
    is_canonical = len(digits) <= _MAX_DIGITS and power % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
    if is_canonical and power >= min_power:
        return text
    nano = _round_up(int(digits), power + 9, min_power + 9)
    return ("-" if text.startswith("-") and nano else "") + (
        _format_exponent(nano) if exponent else _format_decimal(nano)
    )


def _quantity_error(text: str) -> UnmarshalTypeError:
    if text and _NUMBER_AND_SUFFIX.fullmatch(text):
        return UnmarshalTypeError("unable to parse quantity's suffix")
    return UnmarshalTypeError("quantities must match the regular expression '" + _QUANTITY_PATTERN + "'")


def _round_up(digits: int, power: int, min_power: int) -> int:
    """Multiply digits by a power of ten and round up."""
    if power >= min_power:
        return int(digits * 10**power)
    return int(-(-digits // 10 ** (min_power - power)) * 10**min_power)


def _binary_quantity(text: str, digits: str, fraction: str, thousands: int, min_power: int) -> str:
    spare_digits = 15 - len(digits) - 3 * thousands - 1
    if not fraction and spare_digits >= 0 and int(digits) % 8:
        return text
    exact = int(digits) * 1024**thousands
    nano = min(_round_up(exact, 9 - len(fraction), min_power + 9), _MAX_INT64 * 10**9)
    amount, rest = divmod(nano, 10**9)
    # Small amounts of bytes have no binary unit.
    formatted = _format_decimal(nano) if rest or amount < 1024 else _format_scaled(amount, 1024, _BINARY_SUFFIXES)
    return ("-" if text.startswith("-") and nano else "") + formatted


def _format_decimal(nano: int) -> str:
    return _format_scaled(nano, 1000, _DECIMAL_SUFFIXES)


def _format_scaled(amount: int, base: int, units: tuple[str, ...]) -> str:
    if amount == 0:
        return "0"
    position = 0
    while position < len(units) - 1 and amount % base == 0:
        amount //= base
        position += 1
    return f"{amount}{units[position]}"


def _format_exponent(nano: int) -> str:
    if nano == 0:
        return "0"
    mantissa, exponent = nano, -9
    while mantissa % 1000 == 0:
        mantissa //= 1000
        exponent += 3
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


def canonical_time(value: Any) -> str:
    """Return a ``metav1.Time``: seconds in UTC.

    Raises:
        UnmarshalTypeError: the time is malformed.
    """
    return _parse_time(value, "2006-01-02T15:04:05Z07:00").strftime("%Y-%m-%dT%H:%M:%SZ")


def canonical_micro_time(value: Any) -> str:
    """Return a ``metav1.MicroTime``: six digits of microseconds, in UTC.

    Raises:
        UnmarshalTypeError: the time is malformed.
    """
    layout = "2006-01-02T15:04:05.000000Z07:00"
    parsed_time = _parse_time(value, layout)
    fraction = re.search(r"\.(\d+)", value)
    if fraction is None or len(fraction[1]) != 6:
        rest = value[19:]
        raise UnmarshalTypeError(f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as ".000000"')
    return parsed_time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parse_time(value: Any, layout: str) -> datetime:
    if not isinstance(value, str):
        raise UnmarshalTypeError(f"json: cannot unmarshal {value!r} into Go value of type string")
    try:
        if _TIME.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
    except ValueError:
        pass
    raise UnmarshalTypeError(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')


def canonical_base64(value: Any) -> str:
    """Return bytes in base64.

    Raises:
        UnmarshalTypeError: the value is not base64.
    """
    if not isinstance(value, str):
        raise UnmarshalTypeError("json: cannot unmarshal into Go value of type []uint8")
    illegal = _NON_BASE64.search(value)
    if illegal is not None:
        raise UnmarshalTypeError(f"illegal base64 data at input byte {illegal.start()}")
    body = re.sub(r"[\r\n]", "", value)
    if len(body) % 4 or not re.fullmatch(r"[^=]*={0,2}", body):
        raise UnmarshalTypeError(f"illegal base64 data at input byte {len(body) - len(body) % 4}")
    return body


def go_value_text(value: Any) -> str:
    """Format ``value`` like Go's ``%v``."""
    if is_map(value):
        return f"map[{' '.join(f'{name}:{go_value_text(value[name])}' for name in sorted(value))}]"
    if is_list(value):
        return f"[{' '.join(map(go_value_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "<nil>" if value is None else str(value)


def go_type_name(value: Any) -> str:
    """Format the type of a decoded JSON value like Go's ``%T``."""
    names = {bool: "bool", int: "int64", float: "float64", str: "string", type(None): "<nil>"}
    return "[]interface {}" if is_list(value) else names.get(type_of(value), "map[string]interface {}")
