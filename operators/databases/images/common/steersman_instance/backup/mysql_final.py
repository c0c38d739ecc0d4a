"""Final backup of MySQL from the stopped data directory.

Its binary log is archived first.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from steersman_pod.volumes import VolumeInUse, lock_volume

from ..binlog.collector import Collector, CollectorSettings
from ..binlog.stream import ServerUnavailable
from ..jobs import JobFailed, JobFields, JobRefused, Result, log, require_store
from ..mysqld import MysqldFailed, MysqldProgram, running_server
from ..paths import InstancePaths
from .mysql import server_program
from .mysql_base import BackupRequest, MysqlArchive, open_archive, store_directory
from .mysql_catalog import MysqlBackup
from .mysql_copy import CopyState

LOCK_SECONDS = 30.0
_OPTIONS: Mapping[str, str] = {
    # The binary log decides what a crashed server had committed.
    "log-bin": "binlog",
    "server-id": "4294967295",
    "binlog-expire-logs-seconds": "0",
    "super-read-only": "ON",
    "event-scheduler": "OFF",
}


def run(job: JobFields, paths: InstancePaths, program: MysqldProgram | None = None) -> Result:
    """Archive the remaining binary log and back up the data. Return the result for the operator.

    A server without a network runs on the data meanwhile: it recovers what a crash left, reports its transactions and
    stops cleanly.

    Raises:
        JobFailed: a server uses the data, or none starts on them.
        JobRefused: there are no data.
        ArchiveError: the store failed.
    """
    store = require_store(paths.store_file)
    if not paths.mysql_data.is_dir():
        raise JobRefused("DataNotFound", "The data volume has no database, so there is nothing to back up.")
    try:
        lock_volume(paths.volume, LOCK_SECONDS)
    except VolumeInUse:
        raise JobFailed("ServerRunning", "A server still uses the data volume.") from None
    archive = open_archive(store, paths)
    archive.restic.open()
    start = datetime.datetime.now(datetime.UTC)
    try:
        with running_server(program or server_program(job), paths.mysql_data, paths.run, _OPTIONS) as server:
            ((version,),) = server.query("SELECT VERSION()")
            Collector(server, archive.chunks, CollectorSettings(interval_seconds=0.0), paths=paths).drain()
            state = CopyState(server.state().executed, str(version).partition("-")[0])
    except (MysqldFailed, ServerUnavailable) as error:
        raise JobFailed("BackupFailed", f"No server starts on the data: {error}") from error
    found = _completed(archive, state)
    if found is not None:
        log(f"final backup {found.id} has exactly these data")
        return {"backup": found.entry()}
    name = (job.part("backup") or JobFields({})).text("name", "")
    request = BackupRequest(donors=(), host=store.path, name=name, trigger="Final")
    stop = datetime.datetime.now(datetime.UTC)
    backup = store_directory(archive, paths.mysql_data, state, request, start=start, stop=stop, instance="")
    return {"backup": backup.entry()}


def _completed(archive: MysqlArchive, state: CopyState) -> MysqlBackup | None:
    """Return the final backup of exactly these transactions."""
    found = [each for each in archive.catalog.backups() if each.trigger == "Final" and each.gtids == state.gtids]
    return found[-1] if found else None
