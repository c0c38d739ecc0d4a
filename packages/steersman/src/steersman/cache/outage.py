"""Interruptions of a kind's watches, told once each and not at every try."""

from __future__ import annotations

from steersman.errors import SteersmanError
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Clock

# An interruption that lasts is worth a reminder.
_REMINDER = 300.0

log = get_logger("cache")


class Outage:
    """One line when the first watch of a kind is interrupted, one when all go on; a reminder in between."""

    def __init__(self, kind: str, clock: Clock) -> None:
        self._kind = kind
        self._clock = clock
        self._interrupted: set[object] = set()
        self._since = 0.0
        self._told = 0.0

    def goes_on(self, who: object, error: Exception, delay: float) -> None:
        """``who`` was interrupted by ``error``, perhaps again, and goes on in ``delay`` seconds."""
        now = self._clock.monotonic()
        first = not self._interrupted
        if first:
            self._since = now
        self._interrupted.add(who)
        unexpected = not isinstance(error, SteersmanError)
        if not (first or unexpected or now - self._told >= _REMINDER):
            return
        self._told = now
        log.warning(
            "watch interrupted",
            kind=self._kind,
            error=str(error),
            retry_in_seconds=round(delay, 2),
            exc_info=error if unexpected else None,
        )

    def over(self, who: object) -> None:
        """``who`` goes on."""
        if who not in self._interrupted:
            return
        self._interrupted.discard(who)
        if not self._interrupted:
            lasted = self._clock.monotonic() - self._since
            log.info("watch goes on", kind=self._kind, interrupted_seconds=round(lasted, 2))
