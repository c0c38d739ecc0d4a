"""``archive-report``: the primary reports its archive and the backups in the store.

The report is the ConfigMap ``<cluster>-backup-catalog``, which the operator watches. The store itself is the source,
so an operator that is installed again finds all backups.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from steersman_pod.api_client import ApiUnavailable

from ..catalog_object import CatalogObject
from ..files import read_json
from ..paths import PATHS, InstancePaths
from ..recovery.wal import DEFAULT_SEGMENT_BYTES
from .assessment import LocalArchive, StoredArchive, catalog_document, is_urgent
from .errors import ArchiveError
from .record import FileRecord, dropped_file, state_directory
from .repository import waiting_files
from .segments import is_segment
from .server_state import ServerState, read_server_state
from .store_file import InvalidStoreFile, load_store
from .store_reader import RepositoryReader, log_line

STEP_SECONDS = 5.0
LIST_BACKUPS_SECONDS = 60.0
READ_STORE_SECONDS = 600.0
RETRY_SECONDS = 60.0
URGENT_SECONDS = 10.0
PROGRESS_SECONDS = 60.0
SERVER_SOCKET = ".s.PGSQL.5432"


def read_local(paths: InstancePaths) -> LocalArchive:
    """Read the state of archive commands, and the files to archive."""
    status, dropped = read_json(state_directory(paths) / "status.json"), read_json(dropped_file(paths))
    waiting = waiting_files(paths.postgresql_data)
    last = _text(status.get("last"))
    state = _text(status.get("state")) or "Archiving"
    return LocalArchive(
        state=state,
        message=_text(status.get("message")),
        since=_number(status.get("since")),
        waiting=len(waiting),
        oldest_waiting=_completed(paths, waiting[0], "ready") if waiting else 0.0,
        last=last,
        last_complete=_completed(paths, last, "done") or _number(status.get("at")) if last else 0.0,
        dropped_first=_text(dropped.get("first")),
        dropped_at=_number(dropped.get("at")),
    )


def _completed(paths: InstancePaths, name: str, suffix: str) -> float:
    """Return when PostgreSQL completed a file. Its mark is renamed when it is archived, which keeps the time."""
    try:
        return (paths.postgresql_data / "pg_wal/archive_status" / f"{name}.{suffix}").stat().st_mtime
    except OSError:
        return 0.0


def segment_bytes(paths: InstancePaths) -> int:
    """Return the size of WAL segments, from any of them."""
    for file in (paths.postgresql_data / "pg_wal").iterdir():
        if is_segment(file.name):
            return file.stat().st_size
    return DEFAULT_SEGMENT_BYTES


class StoreReader(Protocol):
    """The object store as the report reads it. Methods raise `ArchiveError`."""

    def prepare(self) -> None:
        """Check that the path is this cluster's, and create what archiving needs."""
        ...

    def version(self) -> str:
        """Return what differs after a backup is complete or has expired."""
        ...

    def read(self) -> StoredArchive:
        """Read all of it, and store the history files that are missing."""
        ...


@dataclass(slots=True)
class Reporter:
    """Keeps the report up to date while this instance is the primary.

    Args:
        write: stores the document; raises ApiUnavailable.
        server: reads the state of the server.
        clock: seconds of the epoch.
    """

    reader: StoreReader
    write: Callable[[Mapping[str, Any]], None]
    server: Callable[[], ServerState]
    interval_seconds: float = 60.0
    paths: InstancePaths = PATHS
    clock: Callable[[], float] = time.time
    _stored: StoredArchive = field(default_factory=StoredArchive)
    _version: str = ""
    _read_at: float = 0.0
    _listed_at: float = 0.0
    _prepared: bool = False
    _written: dict[str, Any] | None = None
    _written_at: float = 0.0

    def step(self) -> None:
        """Do what is due. Nothing is due on a replica."""
        server = self.server()
        if server.phase != "Running" or server.replica:
            # The archive of another primary is not observed here.
            self._written, self._read_at, self._prepared = None, 0.0, False
            return
        now = self.clock()
        self._read_store(now)
        local = read_local(self.paths)
        document = catalog_document(
            local,
            self._stored,
            now,
            interval_seconds=self.interval_seconds,
            segment_bytes=segment_bytes(self.paths),
        )
        pause = URGENT_SECONDS if is_urgent(self._written, document) else PROGRESS_SECONDS
        if self._written is None or (now - self._written_at >= pause and _changed(self._written, document)):
            self.write(document)
            self._written, self._written_at = document, now

    def _read_store(self, now: float) -> None:
        """Read the catalog from the store where it may have changed."""
        try:
            if not self._prepared and now - self._listed_at >= RETRY_SECONDS:
                self._listed_at = now
                self.reader.prepare()
                self._prepared, self._read_at = True, 0.0
            if not self._prepared:
                return
            if now - self._listed_at < LIST_BACKUPS_SECONDS and self._read_at:
                return
            self._listed_at = now
            version = self.reader.version()
            if version == self._version and now - self._read_at < READ_STORE_SECONDS:
                return
            # A failed attempt is repeated with the next listing.
            self._stored = self.reader.read()
            self._version, self._read_at = version, now
            if not waiting_files(self.paths.postgresql_data):
                FileRecord(self.paths).succeeded("")
        except ArchiveError as error:
            log_line(str(error))
            # Archive commands report their own failures, and for those that follow it may be another one.
            if not waiting_files(self.paths.postgresql_data):
                FileRecord(self.paths).failed(error)


def _changed(previous: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    return any(previous[key] != document[key] for key in ("backups", "recovery", "archive"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def terminate(_number: int, _frame: object) -> NoReturn:
    """End by an exception, which ends the programs that run as well."""
    sys.exit(0)


def main(arguments: Sequence[str]) -> int:
    """Report until SIGTERM. The agent restarts the program when the store file changes."""
    if arguments:
        sys.stderr.write("usage: steersman-instance archive-report\n")
        return 2
    signal.signal(signal.SIGTERM, terminate)
    try:
        store = load_store(PATHS.store_file)
    except InvalidStoreFile as error:
        log_line(f"store.json cannot be used: {error}")
        return 1
    if store is None:
        return 0
    catalog = CatalogObject()
    reporter = Reporter(
        reader=RepositoryReader(store),
        write=lambda document: catalog.write(json.dumps(document)),
        # The server runs in another container, whose processes are not seen here.
        server=lambda: read_server_state(PATHS.postgresql_data, socket_file=PATHS.run / SERVER_SOCKET),
        interval_seconds=store.interval_seconds,
    )
    while True:
        try:
            reporter.step()
        except ApiUnavailable as error:
            log_line(str(error))
        time.sleep(STEP_SECONDS)
