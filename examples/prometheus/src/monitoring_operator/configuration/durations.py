"""Durations of Prometheus, such as ``1m30s``."""

from __future__ import annotations

import re

from monitoring_operator.api.v1.scraping import DURATION_PATTERN
from monitoring_operator.configuration.problems import InvalidObject

_PATTERN = re.compile(DURATION_PATTERN)
_PART = re.compile(r"([0-9]+)(ms|[ywdhms])")
# The CRD of prometheus-operator does not limit the length, and int() rejects thousands of digits.
_MAX_LENGTH = 64
# Prometheus stores durations as 64-bit nanoseconds.
_MAX_MILLISECONDS = (2**63 - 1) // 1_000_000
_MILLISECONDS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}


def milliseconds(duration: str, field: str) -> int:
    """Return the milliseconds of ``duration``.

    Args:
        duration: the text, in descending units.
        field: path of the field, for the error.

    Raises:
        InvalidObject: the text is not a duration, it is 0, or it exceeds 292 years.
    """
    total = 0
    if len(duration) > _MAX_LENGTH:
        raise InvalidObject(field, f"has over {_MAX_LENGTH} characters", "Use a value such as 30s or 1m30s.")
    if duration and _PATTERN.fullmatch(duration):
        total = sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(duration))
    if not total:
        raise InvalidObject(field, f"is {duration!r}, which is not a duration", "Use a value such as 30s or 1m30s.")
    if total > _MAX_MILLISECONDS:
        raise InvalidObject(field, f"is {duration!r}, which exceeds 292 years", "Use a shorter duration.")
    return total
