"""Durations as Kubernetes writes them (``metav1.Duration``)."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from functools import total_ordering

PATTERN = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"

_MAX_LENGTH = 256
_SECOND = 10**9
_FRACTIONS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6}
_NANOSECONDS = {**_FRACTIONS, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND}
_COMPILED_PATTERN = re.compile(PATTERN, re.ASCII)
_PART = re.compile(r"([0-9]*\.?[0-9]*)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


@total_ordering
class Duration:
    """A length of time, such as ``90s``, ``1h30m`` or ``1.5h``.

    Durations compare by value. ``str`` returns the original text.

    Raises:
        ValueError: the text is not a valid duration.

    Source: Go, ``time.ParseDuration``.
    """

    __slots__ = ("_nanoseconds", "_text")

    def __init__(self, value: str | timedelta) -> None:
        # A decoded value may have any type.
        self._text = _format(value) if isinstance(value, timedelta) else str(value)
        if len(self._text) > _MAX_LENGTH:
            raise ValueError(f"a duration has at most {_MAX_LENGTH} characters, not {len(self._text)}")
        if not _COMPILED_PATTERN.match(self._text):
            raise ValueError(f"{value!r} is not a duration: write numbers with units, such as 90s or 1h30m")
        amount = sum((Decimal(n) * _NANOSECONDS[unit] for n, unit in _PART.findall(self._text)), Decimal(0))
        self._nanoseconds = int(-amount if self._text.startswith("-") else amount)

    @property
    def timedelta(self) -> timedelta:
        """The duration as a ``timedelta``, truncated to microseconds."""
        return timedelta(microseconds=int(self._nanoseconds / 1000))

    @property
    def seconds(self) -> float:
        """The whole duration in seconds, with fractions."""
        return self._nanoseconds / 10**9

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Duration({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self._nanoseconds == other._nanoseconds if isinstance(other, Duration) else NotImplemented

    def __lt__(self, other: Duration) -> bool:
        return self._nanoseconds < other._nanoseconds

    def __hash__(self) -> int:
        return hash(self._nanoseconds)


def _format(value: timedelta) -> str:
    microseconds = value // timedelta(microseconds=1)
    sign, microseconds = ("-" if microseconds < 0 else ""), abs(microseconds)
    whole, fraction = divmod(microseconds, 10**6)
    return f"{sign}{whole}{f'.{fraction:06}'.rstrip('0') if fraction else ''}s"
