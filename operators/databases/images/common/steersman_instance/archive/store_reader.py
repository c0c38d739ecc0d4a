"""The primary's archive in the object store."""

from __future__ import annotations

import sys

from ..backup.repository import Repository as BackupRepository
from ..files import read_json
from ..paths import PATHS, InstancePaths
from .assessment import StoredArchive, assess_store
from .decision import PUSH_SECONDS
from .obsolete import reserves_timeline_only
from .pgbackrest import STANZA
from .record import dropped_file
from .repository import Repository
from .store_file import Store


def log_line(message: str) -> None:
    """Write a line to the logs of the agent's container."""
    sys.stderr.write(f"archive-report: {message}\n")
    sys.stderr.flush()


class RepositoryReader:
    """Reads the archive by pgBackRest. Methods raise `ArchiveError`."""

    def __init__(self, store: Store, paths: InstancePaths = PATHS) -> None:
        self._paths = paths
        self._archive = Repository(store, paths)
        self._backups = BackupRepository(store, paths)

    def prepare(self) -> None:
        """Check that the path is this cluster's, and create the stanza."""
        self._archive.prepare(PUSH_SECONDS)

    def version(self) -> str:
        """Return size and time of pgBackRest's list of complete backups.

        Their directories exist from the start.
        """
        found = self._archive.entries(f"backup/{STANZA}", PUSH_SECONDS).get("backup.info", {})
        return f"{found.get('size')} {found.get('time')}"

    def read(self) -> StoredArchive:
        """Read backups and WAL, and store the history files that are missing."""
        catalog = self._backups.catalog()
        if catalog.current is None:
            return StoredArchive()
        backups = catalog.current_backups()
        wal = self._backups.wal(catalog.current, backups)
        self._push_missing_histories(frozenset(wal.history_times))
        found = assess_store(backups, wal.ranges, wal.timelines, wal.size)
        self._forget_dropped(found)
        return StoredArchive(catalog.all_backups, found.first, found.missing)

    def _push_missing_histories(self, stored: frozenset[int]) -> None:
        """Store history files that a promotion could not archive."""
        for file in sorted((self._paths.postgresql_data / "pg_wal").glob("????????.history")):
            timeline = int(file.stem, 16)
            if timeline in stored or reserves_timeline_only(self._paths.postgresql_data, file.name):
                continue
            self._archive.push(file.name, PUSH_SECONDS, lambda: False)
            log_line(f"History file {file.name} was missing in the archive and is stored.")

    def _forget_dropped(self, found: StoredArchive) -> None:
        """Return True if a full backup ends the gap.

        It began after the last dropped segment.
        """
        dropped = read_json(dropped_file(self._paths)).get("at")
        if isinstance(dropped, int | float) and any(
            each.type == "Full" and each.start.timestamp() > dropped for each in found.backups
        ):
            dropped_file(self._paths).unlink(missing_ok=True)
