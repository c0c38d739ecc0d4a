"""How often a server was started without having served since, and what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .server import Server

_LONGEST = 60.0  # seconds
_STANDS_STILL = 120.0  # seconds without an answer


@dataclass
class Starts:
    """Of one member's server. In memory alone: another process tries anew.

    `words` are those with which it ended itself, having been started anew, or after which it stands still; empty
    while it may be well. One that answers is not well for that: it may come to what is broken later, and end each
    time.
    """

    words: str = ""
    _count: int = 0
    _answered: bool = False
    _silent_since: float = field(default_factory=time.monotonic)

    def begun(self) -> None:
        """It was started."""
        self._count, self._answered, self._silent_since = self._count + 1, False, time.monotonic()

    def answers(self) -> None:
        """It runs, and answers."""
        self._answered, self._silent_since = True, time.monotonic()

    def waits(self, server: Server) -> None:
        """It runs, and does not answer. Recovering takes as long as it takes, but ends where pages are unreadable."""
        if server.unreadable and time.monotonic() > self._silent_since + _STANDS_STILL:
            self.words = server.last_words

    def ended(self, server: Server) -> None:
        """It does not run any more."""
        if self._count and server.broke_off:
            self.words = server.last_words or "it ended itself, and its log says why"
            return
        # Killed, or stopped in order, which says nothing of its data.
        self.words = ""
        if self._answered:
            self._count = 0

    @property
    def pause(self) -> float:
        """Seconds until it may be started again: each time longer."""
        return min(2.0 ** min(self._count, 10), _LONGEST)
