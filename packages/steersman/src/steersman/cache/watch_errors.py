"""Logs interruptions of watches, once each instead of every retry."""

from __future__ import annotations

from steersman.errors import SteersmanError, error_text
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Clock

# Time between two log lines of an interruption that lasts.
_REMINDER_INTERVAL_SECONDS = 300.0

log = get_logger("cache")


class WatchErrorLogger:
    """Logs the first interruption of a kind's watches, and the recovery.

    In between, it logs a reminder every 5 minutes.
    """

    def __init__(self, kind: str, clock: Clock) -> None:
        self._kind = kind
        self._clock = clock
        self._interrupted: set[object] = set()
        self._interrupted_since = 0.0
        self._last_logged = 0.0

    def interrupted(self, watcher: object, error: Exception, delay: float) -> None:
        """``error`` interrupted ``watcher``, which retries in ``delay`` seconds."""
        now = self._clock.monotonic()
        first = not self._interrupted
        if first:
            self._interrupted_since = now
        self._interrupted.add(watcher)
        unexpected = not isinstance(error, SteersmanError)
        if not (first or unexpected or now - self._last_logged >= _REMINDER_INTERVAL_SECONDS):
            return
        self._last_logged = now
        log.warning(
            "watch interrupted",
            kind=self._kind,
            error=error_text(error),
            retry_in_seconds=round(delay, 2),
            exc_info=error if unexpected else None,
        )

    def recovered(self, watcher: object) -> None:
        """``watcher`` was resumed."""
        if watcher not in self._interrupted:
            return
        self._interrupted.discard(watcher)
        if not self._interrupted:
            duration = self._clock.monotonic() - self._interrupted_since
            log.info("watch resumed", kind=self._kind, interrupted_seconds=round(duration, 2))
