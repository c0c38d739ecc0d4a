"""Final backup of PostgreSQL from a stopped data directory.

Its WAL is archived first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from steersman_pod.volumes import VolumeInUse, lock_volume

from ..archive.errors import EXIT_ARCHIVE_DUPLICATE, ArchiveError
from ..archive.server_state import read_server_state
from ..jobs import JobFailed, JobFields, JobRefused, Result, log, require_store
from ..paths import InstancePaths
from ..recovery.server import STOPPED_STATES, RecoveryServer, ServerFailed, checkpoint, control_data
from ..recovery.wal import format_lsn
from .catalog import (
    LSN_ANNOTATION,
    NAME_ANNOTATION,
    TIMELINE_ANNOTATION,
    TRIGGER_ANNOTATION,
    TYPE_OPTIONS,
    BaseBackup,
    Catalog,
)
from .progress import ProgressWatch
from .repository import Repository

BACKUP_SECONDS = 30 * 86400.0
PUSH_SECONDS = 60.0
LOCK_SECONDS = 30.0
# The archiver keeps every segment, which the Job pushes once the server has stopped.
_ARCHIVING = {"archive_mode": "always", "archive_command": "false"}
# No worker may write: neither a subscription nor a scheduler of an extension.
_PRIMARY_SETTINGS: Mapping[str, str] = {**_ARCHIVING, "max_worker_processes": "0"}
# A replica stays in recovery, because a promotion would begin a timeline that no cluster has. It opens for reads when
# its data are consistent, which may be before the end of its WAL.
_REPLICA_SETTINGS: Mapping[str, str] = {**_ARCHIVING, "hot_standby": "on", "restore_command": ""}


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Push the waiting WAL and back up the stopped data. Return the result for the operator.

    After a crash a server without a network recovers the data first, and stops cleanly.

    Raises:
        JobFailed: a server runs, or it does not recover from a crash.
        JobRefused: there are no data.
        ArchiveError: the store failed.
    """
    version, processes = job.text("version"), job.number("processes", 1, 64, 1)
    name = (job.part("backup") or JobFields({})).text("name", "")
    repository = Repository(require_store(paths.store_file), paths)
    data = paths.postgresql_data
    if not (data / "PG_VERSION").exists():
        raise JobRefused("DataNotFound", "The data volume has no database, so there is nothing to back up.")
    try:
        lock_volume(paths.volume, LOCK_SECONDS)
        control = control_data(data)
    except VolumeInUse:
        raise JobFailed("ServerRunning", "A server still uses the data volume.") from None
    except ServerFailed as failed:
        raise JobRefused("DataNotFound", f"The data cannot be read: {failed}.") from None
    if read_server_state(data).phase != "Absent":
        raise JobFailed("ServerRunning", "A server still uses the data directory.")
    # Of a server that ended without removing it.
    (data / "postmaster.pid").unlink(missing_ok=True)
    catalog = _prepare(repository, version)
    if control.get("Database cluster state", "") not in STOPPED_STATES:
        # Before the server starts: it removes archived segments, and needs the room on a full volume.
        _push_waiting(repository, data)
        control = _stop_cleanly(data, paths)
    segment, lsn = checkpoint(control)
    done = _completed(catalog, segment.timeline, lsn)
    if done is None:
        _push_waiting(repository, data)
        annotations = {
            TRIGGER_ANNOTATION: "Final",
            NAME_ANNOTATION: name,
            TIMELINE_ANNOTATION: str(segment.timeline),
            LSN_ANNOTATION: format_lsn(lsn),
        }
        _back_up(repository, catalog, annotations, processes)
        done = _completed(repository.catalog(), segment.timeline, lsn)
    if done is None:
        raise JobFailed("BackupFailed", "pgBackRest reported success, but the archive has no new backup.")
    return {"backup": done.entry(), "lastLSN": format_lsn(lsn)}


def _stop_cleanly(data: Path, paths: InstancePaths) -> Mapping[str, str]:
    """Let a server recover data that a crash left, and stop it. Return what pg_controldata prints afterwards."""
    replica = (data / "standby.signal").exists()
    role = "replica" if replica else "primary"
    log(f"PostgreSQL did not stop cleanly: a server without a network recovers the data of a {role}")
    run = paths.run / "final-backup"
    server = RecoveryServer(data, run, run / "postgresql.log")
    try:
        with server.started(_REPLICA_SETTINGS if replica else _PRIMARY_SETTINGS, replica=replica):
            pass
    except ServerFailed as failed:
        log(server.logged())
        message = str(failed).rstrip(".")
        raise JobFailed("BackupFailed", f"PostgreSQL does not recover from its crash: {message}.") from None
    return server.control()


def _prepare(repository: Repository, version: str) -> Catalog:
    """Create the archive where the cluster never had one. Return its backups."""
    repository.check_ownership()
    catalog = repository.catalog()
    if catalog.current is not None and catalog.current.version == version:
        return catalog
    command = "stanza-upgrade" if catalog.current else "stanza-create"
    repository.run(command, options=["--no-online"])
    return repository.catalog()


def _push_waiting(repository: Repository, data: Path) -> None:
    """Push the remaining WAL and history files, oldest first."""
    status = data / "pg_wal" / "archive_status"
    waiting = sorted(file.stem for file in status.glob("*.ready"))
    for name in sorted(waiting, key=lambda name: (not name.endswith(".history"), name)):
        log(f"pushing {name}")
        try:
            repository.run("archive-push", str(data / "pg_wal" / name), seconds=PUSH_SECONDS)
        except ArchiveError as error:
            # Another copy of it is in the archive: the backup has this one.
            if error.code != EXIT_ARCHIVE_DUPLICATE:
                raise
            log(f"{name} is in the archive with other content")
        (status / f"{name}.ready").rename(status / f"{name}.done")


def _completed(catalog: Catalog, timeline: int, lsn: int) -> BaseBackup | None:
    """Return the final backup of exactly these data."""
    found = [
        backup
        for backup in catalog.current_backups()
        if backup.offline and backup.trigger == "Final" and (backup.timeline, backup.stop_lsn) == (timeline, lsn)
    ]
    return found[-1] if found else None


def _back_up(repository: Repository, catalog: Catalog, annotations: dict[str, str], processes: int) -> None:
    full = any(backup.type == "Full" and not backup.damaged for backup in catalog.current_backups())
    kind = TYPE_OPTIONS["Incremental" if full else "Full"]
    with tempfile.TemporaryDirectory() as directory:
        watch = ProgressWatch(Path(directory))
        options = [
            "--no-online",
            f"--type={kind}",
            f"--process-max={processes}",
            *(f"--annotation={name}={value}" for name, value in annotations.items() if value),
            *watch.options,
        ]
        try:
            repository.run("backup", options=options, seconds=BACKUP_SECONDS, give_up=watch)
        except ArchiveError:
            if watch.stalled:
                raise JobFailed("NoProgress", "The backup made no progress for 30 minutes.") from None
            raise
