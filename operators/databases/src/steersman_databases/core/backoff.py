"""Delays that grow with each failure of an object."""

from __future__ import annotations

from steersman.meta import ObjectKey

_FIRST_DELAY_SECONDS = 2.0
_MAX_DELAY_SECONDS = 30.0


class BackOff:
    """Doubles the delay of an object from 2 to 30 seconds.

    A restart of the operator begins with the first delay again.
    """

    def __init__(self) -> None:
        self._delays: dict[ObjectKey, float] = {}

    def next_delay(self, key: ObjectKey) -> float:
        """Return the seconds until the next attempt for ``key``."""
        delay = min(self._delays.get(key, _FIRST_DELAY_SECONDS / 2) * 2, _MAX_DELAY_SECONDS)
        self._delays[key] = delay
        return delay

    def forget(self, key: ObjectKey) -> None:
        """Begin with the first delay at the next failure of ``key``."""
        self._delays.pop(key, None)
