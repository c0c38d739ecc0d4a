"""Checks for times with more than microsecond precision, which the engine loses."""

from __future__ import annotations

import re
from fractions import Fraction

SUB_MICROSECOND_ERROR = "parts of a microsecond in CEL, such as those of "
"""Prefix of the error for such a time."""
_SUB_MICROSECOND = re.compile(r"\.\d{6}0*[1-9]")
_DURATION_PART = re.compile(r"(?P<amount>\d+(?:\.\d*)?|\.\d+)(?P<unit>ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MICROSECOND, _SECOND = 10**3, 10**9
_NANOSECONDS = {
    **dict.fromkeys(("us", "µs", "μs"), _MICROSECOND),
    "ns": 1,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}


def is_sub_microsecond(time: str) -> bool:
    """Return True if a timestamp has a nonzero fraction of a microsecond."""
    return bool(_SUB_MICROSECOND.search(time))


def check_time_precision(text: str) -> str:
    """Return ``text``. Raises ValueError if the timestamp is too precise."""
    if is_sub_microsecond(text):
        raise ValueError(SUB_MICROSECOND_ERROR + text)
    return text


def check_duration_precision(text: str) -> str:
    """Return ``text``. Raises ValueError if the duration is too precise."""
    if (
        sum(Fraction(part["amount"]) * _NANOSECONDS[part["unit"]] for part in _DURATION_PART.finditer(text))
        % _MICROSECOND
    ):
        raise ValueError(SUB_MICROSECOND_ERROR + text)
    return text
