"""Rules for a WAL file that PostgreSQL hands over for archiving.

The rules keep two promises. A file is reported as archived only if the object store has it, if no recovery needs
it, or if the user has declared `onVolumeFull: DropArchive` and the volume is nearly full. And a store that is
unreachable, unresponsive or slow never delays the stop of a server, hence no switchover and no failover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .errors import ArchiveError
from .server_state import ServerState

ARCHIVED = 0
RETRY = 1
"""PostgreSQL keeps the file and tries again."""
END_ARCHIVER = 255
"""Exit code that ends PostgreSQL's archiver.

It retries codes up to 125 three times, a second apart.
"""

PUSH_SECONDS = 30.0
LIST_SECONDS = 10.0
STOP_SECONDS = 2.0
"""For one file, from the moment at which the server stops."""
STOP_TOTAL_SECONDS = 20.0
"""For all files that wait when the server stops."""
REPLICA_ATTEMPTS = 4
REPLICA_INTERVAL_SECONDS = 5.0
FULL_PERCENT = 95.0
FAILURE_COUNTS_SECONDS = 60.0
"""Time after a failure for which a full volume drops files immediately."""
_POLL_SECONDS = 0.25

GiveUp = Callable[[], bool]


class SegmentStore(Protocol):
    """The cluster's archive in the object store. Methods raise `ArchiveError`."""

    def push(self, name: str, seconds: float, give_up: GiveUp) -> None:
        """Store a file. A file that is stored already under the same name is not overwritten."""
        ...

    def has(self, name: str, seconds: float, give_up: GiveUp) -> bool:
        """Return True if the file is stored."""
        ...


class ArchiveRecord(Protocol):
    """State that single archive calls share.

    Each call is a process.
    """

    def succeeded(self, name: str) -> None: ...
    def failed(self, error: ArchiveError) -> None: ...
    def seconds_since_failure(self) -> float | None:
        """Return None unless the last attempt failed."""
        ...

    def dropped(self, name: str) -> None: ...
    def seconds_stopping(self, started: str) -> float:
        """Return the time since the first call for this server run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Archiver:
    """Decides for one file.

    Args:
        server: reads the state of the server.
        used_percent: of the volume of WAL.
        drop_when_full: `onVolumeFull: DropArchive`.
        reserves_timeline_only: of `archive.obsolete`, as the next one.
        monotonic: seconds.
        sleep: takes seconds.
        log: writes one line to PostgreSQL's logs.
    """

    store: SegmentStore
    record: ArchiveRecord
    server: Callable[[], ServerState]
    used_percent: Callable[[], float]
    drop_when_full: bool
    reserves_timeline_only: Callable[[str], bool]
    is_past_end_of_timeline: Callable[[str], bool]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    log: Callable[[str], None]

    def archive(self, name: str) -> int:
        """Return the exit code of the archive command for a file."""
        state = self.server()
        if state.phase == "Absent":
            # Patroni calls this for each waiting file before pg_rewind. Replicas have these files as well.
            return RETRY
        if self.reserves_timeline_only(name) or (state.replica and self.is_past_end_of_timeline(name)):
            return ARCHIVED
        if state.replica:
            return self._wait_for_primary(name, state)
        return self._push(name, state)

    def _wait_for_primary(self, name: str, state: ServerState) -> int:
        """Keep a file on a replica until the primary has stored it. A replica that is promoted stores it itself."""
        for attempt in range(REPLICA_ATTEMPTS):
            if state.phase == "Stopping":
                return END_ARCHIVER
            try:
                if self.store.has(name, LIST_SECONDS, self._stopping):
                    return ARCHIVED
            except ArchiveError as error:
                self.log(f"WAL file {name} cannot be looked up: {error.message}")
                return self._keep(name, state, failed=True)
            if attempt + 1 < REPLICA_ATTEMPTS:
                state = self._sleep_while(state)
                if state.phase == "Absent":
                    return RETRY
                if not state.replica:
                    return self._push(name, state)
        return self._keep(name, state, failed=False)

    def _sleep_while(self, state: ServerState) -> ServerState:
        """Sleep, but end as soon as the server stops or is promoted. Return its state."""
        until = self.monotonic() + REPLICA_INTERVAL_SECONDS
        current = state
        while current == state and self.monotonic() < until:
            self.sleep(_POLL_SECONDS)
            current = self.server()
        return current

    def _push(self, name: str, state: ServerState) -> int:
        stopping = state.phase == "Stopping"
        if stopping and self.record.seconds_stopping(state.started) > STOP_TOTAL_SECONDS:
            return END_ARCHIVER
        if not stopping and self._may_drop() and self._failed_recently():
            return self._drop(name)
        try:
            self.store.push(name, STOP_SECONDS if stopping else PUSH_SECONDS, self._stop_limit())
        except ArchiveError as error:
            if self._stopping():
                return END_ARCHIVER
            self.record.failed(error)
            self.log(f"WAL file {name} is not archived: {error.message}")
            return self._keep(name, state, failed=True)
        self.record.succeeded(name)
        return ARCHIVED

    def _keep(self, name: str, state: ServerState, *, failed: bool) -> int:
        if self._stopping():
            return END_ARCHIVER
        if self._may_drop() and (failed or state.replica):
            return self._drop(name)
        return RETRY

    def _drop(self, name: str) -> int:
        self.record.dropped(name)
        self.log(f"WAL file {name} is dropped without being archived: the volume is {FULL_PERCENT:g} % full.")
        return ARCHIVED

    def _may_drop(self) -> bool:
        return self.drop_when_full and self.used_percent() >= FULL_PERCENT

    def _failed_recently(self) -> bool:
        since = self.record.seconds_since_failure()
        return since is not None and since < FAILURE_COUNTS_SECONDS

    def _stopping(self) -> bool:
        return self.server().phase != "Running"

    def _stop_limit(self) -> GiveUp:
        """Return what becomes True `STOP_SECONDS` after the server has begun to stop."""
        since: list[float] = []

        def passed() -> bool:
            if not self._stopping():
                return False
            since.append(self.monotonic())
            return since[-1] - since[0] >= STOP_SECONDS

        return passed
