"""Collector: archives the primary's binary log.

It is at most `interval_seconds` behind.

It runs in the pod of every member and acts where the server is writable. So it moves with a failover and needs
no operator.
Two collectors at once do no harm: each has a session of its own, and a recovery applies every transaction once.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from ..archive.errors import ArchiveError
from ..archive.objects import open_objects
from ..archive.ownership import check_owner
from ..archive.store_file import OnVolumeFull, Store
from ..files import replace_file
from ..gtids import NO_GTIDS, GtidSet
from ..paths import PATHS, InstancePaths
from .chunk_store import DIRECTORY, ChunkStore
from .chunks import ChunkBuilder, ChunkCipher, ChunkHeader
from .events import HEARTBEATS, BinaryLogDamaged, Event
from .program import run_with_store
from .purge import plan_purge, read_binary_logs, used_ratio
from .stream import LocalServer, ServerState, ServerUnavailable, TransactionsPurged

CHECK_SECONDS = 1.0  # between checks whether this member is the primary
PURGE_SECONDS = 60.0
MAX_BACKOFF_SECONDS = 30.0
SESSION_CHUNKS = 900  # a page of a listing has 1000 names
MAX_INTERVAL_SECONDS = 3600.0
STATE_FILE = "binlog.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorState:
    """State of a collector.

    Args:
        at: seconds since 1970.
        primary: this member is the primary.
        reason: `Archiving`, or why the store or the binary log fails.
        stored: transactions in the archive, or that no archive will ever have.
        covered_at: when everything that was committed was stored; seconds since 1970.
        last_commit: latest stored commit in microseconds since 1970.
        waiting_bytes: events that are not stored yet, as far as they were read.
        lost: transactions that were purged before they were stored.
    """

    at: float = 0.0
    primary: bool = False
    reason: str = "Archiving"
    message: str = ""
    stored: GtidSet = NO_GTIDS
    covered_at: float = 0.0
    last_commit: int = 0
    waiting_bytes: int = 0
    lost: GtidSet = NO_GTIDS

    def to_json(self) -> dict[str, Any]:
        """Return the state as the state file has it."""
        return {
            "at": self.at,
            "primary": self.primary,
            "reason": self.reason,
            "message": self.message,
            "stored": str(self.stored),
            "coveredAt": self.covered_at,
            "lastCommit": self.last_commit,
            "waitingBytes": self.waiting_bytes,
            "lost": str(self.lost),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """Settings of a collector.

    Args:
        interval_seconds: longest time from a commit to its chunk.
        on_volume_full: whether unstored binary logs are purged before the volume is full.
    """

    interval_seconds: float
    on_volume_full: OnVolumeFull = "StopWrites"


class Collector:
    """Archives the binary log of one server while it is the primary.

    Args:
        check: called before the store is used, until it succeeds; raises ArchiveError.
        report: receives the state, about every second on the primary.
        wait: returns after the given seconds.
        stopped: checked about every second; what is not stored then is streamed again by the next collector.
    """

    def __init__(
        self,
        server: LocalServer,
        store: ChunkStore,
        settings: CollectorSettings,
        *,
        paths: InstancePaths = PATHS,
        check: Callable[[], object] = lambda: None,
        report: Callable[[CollectorState], object] = lambda _state: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        wait: Callable[[float], object] = time.sleep,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._server, self._store, self._settings, self._paths = server, store, settings, paths
        self._report, self._clock, self._now, self._wait, self._stopped = report, clock, now, wait, stopped
        self._check, self._checked = check, False
        self._backoff = 0.0
        self._purge_at = self._check_at = 0.0
        self._state = CollectorState()

    def step(self) -> None:
        """Archive until the stream ends, then wait for the next attempt."""
        try:
            state = self._server.state()
            self._update(primary=state.writable)
            if not self._checked:
                self._check()
                self._checked = True
            if state.writable:
                self._collect(state)
            else:
                self._purge_as_replica()
        except (ServerUnavailable, TransactionsPurged):
            # The next attempt finds out what has become of the server, and of its transactions.
            self._backoff = 0.0
        except ArchiveError as error:
            self._fail(error.reason, error.message)
        except BinaryLogDamaged as error:
            self._fail("ArchiveFailed", f"The binary log cannot be archived: {error}.")
        self._wait(max(self._backoff, CHECK_SECONDS))

    def drain(self) -> None:
        """Archive the present binary log, on the primary or a replica.

        Raises:
            ServerUnavailable, TransactionsPurged: the server ended the stream.
            ArchiveError: the store failed.
        """
        state = self._server.state()
        self._collect(state, until=state.executed)

    def _collect(self, state: ServerState, until: GtidSet | None = None) -> None:
        newest = self._store.newest()
        before = self._start_set(state, newest)
        builder = ChunkBuilder(self._session_name(), before, self._store.cipher.name)
        if newest is None:
            # An empty chunk: the next collector must not begin the archive once more, with a gap between.
            self._put(builder)
        cut_at = self._clock() + self._settings.interval_seconds
        for event in self._server.stream(before):
            builder.add(event)
            if builder.full or (builder.cuttable and self._clock() >= cut_at):
                self._put(builder)
                cut_at = self._clock() + self._settings.interval_seconds
            if until is not None:
                if event.kind in HEARTBEATS and self._covers(builder, until):
                    return
                continue
            if builder.chunk_count >= SESSION_CHUNKS and builder.ended_cleanly:
                return
            due = event.kind in HEARTBEATS or self._clock() >= self._check_at
            if due and not self._continue(builder, event):
                return

    def _covers(self, builder: ChunkBuilder, wanted: GtidSet) -> bool:
        """Store what is left and return True if that is everything."""
        if builder.cuttable:
            self._put(builder)
        return builder.covered >= wanted

    def _start_set(self, state: ServerState, newest: ChunkHeader | None) -> GtidSet:
        """Return the transactions that the new stream leaves out."""
        # A new archive begins now: the first base backup has everything before. Transactions that only an abandoned
        # primary had are not part of this history.
        stored = state.executed if newest is None else newest.after & state.executed
        if state.purged - stored:
            # The undo of a restore serves transactions again that the newest session left behind.
            stored |= self._store.archived() & state.executed
        # The server would refuse to stream what it purged. The gap shows: this session begins behind the last one.
        self._update(stored=stored | state.purged, lost=self._state.lost | (state.purged - stored))
        return self._state.stored

    def _put(self, builder: ChunkBuilder) -> None:
        chunk = builder.cut()
        self._store.put(chunk)
        self._backoff = 0.0
        last = max(chunk.header.last, self._state.last_commit)
        self._update(reason="Archiving", message="", stored=chunk.header.after, last_commit=last, waiting_bytes=0)

    def _continue(self, builder: ChunkBuilder, event: Event) -> bool:
        """Check the server. Return False if the stream must end."""
        self._check_at = self._clock() + CHECK_SECONDS
        asked_at = self._now()
        state = self._server.state()
        if not state.writable or self._stopped():
            return False
        idle = event.kind in HEARTBEATS and not builder.waiting_bytes
        if idle and builder.covered >= state.executed:
            self._update(reason="Archiving", message="", covered_at=asked_at, waiting_bytes=0)
        else:
            self._update(waiting_bytes=builder.waiting_bytes)
        if self._clock() >= self._purge_at:
            self._purge(self._state.stored)
        return True

    def _purge_as_replica(self) -> None:
        if self._clock() >= self._purge_at:
            newest = self._store.newest()
            self._purge(newest.after if newest is not None else NO_GTIDS)

    def _purge(self, stored: GtidSet) -> None:
        """Purge binary logs that are not needed any more."""
        self._purge_at = self._clock() + PURGE_SECONDS
        files = read_binary_logs(self._server, self._paths.mysql_data)
        ratio = used_ratio(self._paths.volume)
        purge = plan_purge(files, stored, ratio, self._now(), self._settings.on_volume_full)
        if purge is None:
            return
        self._server.query(f"PURGE BINARY LOGS TO '{purge.to}'")
        self._update(lost=self._state.lost | purge.lost)

    def _session_name(self) -> str:
        start = datetime.datetime.fromtimestamp(self._now(), datetime.UTC)
        return f"{start:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"

    def _fail(self, reason: str, message: str) -> None:
        self._backoff = min(MAX_BACKOFF_SECONDS, max(CHECK_SECONDS, 2 * self._backoff))
        self._update(reason=reason, message=message)
        if self._clock() >= self._purge_at:
            # The archive is unreachable: the volume may become full meanwhile.
            with contextlib.suppress(ServerUnavailable):
                self._purge(self._state.stored)

    def _update(self, **changes: Any) -> None:
        self._state = replace(self._state, at=self._now(), **changes)
        self._report(self._state)


def main(arguments: Sequence[str]) -> int:
    """Run the collector of this pod: ``binlog``."""
    return run_with_store("binlog", arguments, _run)


def _run(store: Store) -> NoReturn:
    settings = CollectorSettings(
        interval_seconds=min(store.interval_seconds, MAX_INTERVAL_SECONDS), on_volume_full=store.on_volume_full
    )
    chunks = ChunkStore(open_objects(store, DIRECTORY), ChunkCipher(store.passphrase))
    collector = Collector(
        LocalServer(PATHS.run / "mysqld.sock"),
        chunks,
        settings,
        check=partial(check_owner, store),
        report=_write_state,
    )
    while True:
        collector.step()


def _write_state(state: CollectorState) -> None:
    replace_file(PATHS.backup_run / STATE_FILE, json.dumps(state.to_json()))
