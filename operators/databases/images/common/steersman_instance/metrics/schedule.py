"""Runs collectors in a background thread, each at its interval."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from .catalog import CollectFailed, Collector, SessionLost
from .snapshot import Snapshot

RECONNECT_SECONDS = 5.0
"""Time between two attempts to open a session."""


class ClosableSession(Protocol):
    """A session of collectors."""

    def close(self) -> None:
        """Close the connection. Errors are ignored."""
        ...


S = TypeVar("S", bound=ClosableSession)


class CollectorThread(Generic[S]):
    """Collectors that share one session.

    A server sees one connection of them.

    Args:
        connect: opens the session. Raises `SessionLost`.
        collectors: in the order of their first run.
        snapshot: receives the values.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        connect: Callable[[], S],
        collectors: Sequence[Collector[S]],
        snapshot: Snapshot,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._snapshot = snapshot
        self._clock = clock
        self._due = {one.name: (0.0, one) for one in collectors}
        self._session: S | None = None
        self._messages: dict[str, str] = {}

    def run(self, stop: threading.Event) -> None:
        """Run collectors until `stop` is set."""
        while not stop.wait(self.run_due()):
            pass
        self._close()

    def run_due(self) -> float:
        """Run due collectors. Return the seconds until the next run."""
        for name, (due, collector) in list(self._due.items()):
            now = self._clock()
            if due <= now:
                # Counted from the plan, so that the average interval is exact. A late thread skips runs.
                planned = due + collector.interval_seconds
                self._due[name] = (planned if planned > now else now + collector.interval_seconds, collector)
                if not self._run(collector):
                    return RECONNECT_SECONDS
        return max(min(due for due, _ in self._due.values()) - self._clock(), 0.0)

    def _run(self, collector: Collector[S]) -> bool:
        """Run a collector, and return False if the session is lost."""
        start = self._clock()
        try:
            if self._session is None:
                self._session = self._connect()
            reading = collector.collect(self._session)
        except SessionLost as error:
            self._close()
            for name in self._due:
                self._snapshot.fail(name)
            self._log(collector.name, str(error))
            return False
        except CollectFailed as error:
            self._snapshot.fail(collector.name)
            self._log(collector.name, str(error))
            return True
        self._messages.pop(collector.name, None)
        self._snapshot.store(collector.name, reading, self._clock() - start)
        return True

    def _log(self, name: str, message: str) -> None:
        if self._messages.get(name) != message:
            self._messages[name] = message
            sys.stderr.write(f"metrics: collector {name} failed: {message.strip()}\n")

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
