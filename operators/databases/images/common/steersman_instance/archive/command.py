"""``pgbackrest-archive %p``: PostgreSQL's archive command."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..paths import PATHS
from .decision import ARCHIVED, RETRY, Archiver
from .errors import ArchiveError
from .obsolete import is_past_end_of_timeline, reserves_timeline_only
from .record import FileRecord
from .repository import Repository
from .segments import is_wal_file
from .server_state import ServerState, read_server_state
from .store_file import InvalidStoreFile, load_store


def log(message: str) -> None:
    """Write a line to the logs of PostgreSQL.

    This process inherits its standard error.
    """
    sys.stderr.write(f"steersman: {message}\n")


def used_percent(directory: Path) -> float:
    """Return the used fraction of a directory's volume, for unprivileged processes."""
    found = os.statvfs(directory)
    available = found.f_blocks - found.f_bfree + found.f_bavail
    return 100.0 * (1 - found.f_bavail / available) if available else 100.0


def main(arguments: Sequence[str]) -> int:
    """Archive one WAL file. Return 0 only if PostgreSQL may remove it."""
    if len(arguments) != 1 or not is_wal_file(Path(arguments[0]).name):
        sys.stderr.write("usage: pgbackrest-archive FILE, where FILE is a file of pg_wal\n")
        return 2
    os.umask(0o077)
    record = FileRecord()
    try:
        store = load_store(PATHS.store_file)
    except InvalidStoreFile as error:
        record.failed(ArchiveError("InvalidStore", str(error)))
        log(f"store.json cannot be used: {error}")
        return RETRY
    if store is None:
        return ARCHIVED

    def server() -> ServerState:
        return read_server_state(PATHS.postgresql_data)

    return Archiver(
        store=Repository(store),
        record=record,
        server=server,
        used_percent=lambda: used_percent(PATHS.postgresql_data / "pg_wal"),
        drop_when_full=store.on_volume_full == "DropArchive",
        reserves_timeline_only=partial(reserves_timeline_only, PATHS.postgresql_data),
        is_past_end_of_timeline=partial(is_past_end_of_timeline, PATHS.postgresql_data),
        monotonic=time.monotonic,
        sleep=time.sleep,
        log=log,
    ).archive(Path(arguments[0]).name)
