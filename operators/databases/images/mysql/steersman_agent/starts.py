"""How often a server was started without having served since, and what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .server import Server

_LONGEST = 60.0  # seconds
_STANDS_STILL = 120.0  # seconds without an answer and without work
_WORK = 1.0  # seconds of a processor's time: one that recovers takes more, one that waits for ever hundredths


@dataclass
class Starts:
    """Of one member's server. In memory alone: another process tries anew.

    `words` are those with which it ended itself, having been started anew, or stood still; empty while it may be
    well. One that answers is not well for that: it may come to what is broken later, and end each time.
    """

    words: str = ""
    _count: int = 0
    _answered: bool = False
    _used: float = 0.0
    _idle_since: float = 0.0
    _stands_still: bool = False

    def begun(self) -> None:
        """It was started."""
        self._count, self._answered, self._stands_still = self._count + 1, False, False
        self._used, self._idle_since = 0.0, time.monotonic()

    def answers(self) -> None:
        """It runs, and answers."""
        self._answered = True

    def stands_still(self, server: Server) -> bool:
        """Whether it runs, has not answered since it was started, and never will: it is to be ended.

        Recovering takes as long as it takes. But where pages are unreadable it may end, or wait for them for ever.
        """
        if self._answered or not self._count or not server.unreadable:
            return False
        if (used := server.used) > self._used + _WORK:
            self._used, self._idle_since = used, time.monotonic()
        self._stands_still = time.monotonic() > self._idle_since + _STANDS_STILL
        if self._stands_still:
            self.words = server.last_words
        return self._stands_still

    def ended(self, server: Server) -> None:
        """It does not run any more."""
        if self._stands_still:
            return
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
