"""Recovery of PostgreSQL from an archive into an empty volume.

Its steps are plan, restore, replay, promote and stop.

The source is only read. Each step can be cut anywhere: the next run continues with the same plan.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steersman_pod.volumes import VolumeInUse, lock_volume

from ..archive.errors import ArchiveError
from ..archive.pgbackrest import STANZA
from ..archive.store_file import Store, load_store
from ..backup.catalog import ArchivedDatabase, BaseBackup, Catalog
from ..backup.progress import ProgressWatch
from ..backup.repository import IO_TIMEOUT, Repository
from ..jobs import JobFailed, JobFields, JobRefused, Result, log, require_store
from ..paths import InstancePaths
from .evidence import WalReader
from .plan import Archive, RecoveryPlan, RecoveryRefused, plan_recovery
from .server import RecoveryServer, ServerFailed
from .staging import WAL_PREFIX, Staging, fsync
from .target import AtLsn, AtTime, InvalidTarget, Latest, Target, format_time, parse_target
from .timelines import parse_history
from .wal import SegmentSize, format_lsn
from .wal_fetch import WalFetch

SPARE_BYTES = 256 << 20  # for WAL that is fetched ahead and for what replay adds
RESTORE_SECONDS = 30 * 86400.0
_LAST_TRANSACTION = re.compile(r"last completed transaction was at log time (\S+ [0-9:.]+)\+00")
_NOT_REACHED = re.compile(r"recovery ended before configured recovery target|requested recovery stop point is before")
_SOURCE_SETTING = re.compile(
    r"\s*(restore_command|recovery_\w+|archive_mode|archive_command|archive_library|archive_cleanup_command"
    r"|primary_conninfo|primary_slot_name|promote_trigger_file|hot_standby)\s*[= ]",
    re.IGNORECASE,
)
# Patroni may have written an invalid value before the first standby was known, with which no server starts.
_SYNCHRONOUS_STANDBYS = re.compile(r"\s*synchronous_standby_names\s*[= ]", re.IGNORECASE)
# Of the source's server, or of the server that replayed.
RESERVED = "# reserved: elsewhere a timeline of this number may have been begun\n"
"""Content of a history file without ancestors. `steersman-postgres` recognizes it by its first character."""
_LEFTOVERS = ("postmaster.opts", "postmaster.pid", "backup_label.old", "tablespace_map.old", "standby.signal")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryJob:
    """The fields of job.json.

    Args:
        new_timeline: number of the timeline that a recovery in place begins. None lets PostgreSQL choose.
        overwrite: identifies the restore that replaces present data. Without it they are refused.
    """

    version: str
    cluster_uid: str
    target: Target
    target_fields: Mapping[str, Any]
    backup_id: str | None
    timeline: int | None
    processes: int
    new_timeline: int | None = None
    overwrite: str = ""

    @classmethod
    def parse(cls, job: JobFields) -> RecoveryJob:
        """Validate job.json. Raises JobRefused."""
        fields = job.part("target")
        latest: dict[str, Any] = {"latest": {}}
        target_fields = fields.fields if fields else latest
        try:
            target = parse_target(target_fields)
        except InvalidTarget as error:
            raise JobRefused("InvalidJob", f"{error}.") from None
        return cls(
            version=job.text("version"),
            cluster_uid=job.text("cluster_uid", ""),
            target=target,
            target_fields={name: value for name, value in target_fields.items() if value is not None},
            backup_id=job.text("backup_id") if job.fields.get("backup_id") else None,
            timeline=job.number("timeline", 1, 2**32 - 1) if job.fields.get("timeline") else None,
            processes=job.number("processes", 1, 64, 1),
            new_timeline=job.number("new_timeline", 2, 2**32 - 1) if job.fields.get("new_timeline") else None,
            overwrite=job.text("overwrite", ""),
        )

    def digest(self, source: Store) -> str:
        """Identify what is recovered: another digest is another recovery."""
        parts = [source.identity, self.version, self.cluster_uid, self.target_fields, self.backup_id, self.timeline]
        # An earlier restore over the same volume may have had the same target.
        parts += [self.overwrite, self.new_timeline] if self.overwrite else []
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Recover into the volume. Return the result for the operator.

    Raises:
        JobFailed: it is worth another attempt.
        JobRefused: it is not.
        ArchiveError: the source cannot be read.
    """
    given = RecoveryJob.parse(job)
    source = require_store(paths.source_store_file)
    if source.engine != "postgresql":
        raise JobRefused("WrongEngine", f"The archive at {source.root} is of {source.engine}, not of PostgreSQL.")
    try:
        lock_volume(paths.volume)
    except VolumeInUse as error:
        raise JobFailed("VolumeNotEmpty", f"The data volume cannot be used: {error}.") from None
    staging = Staging(paths, given.digest(source), overwrites=bool(given.overwrite))
    if found := staging.completed():
        return {"recovery": found}
    # Two archives, so two rendered configurations.
    repository = Repository(source, replace(paths, run=paths.run / "source"))
    recovery = PostgreSQLRecovery(given, repository, staging, paths)
    try:
        return {"recovery": recovery.run()}
    except RecoveryRefused as refused:
        raise JobRefused(refused.reason, refused.message) from None
    except ServerFailed as failed:
        raise recovery.failure(failed) from None


class PostgreSQLRecovery:
    """A recovery into a staging directory, from the plan to the result.

    Args:
        volume_field: field of the cluster that sizes the volume.
    """

    def __init__(
        self,
        job: RecoveryJob,
        repository: Repository,
        staging: Staging,
        paths: InstancePaths,
        volume_field: str = "spec.storage",
    ) -> None:
        self._job = job
        self._volume_field = volume_field
        self.fetch = WalFetch(paths.run / "recovery")
        self._repository = repository
        self._staging = staging
        self._paths = paths
        self.server = RecoveryServer(staging.data, paths.run / "recovery", staging.log)

    def run(self) -> Result:
        """Do what an earlier run has not done. Return the result."""
        plan = self.restore()
        self._reserve_timelines(plan)
        reached = self.replay(plan)
        if self._job.new_timeline is None:
            self._push_history(reached["timeline"])
        elif reached["timeline"] < self._job.new_timeline:
            raise JobFailed("RecoveryFailed", f"Timeline {reached['timeline']} is used already.")
        self._clean()
        recovery: Result = {
            "path": self._repository.store.path,
            "backup": plan["backup"],
            "target": self._job.target_fields,
            "sourceTimeline": plan["timeline"],
            "version": self._job.version,
            "systemIdentifier": plan["system"],
            "gtidExecuted": None,
            **reached,
        }
        self._staging.complete(recovery)
        return recovery

    def failure(self, failed: ServerFailed) -> JobFailed:
        """Return why the server failed during the replay."""
        message = str(failed).rstrip(".")
        if (damage := self.fetch.failure()) is not None and not damage.code:
            return JobRefused("ArchiveDamaged", f"{damage.sentence} Choose a target before it.")
        if _NOT_REACHED.search(message):
            return JobRefused("TargetNotReached", f"The target was not reached: {message}.")
        return JobFailed("RecoveryFailed", f"PostgreSQL failed during the recovery: {message}.")

    def restore(self) -> Mapping[str, Any]:
        """Restore the files of a backup unless an earlier run did. Return the plan."""
        state = self._staging.plan()
        if state is None:
            plan = _describe(self._plan())
            target = " ".join(plan["target"]).strip()
            log(f"recovering backup {plan['backup']} on timeline {plan['timeline']} to {target}")
            self._staging.save(plan, "Restoring")
        else:
            plan = state[0]
            log(f"continuing an interrupted recovery: {state[1]}")
        if state is None or state[1] == "Restoring":
            self._restore(plan)
            self._staging.save(plan, "Replaying")
        return plan

    def _plan(self) -> RecoveryPlan:
        """Choose backup, timeline and target. Nothing is written yet."""
        self._repository.check_ownership()
        catalog = self._repository.catalog()
        database = database_of(catalog, self._job, self._repository.store)
        backups = catalog.backups.get(database.id, ())
        wal = self._repository.wal(database, backups)
        self.fetch.expect(wal.files.values())
        archive = Archive(backups=backups, timelines=wal.timelines, segments=wal.ranges, size=wal.size)
        with tempfile.TemporaryDirectory(dir=self._paths.volume, prefix=WAL_PREFIX) as directory:
            reader = WalReader(self._repository, wal, Path(directory))
            plan = plan_recovery(
                archive, reader, self._job.target, timeline=self._job.timeline, backup_id=self._job.backup_id
            )
        needed, free = plan.backup.size + SPARE_BYTES, self._staging.free_bytes()
        if free < needed:
            raise RecoveryRefused(
                "NotEnoughSpace",
                f"Backup {plan.backup.id} needs {needed >> 20} MiB, and the data volume has {free >> 20} MiB. "
                f"Increase {self._volume_field} of the cluster.",
            )
        return plan

    def _restore(self, plan: Mapping[str, Any]) -> None:
        """Copy the backup into the staging directory, or continue that."""
        data, wal = self._staging.data, self._staging.wal
        self._staging.take_over()
        # pgBackRest compares with what is there only if one of its own files says that it was here.
        resumable = (data / "backup.manifest").exists() or (data / "PG_VERSION").exists()
        if not resumable and data.exists():
            self._staging.discard()
            self._staging.save(plan, "Restoring")
        data.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory() as directory:
            watch = ProgressWatch(Path(directory))
            options = [
                f"--pg1-path={data}",
                f"--set={plan['backup']}",
                # Settings of the recovery are given to the server instead: in a file they would stay.
                "--type=none",
                f"--process-max={self._job.processes}",
                *(["--delta"] if resumable else []),
                *([f"--link-map=pg_wal={wal}"] if wal is not None else []),
                *watch.options,
            ]
            try:
                self._repository.run("restore", options=options, seconds=RESTORE_SECONDS, give_up=watch)
            except ArchiveError as error:
                if watch.stalled:
                    raise JobFailed("NoProgress", "The restore made no progress for 30 minutes.") from None
                raise error
        for name in _LEFTOVERS:
            (data / name).unlink(missing_ok=True)
        (data / "recovery.signal").touch()
        self._clean_settings()
        fsync(data)

    def replay(
        self, plan: Mapping[str, Any], inspect: Callable[[RecoveryServer], None] = lambda _server: None
    ) -> dict[str, Any]:
        """Replay WAL to the target and promote the server. Return what was reached.

        Args:
            inspect: runs while the promoted server accepts queries.
        """
        with self.server.started(self._settings(plan)):
            current, identifier = self.server.query(
                "SELECT pg_walfile_name(pg_current_wal_lsn()) UNION ALL "
                "SELECT system_identifier::text FROM pg_control_system()"
            )
            # Reads every catalog that a connection needs.
            self.server.query("SELECT count(*) FROM pg_class, pg_database WHERE datallowconn")
            timeline = int(current[:8], 16)
            times = _LAST_TRANSACTION.findall(self.server.logged())
            inspect(self.server)
        history = self._staging.data / "pg_wal" / f"{timeline:08X}.history"
        forks = parse_history(timeline, history.read_text()) if history.exists() else ()
        if identifier != plan["system"] or not forks:
            raise JobFailed("RecoveryFailed", "PostgreSQL did not begin a new timeline.")
        reached = forks[-1].end
        size = SegmentSize(int(self.server.control()["Bytes per WAL segment"]))
        if plan["through"] is not None and reached < size.start(plan["through"]):
            raise JobFailed(
                "RecoveryFailed", f"Replay ended at {format_lsn(reached)}, before the end of the archive."
            )
        last = datetime.datetime.fromisoformat(times[-1]).replace(tzinfo=datetime.UTC) if times else None
        return {
            "timeline": timeline,
            "recoveredLSN": format_lsn(reached),
            "recoveredTo": format_time(last) if last else None,
        }

    def _reserve_timelines(self, plan: Mapping[str, Any]) -> None:
        """Let the promotion begin the timeline of the job.

        The archive continues: none of its numbers may be given twice. PostgreSQL skips numbers with a history file,
        and the archive's own files come before these. The instance that starts with the new timeline stores its
        history file, since an archive must not have a timeline that never served.
        """
        for number in range(2, self._job.new_timeline or 0):
            file = self._staging.data / "pg_wal" / f"{number:08X}.history"
            if number != plan["timeline"] and not file.exists():
                file.write_text(RESERVED)

    def _settings(self, plan: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the settings of replay. A repeated run gives the same, also after the promotion."""
        command = shlex.join(
            [
                "pgbackrest",
                f"--config={self._repository.configuration()}",
                f"--stanza={STANZA}",
                f"--pg1-path={self._staging.data}",
                IO_TIMEOUT,
                "archive-get",
            ]
        )
        kind, value = plan["target"]
        targets = {
            "time": {"recovery_target_time": value, "recovery_target_inclusive": "on"},
            "lsn": {"recovery_target_lsn": value, "recovery_target_inclusive": "on"},
        }
        return {
            "restore_command": self.fetch.command(command),
            "recovery_target_timeline": str(plan["timeline"]),
            "recovery_target_action": "promote",
            "recovery_end_command": "",
            "archive_cleanup_command": "",
            **targets.get(kind, {}),
        }

    def _push_history(self, timeline: int) -> None:
        """Store the history file in the archive of the new cluster.

        The instances' agent stores it later if this fails.
        """
        own = load_store(self._paths.store_file)
        if own is None:
            return
        history = self._staging.data / "pg_wal" / f"{timeline:08X}.history"
        pg1_path = f"--pg1-path={self._staging.data}"
        try:
            repository = Repository(own, self._paths)
            repository.run("stanza-create", options=[pg1_path, "--no-online"])
            repository.run("archive-push", str(history), options=[pg1_path])
        except ArchiveError as error:
            log(f"the history file is not stored yet: {error.message}")

    def _clean(self) -> None:
        """Remove files of the replay.

        The instance finds data as after a clean shutdown.
        """
        data = self._staging.data
        for name in (*_LEFTOVERS, "recovery.signal"):
            (data / name).unlink(missing_ok=True)
        self._clean_settings()
        fsync(data)

    def _clean_settings(self) -> None:
        """Remove recovery and archiving from ``postgresql.auto.conf``.

        Copies of the data would inherit them. Synchronous standbys are those of the source.
        """
        data = self._staging.data
        _remove_lines(
            data / "postgresql.auto.conf",
            lambda line: bool(_SOURCE_SETTING.match(line)) or "by pgBackRest" in line,
        )
        _remove_lines(data / "postgresql.conf", lambda line: bool(_SYNCHRONOUS_STANDBYS.match(line)))


def _remove_lines(file: Path, unwanted: Callable[[str], bool]) -> None:
    lines = file.read_text(errors="surrogateescape").splitlines(keepends=True) if file.exists() else []
    kept = [line for line in lines if not unwanted(line)]
    if kept != lines:
        file.write_text("".join(kept), errors="surrogateescape")
        fsync(file)


def database_of(catalog: Catalog, job: RecoveryJob, source: Store) -> ArchivedDatabase:
    """Return the archived database to recover.

    It is that of the pinned backup, or the newest of the image's major version.
    """
    if not catalog.databases:
        raise RecoveryRefused("NoUsableBackup", f"There is no archive at {source.root}.")
    candidates = list(catalog.databases)
    pinned: BaseBackup | None = catalog.find(job.backup_id) if job.backup_id else None
    if job.backup_id and pinned is None:
        raise RecoveryRefused("NoUsableBackup", f"The archive at {source.root} has no backup {job.backup_id}.")
    if pinned is not None:
        candidates = [each for each in candidates if pinned in catalog.backups.get(each.id, ())]
    matching = [each for each in candidates if each.version == job.version]
    if not matching:
        found = candidates[-1].version
        raise RecoveryRefused(
            "WrongEngineVersion",
            f"The archive at {source.root} is of PostgreSQL {found}, and the cluster runs {job.version}. "
            f"Set spec.version to {found}; upgrade afterwards.",
        )
    return matching[-1]


def _describe(plan: RecoveryPlan) -> Mapping[str, Any]:
    """Return a plan as JSON."""
    match plan.target:
        case Latest():
            target = ("latest", "")
        case AtTime(time):
            target = ("time", time.isoformat(sep=" "))
        case AtLsn(lsn):
            target = ("lsn", format_lsn(lsn))
    return {
        "backup": plan.backup.id,
        "stop": format_time(plan.backup.stop),
        "system": plan.backup.system_identifier,
        "timeline": plan.timeline,
        "target": list(target),
        "through": plan.through,
    }
