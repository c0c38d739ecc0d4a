"""The method ``format`` of texts. Source: ``ext/formatting.go`` of cel-go, in the locale ``en_US``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from steersman.meta.urls import quoted
from steersman_cel.numbers import number_text
from steersman_cel.quantities import is_amount
from steersman_cel.values import is_list, is_map

_CLAUSE = re.compile(r"%(?:(?P<percent>%)|(?:\.(?P<precision>\d*))?(?P<verb>.)?)", re.DOTALL | re.ASCII)
_TIMES_TEN = "\u00d710"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_LIST_OF_TYPES = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
_INTEGERS = ("int", "uint")
_TEXTS = ("string", "bool", "bytes", "int", "uint", "double", "map", "list", "type", "duration", "timestamp")
# What each clause takes, and what is said of anything else.
_TAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "s": ((*_TEXTS, "null_type"), f"string clause can only be used on {_LIST_OF_TYPES}"),
    "d": (_INTEGERS, "decimal clause can only be used on integers"),
    "f": (("double",), "fixed-point clause can only be used on doubles"),
    "e": (("double",), "scientific clause can only be used on doubles"),
    "b": ((*_INTEGERS, "bool"), "only integers and bools can be formatted as binary"),
    "x": ((*_INTEGERS, "string", "bytes"), "only integers, byte buffers, and strings can be formatted as hex"),
    "X": ((*_INTEGERS, "string", "bytes"), "only integers, byte buffers, and strings can be formatted as hex"),
    "o": (_INTEGERS, "octal clause can only be used on integers"),
}
_NAMES: dict[type, str] = {
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
# Texts that stand for numbers.
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class _Clause(NamedTuple):
    verb: str
    precision: int
    argument: int


def _pieces(template: str, count: int) -> Iterator[str | _Clause]:
    """The literal texts and clauses of ``template``, for ``count`` arguments. Raises ValueError."""
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
        yield _Clause(*_verb(found), used)
        used += 1
    yield template[position:]


def _verb(found: re.Match[str]) -> tuple[str, int]:
    if found["precision"] == "":
        text = "error while parsing precision: error while converting precision to integer"
        raise ValueError(f'could not parse formatting clause: {text}: strconv.Atoi: parsing "": invalid syntax')
    if found["verb"] not in _TAKES:
        text = f"unrecognized formatting clause {quoted(found['verb'] or '')}"
        raise ValueError(f"could not parse formatting clause: {text}")
    return found["verb"], int(found["precision"] or 6)


def problem(template: str, types: Sequence[str]) -> tuple[int | None, str]:
    """What is wrong with ``template`` for arguments of ``types``, and with which of them; an empty text if nothing.

    The type of an argument is ``dyn`` where it is not known.
    """
    used = 0
    try:
        for piece in _pieces(template, len(types)):
            if isinstance(piece, str):
                continue
            used, kind = used + 1, types[piece.argument]
            if refusal := _refusal(piece, kind):
                return piece.argument, refusal
    except ValueError as error:
        return None, str(error)
    if used < len(types):
        return None, f"too many arguments supplied to string.format (expected {used}, got {len(types)})"
    return None, ""


def _refusal(clause: _Clause, kind: str) -> str:
    taken, text = _TAKES[clause.verb]
    return "" if kind in (*taken, "dyn") else f"error during formatting: {text}, was given {kind}"


def formatted(template: str, arguments: list[Any]) -> str:
    """``template`` with ``arguments`` in place of its clauses.

    Raises:
        ValueError: it is malformed, or an argument does not fit.
    """
    return "".join(
        piece if isinstance(piece, str) else _shown(piece, arguments[piece.argument])
        for piece in _pieces(template, len(arguments))
    )


def _shown(clause: _Clause, value: Any) -> str:
    if clause.verb == "f" and isinstance(value, str) and value in _NUMBERS:
        value = _NUMBERS[value]
    of = cast("type[Any]", type(value))
    kind = "kubernetes.Quantity" if is_amount(value) else _NAMES.get(of, "type")
    if refusal := _refusal(clause, kind):
        raise ValueError(refusal)
    return _VERBS[clause.verb](value, clause.precision)


def _text(value: Any, precision: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytearray | bytes):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            told = '"invalid UTF-8 in bytes, cannot convert to string"'
            raise ValueError(f"error during formatting: could not convert argument {told} to string") from None
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if isinstance(value, float):
        return number_text(value)
    return time_text(value) if isinstance(value, datetime | timedelta) else _inner(value)


def time_text(value: datetime | timedelta) -> str:
    """A time as CEL writes it."""
    if isinstance(value, datetime):
        return trimmed(f"{value:%Y-%m-%dT%H:%M:%S.%f}Z")
    whole, micro = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    return trimmed(f"{'-' if value < timedelta(0) else ''}{whole}.{micro:06d}s")


def trimmed(text: str) -> str:
    """A time without the zeros at the end of its fraction."""
    return re.sub(r"\.?0*(?=[sZ]$)", "", text) if "." in text else text


def _inner(value: Any) -> str:
    """A value within a list or a map."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytearray | bytes):
        return f"b{quoted(bytes(value).decode(errors='replace'))}"
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else quoted(_text(value, 6))
    if isinstance(value, datetime | timedelta):
        kind = "timestamp" if isinstance(value, datetime) else "duration"
        return f'{kind}("{time_text(value)}")'
    if is_list(value):
        return f"[{', '.join(map(_inner, value))}]"
    if is_map(value):
        return "{" + ", ".join(sorted(f"{_inner(k)}:{_inner(v)}" for k, v in value.items())) + "}"
    return str(value).lower()


def _fixed(value: float, precision: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "NaN" if math.isnan(value) else f"{value:,.{precision}f}"


def _scientific(value: float, precision: int) -> str:
    if not math.isfinite(value):
        return _fixed(value, precision)
    # The precision makes no difference there.
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    return f"{mantissa}{_TIMES_TEN}{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"


def _hexadecimal(value: Any, precision: int) -> str:
    if isinstance(value, int):
        return f"{value:x}"
    return (value.encode() if isinstance(value, str) else bytes(value)).hex()


_VERBS: dict[str, Callable[[Any, int], str]] = {
    "s": _text,
    "d": lambda value, precision: str(value),
    "f": _fixed,
    "e": _scientific,
    "b": lambda value, precision: f"{int(value):b}",
    "x": _hexadecimal,
    "X": lambda value, precision: _hexadecimal(value, precision).upper(),
    "o": lambda value, precision: f"{value:o}",
}
