"""When a primary writes, and what its report says.

A write without rows needs everything but a commit: a connection, a login, and a server that is not read-only. It
leaves no trace. A write with a row is committed, and so archived. It is made as long as others commit as well, which
store their WAL or binary log anyway. An idle server commits one an hour.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

INTERVAL_SECONDS = 10.0
RETRY_SECONDS = 3.0
"""Interval after a failure."""
REJECTIONS = 2
"""Consecutive failures that are reported. One may be that of a server that is about to stop."""
UNANSWERED_SECONDS = 15.0
IDLE_SECONDS = 3600.0


class WriteRejected(Exception):
    """The server refused what an application would do as well. The text is the server's message."""


class WriteNotTried(Exception):
    """The failure does not concern applications.

    The server starts or stops, or the account of the check is not as it should be.
    """


class WriterSession(Protocol):
    """A new session of an ordinary account.

    Methods raise `WriteRejected` and `WriteNotTried`.
    """

    def position(self) -> str:
        """Return what changes with each transaction that writes."""
        ...

    def write(self, *, with_row: bool) -> None:
        """Write and commit. This may wait without a limit, as an application would."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class WriteCheck:
    """Repeats a write in a thread of its own, which may hang.

    Another thread reads `error`. There is one write at a time, so a server that does not acknowledge holds one
    connection of it.

    Args:
        connect: opens a session; raises `WriteRejected` and `WriteNotTried`.
        describe_wait: what the write waits for, as a clause, or "". Called by the reader of `error`.
        clock: monotonic time in seconds.
    """

    connect: Callable[[], WriterSession]
    describe_wait: Callable[[], str] = lambda: ""
    clock: Callable[[], float] = time.monotonic
    _begun: float | None = None
    _failures: int = 0
    _message: str = ""
    _wait_reason: str | None = None
    _position: str | None = None
    _committed_at: float = field(default=float("-inf"))

    def run(self, is_primary: Callable[[], bool], stop: threading.Event) -> None:
        """Repeat the write until the process ends."""
        while not stop.wait(self.step() if is_primary() else self._forget()):
            pass

    def step(self) -> float:
        """Write once. Return the seconds until the next time."""
        self._begun = self.clock()
        try:
            self._write()
        except WriteRejected as error:
            self._failures, self._message = self._failures + 1, str(error)
            return RETRY_SECONDS
        except WriteNotTried:
            return INTERVAL_SECONDS
        else:
            self._failures = 0
            return INTERVAL_SECONDS
        finally:
            self._begun = None

    @property
    def error(self) -> str:
        """The reason why the server accepts no writes, or ""."""
        begun = self._begun
        if begun is None or self.clock() - begun < UNANSWERED_SECONDS:
            self._wait_reason = None
            return self._message if self._failures >= REJECTIONS else ""
        if self._wait_reason is None:
            self._wait_reason = self.describe_wait()
        return f"a write was not acknowledged in {UNANSWERED_SECONDS:.0f} s" + (
            f": {self._wait_reason}" if self._wait_reason else ""
        )

    def _write(self) -> None:
        with closing(self.connect()) as session:
            is_idle = session.position() == self._position
            with_row = not is_idle or self.clock() - self._committed_at >= IDLE_SECONDS
            session.write(with_row=with_row)
            if with_row:
                self._position, self._committed_at = session.position(), self.clock()

    def _forget(self) -> float:
        """Drop the result: another instance is the primary."""
        self._failures, self._position = 0, None
        return RETRY_SECONDS
