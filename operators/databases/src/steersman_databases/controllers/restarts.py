"""Servers that have just been told to restart: until their pods say what became of it, nobody tells them again."""

from __future__ import annotations

from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock

_TOLD_SECONDS = 15.0
"""A server may be up again before its pod says so, a few seconds later at the most."""


class Restarts:
    """By pod. Forgotten with the process: a server may be restarted once more then, which harms nobody."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[ObjectKey, float] = {}

    def is_told(self, pod: ObjectKey) -> bool:
        """Whether it has just been told."""
        return self._clock.monotonic() < self._until.get(pod, 0.0)

    def tell(self, pod: ObjectKey) -> None:
        """It is told now."""
        now = self._clock.monotonic()
        self._until = {other: until for other, until in self._until.items() if until > now}
        self._until[pod] = now + _TOLD_SECONDS
