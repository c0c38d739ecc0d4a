"""The CEL function ``format``.

Source: ``ext/formatting.go`` of cel-go, in the locale ``en_US``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from steersman_cel.numbers import format_go_float
from steersman_cel.quantities import is_encoded_quantity
from steersman_cel.urls import go_quote
from steersman_cel.values import is_list, is_map

_CLAUSE = re.compile(r"%(?:(?P<percent>%)|(?:\.(?P<precision>\d*))?(?P<verb>.)?)", re.DOTALL | re.ASCII)
_TIMES_TEN = "\u00d710"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_LIST_OF_TYPES = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
_INTEGERS = ("int", "uint")
_STRING_CLAUSE_TYPES = (
    "string",
    "bool",
    "bytes",
    "int",
    "uint",
    "double",
    "map",
    "list",
    "type",
    "duration",
    "timestamp",
)
# Argument types of each clause, and the error for other types.
_CLAUSE_TYPES: dict[str, tuple[tuple[str, ...], str]] = {
    "s": ((*_STRING_CLAUSE_TYPES, "null_type"), f"string clause can only be used on {_LIST_OF_TYPES}"),
    "d": (_INTEGERS, "decimal clause can only be used on integers"),
    "f": (("double",), "fixed-point clause can only be used on doubles"),
    "e": (("double",), "scientific clause can only be used on doubles"),
    "b": ((*_INTEGERS, "bool"), "only integers and bools can be formatted as binary"),
    "x": ((*_INTEGERS, "string", "bytes"), "only integers, byte buffers, and strings can be formatted as hex"),
    "X": ((*_INTEGERS, "string", "bytes"), "only integers, byte buffers, and strings can be formatted as hex"),
    "o": (_INTEGERS, "octal clause can only be used on integers"),
}
_TYPE_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    bytearray: "bytes",
    bytes: "bytes",
    list: "list",
    dict: "map",
    datetime: "timestamp",
    timedelta: "duration",
    type(None): "null_type",
}
# Strings that ``%f`` accepts as numbers.
_SPECIAL_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class _Clause(NamedTuple):
    verb: str
    precision: int
    argument: int


def _parse_template(template: str, count: int) -> Iterator[str | _Clause]:
    """Split ``template`` into text and clauses, for ``count`` arguments. Raises ValueError."""
    position = used = 0
    for found in _CLAUSE.finditer(template):
        yield template[position : found.start()]
        position = found.end()
        if found["percent"]:
            yield "%"
            continue
        if found["verb"] is None and found["precision"] is None:
            raise ValueError("unexpected end of string")
        if used >= count:
            raise ValueError(f"index {used} out of range")
        yield _Clause(*_parse_verb(found), used)
        used += 1
    yield template[position:]


def _parse_verb(found: re.Match[str]) -> tuple[str, int]:
    if found["precision"] == "":
        text = "error while parsing precision: error while converting precision to integer"
        raise ValueError(f'could not parse formatting clause: {text}: strconv.Atoi: parsing "": invalid syntax')
    if found["verb"] not in _CLAUSE_TYPES:
        text = f"unrecognized formatting clause {go_quote(found['verb'] or '')}"
        raise ValueError(f"could not parse formatting clause: {text}")
    return found["verb"], int(found["precision"] or 6)


def format_error(template: str, types: Sequence[str]) -> tuple[int | None, str]:
    """Check a format string against the types of its arguments.

    Args:
        template: format string.
        types: type names. ``dyn`` if a type is unknown.

    Returns:
        The position of the invalid argument, or None, and the error. The error is empty if all is valid.
    """
    used = 0
    try:
        for piece in _parse_template(template, len(types)):
            if isinstance(piece, str):
                continue
            used, kind = used + 1, types[piece.argument]
            if refusal := _clause_error(piece, kind):
                return piece.argument, refusal
    except ValueError as error:
        return None, str(error)
    if used < len(types):
        return None, f"too many arguments supplied to string.format (expected {used}, got {len(types)})"
    return None, ""


def _clause_error(clause: _Clause, kind: str) -> str:
    taken, text = _CLAUSE_TYPES[clause.verb]
    return "" if kind in (*taken, "dyn") else f"error during formatting: {text}, was given {kind}"


def format_string(template: str, arguments: list[Any]) -> str:
    """Format ``arguments``.

    Raises:
        ValueError: ``template`` is malformed, or an argument has the wrong type.
    """
    return "".join(
        piece if isinstance(piece, str) else _format_clause(piece, arguments[piece.argument])
        for piece in _parse_template(template, len(arguments))
    )


def _format_clause(clause: _Clause, value: Any) -> str:
    if clause.verb == "f" and isinstance(value, str) and value in _SPECIAL_NUMBERS:
        value = _SPECIAL_NUMBERS[value]
    value_type = cast("type[Any]", type(value))
    kind = "kubernetes.Quantity" if is_encoded_quantity(value) else _TYPE_NAMES.get(value_type, "type")
    if refusal := _clause_error(clause, kind):
        raise ValueError(refusal)
    return _VERBS[clause.verb](value, clause.precision)


def _format_text(value: Any, precision: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytearray | bytes):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            message = '"invalid UTF-8 in bytes, cannot convert to string"'
            raise ValueError(f"error during formatting: could not convert argument {message} to string") from None
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if isinstance(value, float):
        return format_go_float(value)
    return format_time(value) if isinstance(value, datetime | timedelta) else _format_nested(value)


def format_time(value: datetime | timedelta) -> str:
    """A timestamp or duration in the notation of CEL."""
    if isinstance(value, datetime):
        return trim_fraction(f"{value:%Y-%m-%dT%H:%M:%S.%f}Z")
    seconds, micro = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    return trim_fraction(f"{'-' if value < timedelta(0) else ''}{seconds}.{micro:06d}s")


def trim_fraction(text: str) -> str:
    """Remove trailing zeros from the fraction of a time."""
    return re.sub(r"\.?0*(?=[sZ]$)", "", text) if "." in text else text


def _format_nested(value: Any) -> str:
    """A value within a list or a map."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, bytearray | bytes):
        return f"b{go_quote(bytes(value).decode(errors='replace'))}"
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else go_quote(_format_text(value, 6))
    if isinstance(value, datetime | timedelta):
        kind = "timestamp" if isinstance(value, datetime) else "duration"
        return f'{kind}("{format_time(value)}")'
    if is_list(value):
        return f"[{', '.join(map(_format_nested, value))}]"
    if is_map(value):
        return "{" + ", ".join(sorted(f"{_format_nested(k)}:{_format_nested(v)}" for k, v in value.items())) + "}"
    return str(value).lower()


def _format_fixed(value: float, precision: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "NaN" if math.isnan(value) else f"{value:,.{precision}f}"


def _format_scientific(value: float, precision: int) -> str:
    if not math.isfinite(value):
        return _format_fixed(value, precision)
    # cel-go ignores the precision here.
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    return f"{mantissa}{_TIMES_TEN}{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"


def _format_hexadecimal(value: Any, precision: int) -> str:
    if isinstance(value, int):
        return f"{value:x}"
    return (value.encode() if isinstance(value, str) else bytes(value)).hex()


_VERBS: dict[str, Callable[[Any, int], str]] = {
    "s": _format_text,
    "d": lambda value, precision: str(value),
    "f": _format_fixed,
    "e": _format_scientific,
    "b": lambda value, precision: f"{int(value):b}",
    "x": _format_hexadecimal,
    "X": lambda value, precision: _format_hexadecimal(value, precision).upper(),
    "o": lambda value, precision: f"{value:o}",
}
