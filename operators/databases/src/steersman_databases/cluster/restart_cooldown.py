"""Cooldown after server restarts.

No second request is made until their pods report the outcome.
"""

from __future__ import annotations

from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock

_COOLDOWN_SECONDS = 15.0
"""Delay between the start of a server and its report."""


class RestartCooldown:
    """Cooldown by pod. Dropped with the process, in which case a server may restart once more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[ObjectKey, float] = {}

    def is_active(self, pod: ObjectKey) -> bool:
        """Return True if the server was just restarted."""
        return self._clock.monotonic() < self._until.get(pod, 0.0)

    def start(self, pod: ObjectKey) -> None:
        """Record a restart."""
        now = self._clock.monotonic()
        self._until = {other: until for other, until in self._until.items() if until > now}
        self._until[pod] = now + _COOLDOWN_SECONDS
