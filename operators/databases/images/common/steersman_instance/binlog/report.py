"""Report of the primary's archive in the ConfigMap `<cluster>-backup-catalog`."""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from steersman_pod.api_client import ApiUnavailable

from ..archive.errors import ArchiveError
from ..archive.objects import open_objects
from ..archive.store_file import Store
from ..backup import mysql_catalog
from ..backup.mysql_catalog import MysqlBackup, MysqlCatalog
from ..catalog_object import CatalogObject
from ..files import read_json
from ..gtids import NO_GTIDS, GtidSet
from ..paths import PATHS
from ..recovery.gtid_plan import chain, contents, short_gtids
from ..recovery.target import format_time
from . import chunk_store
from .chunk_store import ChunkStore, Run
from .chunks import ChunkCipher, ChunkHeader
from .collector import STATE_FILE
from .program import run_with_store

REPORT_SECONDS = 10.0
CATALOG_SECONDS = 60.0
LAGGING_SECONDS = 60.0
_RUNNING_SESSIONS = 3
_CHECKED_SESSIONS = 10  # ended ones that are listed again with each read, so a read costs the same after weeks
STALE_SECONDS = 30.0  # without a new state this member is not the primary


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveContent:
    """Content of the store.

    Args:
        sessions: one header for each unbroken run of chunks, from before its first to after its last.
        stored: transactions that the collector had stored before the store was read.
    """

    backups: Sequence[MysqlBackup] = ()
    sessions: Sequence[ChunkHeader] = ()
    newest: ChunkHeader | None = None
    stored: GtidSet = NO_GTIDS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryWindow:
    """Moments between which a recovery is possible without a gap, or None."""

    first: datetime.datetime | None = None
    last: datetime.datetime | None = None
    gap: GtidSet = NO_GTIDS


class ContentReader:
    """Reads what the store has.

    Headers are read once. The chunks of ended sessions are listed in turn, so that a missing one is noticed.
    """

    def __init__(self, catalog: MysqlCatalog, chunks: ChunkStore) -> None:
        self._catalog, self._chunks = catalog, chunks
        self._known: dict[str, dict[Run, ChunkHeader | None]] = {}

    def read(self) -> ArchiveContent:
        """Read catalog and sessions. Raises ArchiveError."""
        names = self._chunks.sessions()
        # Sorted by the time of their last check.
        known = {name: spans for name, spans in self._known.items() if name in names}
        # Collectors of two members may overlap during a failover.
        due = {*names[-_RUNNING_SESSIONS:], *list(known)[:_CHECKED_SESSIONS]}
        for name in names:
            if name in due or name not in known:
                spans = known.pop(name, {})
                runs = self._chunks.runs(name)
                known[name] = {run: spans[run] if run in spans else self._chunks.span(name, run) for run in runs}
        self._known = known
        sessions = [span for name in names for span in known[name].values() if span is not None]
        return ArchiveContent(backups=self._catalog.backups(), sessions=sessions, newest=self._chunks.newest())


def recovery_window(content: ArchiveContent, stored: GtidSet, covered_at: float) -> RecoveryWindow:
    """Return the gapless window from the oldest backup to the present.

    Args:
        stored: transactions in the archive now.
        covered_at: when nothing else was committed; seconds since 1970.
    """
    first: datetime.datetime | None = None
    gap = NO_GTIDS
    # Transactions that only an abandoned primary has are left out.
    sessions = [replace(each, before=each.before & stored, after=each.after & stored) for each in content.sessions]
    newest = content.newest.session if content.newest is not None else ""
    if (last := max((i for i, each in enumerate(sessions) if each.session == newest), default=None)) is not None:
        # The newest session continues. Only what was stored after the store was read is not in its last header.
        sessions[last] = replace(sessions[last], after=sessions[last].after | (stored - content.stored))
    for backup in sorted(content.backups, key=lambda each: each.stop, reverse=True):
        _, reached = chain(backup.gtids, stored | backup.gtids, sessions)
        if missing := stored - reached:
            gap = gap if first else missing - contents(sessions) or missing
            break
        first = backup.stop
    if first is None:
        return RecoveryWindow(gap=gap)
    commits = [each.last / 1e6 for each in content.sessions]
    last = max([covered_at, *commits, *(each.stop.timestamp() for each in content.backups)])
    return RecoveryWindow(first=first, last=datetime.datetime.fromtimestamp(last, datetime.UTC))


def document(
    content: ArchiveContent, state: Mapping[str, Any], interval_seconds: float, now: float
) -> dict[str, Any]:
    """Return catalog.json without its time.

    Args:
        state: of the collector, as its file has it.
        now: seconds since 1970.
    """
    stored = _gtids(state.get("stored"))
    covered_at = float(state.get("coveredAt") or 0.0)
    last_commit = float(state.get("lastCommit") or 0.0) / 1e6
    window = recovery_window(content, stored, max(covered_at, last_commit))
    reason, message = str(state.get("reason", "Archiving")), str(state.get("message", ""))
    if reason == "Archiving" and window.gap:
        dropped = bool(_gtids(state.get("lost")) & window.gap)
        reason = "SegmentsDropped" if dropped else "BinaryLogMissing"
        gtids = short_gtids(window.gap)
        message = f"The archive lacks transactions {gtids}. Recovery beyond them is possible after a new backup."
    elif reason == "Archiving" and 0 < max(covered_at, last_commit) < now - LAGGING_SECONDS - 2 * interval_seconds:
        reason, message = "ArchiveLagging", "The binary log is written faster than it is archived."
    return {
        "format": 1,
        "backups": [backup.entry() for backup in content.backups],
        "recovery": {
            "first": format_time(window.first) if window.first else None,
            "last": format_time(window.last) if window.last else None,
        },
        "archive": {
            "state": reason,
            "message": message,
            "waitingBytes": int(state.get("waitingBytes") or 0),
            "lastArchived": str(stored),
        },
    }


class Reporter:
    """Writes the report when it changes, at most every `REPORT_SECONDS`.

    Args:
        read: reads the store; raises ArchiveError.
        write: receives catalog.json; raises ApiUnavailable.
    """

    def __init__(
        self,
        read: Callable[[], ArchiveContent],
        write: Callable[[str], object],
        interval_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._read, self._write, self._interval_seconds = read, write, interval_seconds
        self._clock, self._now = clock, now
        self._content: ArchiveContent | None = None
        self._read_at = 0.0
        self._written: dict[str, Any] = {}
        self._since = ""

    def step(self, state: Mapping[str, Any]) -> None:
        """Report a state of the collector. Raises ApiUnavailable."""
        if self._content is None or self._clock() >= self._read_at:
            try:
                self._content = replace(self._read(), stored=_gtids(state.get("stored")))
            except ArchiveError as error:
                # The last catalog stays; without one there is nothing to say but the reason.
                state = {**state, "reason": error.reason, "message": error.message}
            self._read_at = self._clock() + CATALOG_SECONDS
        found = document(self._content or ArchiveContent(), state, self._interval_seconds, self._now())
        at = format_time(datetime.datetime.fromtimestamp(int(self._now()), datetime.UTC))
        if found["archive"]["state"] != self._written.get("archive", {}).get("state"):
            self._since = at
        if found != self._written:
            archive = {**found["archive"], "since": self._since}
            self._write(json.dumps({**found, "archive": archive, "at": at}))
            self._written = found


def main(arguments: Sequence[str]) -> int:
    """Report the archive of this pod: ``binlog-report``."""
    return run_with_store("binlog-report", arguments, _run)


def _run(store: Store) -> NoReturn:
    archive = MysqlCatalog(open_objects(store, mysql_catalog.DIRECTORY))
    chunks = ChunkStore(open_objects(store, chunk_store.DIRECTORY), ChunkCipher(store.passphrase))
    reporter = Reporter(ContentReader(archive, chunks).read, CatalogObject().write, store.interval_seconds)
    file = PATHS.backup_run / STATE_FILE
    while True:
        try:
            state = read_json(file)
            if state.get("primary") is True and float(state.get("at", 0)) > time.time() - STALE_SECONDS:
                reporter.step(state)
        except ApiUnavailable as error:
            sys.stderr.write(f"steersman-binlog-report: {error}\n")
        time.sleep(REPORT_SECONDS)


def _gtids(text: object) -> GtidSet:
    try:
        return GtidSet.parse(text) if isinstance(text, str) else NO_GTIDS
    except ValueError:
        return NO_GTIDS
