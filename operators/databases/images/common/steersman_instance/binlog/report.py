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
from ..recovery.gtid_plan import chain
from ..recovery.target import format_time
from . import chunk_store
from .chunk_store import ChunkStore
from .chunks import ChunkCipher, ChunkHeader
from .collector import STATE_FILE
from .program import run_with_store

REPORT_SECONDS = 10.0
CATALOG_SECONDS = 60.0
LAGGING_SECONDS = 60.0
_RUNNING_SESSIONS = 3
STALE_SECONDS = 30.0  # without a new state this member is not the primary


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveContent:
    """Content of the store.

    Args:
        sessions: one header each, from before its first chunk to after its last.
    """

    backups: Sequence[MysqlBackup] = ()
    sessions: Sequence[ChunkHeader] = ()
    newest: ChunkHeader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryWindow:
    """Moments between which a recovery is possible without a gap, or None."""

    first: datetime.datetime | None = None
    last: datetime.datetime | None = None
    gap: GtidSet = NO_GTIDS


class ContentReader:
    """Reads what the store has. Sessions that have ended are read once."""

    def __init__(self, catalog: MysqlCatalog, chunks: ChunkStore) -> None:
        self._catalog, self._chunks = catalog, chunks
        self._ended: dict[str, ChunkHeader] = {}

    def read(self) -> ArchiveContent:
        """Read catalog and sessions. Raises ArchiveError."""
        names = self._chunks.sessions()
        found = {name: self._ended[name] for name in names if name in self._ended}
        for name in names:
            if name not in found and (ends := self._chunks.first_and_last(name)) is not None:
                found[name] = replace(ends[1], before=ends[0].before)
        # Collectors of two members may overlap during a failover.
        self._ended = {name: found[name] for name in names[:-_RUNNING_SESSIONS] if name in found}
        sessions = [found[name] for name in names if name in found]
        return ArchiveContent(backups=self._catalog.backups(), sessions=sessions, newest=self._chunks.newest())


def recovery_window(content: ArchiveContent, stored: GtidSet, covered_at: float) -> RecoveryWindow:
    """Return the gapless window from the oldest backup to the present.

    Args:
        stored: transactions in the archive now.
        covered_at: when nothing else was committed; seconds since 1970.
    """
    first: datetime.datetime | None = None
    gap = NO_GTIDS
    # The newest session continues; its last chunk was read a while ago. Transactions that only an abandoned primary
    # has are left out.
    newest = content.newest.session if content.newest is not None else ""
    sessions = [
        replace(each, after=stored if each.session == newest else each.after & stored, before=each.before & stored)
        for each in content.sessions
    ]
    for backup in sorted(content.backups, key=lambda each: each.stop, reverse=True):
        _, reached = chain(backup.gtids, stored | backup.gtids, sessions)
        if missing := stored - reached:
            gap = gap if first else missing
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
        message = f"The archive lacks {len(window.gap)} transactions. Recovery is possible again after a new backup."
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
                self._content = self._read()
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
