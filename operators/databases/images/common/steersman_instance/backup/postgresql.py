"""Coordinator of a PostgreSQL backup.

The members' pgBackRest servers send data to the store.

Connections to the members are mutual TLS. A member that fails is replaced by another one.
"""

from __future__ import annotations

import datetime
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from ..archive.errors import EXIT_LOCKED, ArchiveError
from ..archive.pgbackrest import SERVER_PORT
from ..jobs import JobFailed, JobFields, JobRefused, Result, log, require_store
from ..paths import InstancePaths
from .catalog import (
    JOB_ANNOTATION,
    NAME_ANNOTATION,
    TRIGGER_ANNOTATION,
    TYPE_OPTIONS,
    BackupType,
    Catalog,
    Trigger,
)
from .expiry import Retention, expire
from .progress import ProgressWatch
from .repository import IO_TIMEOUT, Repository

BACKUP_SECONDS = 30 * 86400.0
STANZA_SECONDS = 300.0
MAX_MEMBERS = 9
ATTEMPTS = 3
# pgBackRest's codes of errors that a member causes: it is unreachable, goes away, or its PostgreSQL does not respond.
EXIT_HOST_CONNECT = 49
EXIT_DB_CONNECT = 56
EXIT_DB_QUERY = 57
EXIT_PROTOCOL = 102
EXIT_ARCHIVE_TIMEOUT = 82
_MEMBER_ERRORS = (EXIT_HOST_CONNECT, EXIT_DB_CONNECT, EXIT_DB_QUERY, EXIT_PROTOCOL)
_DATABASE_MISMATCH = (28, 51)

Source = Literal["PreferReplica", "Primary", "Replica"]
_STANDBY: Mapping[Source, str] = {"PreferReplica": "prefer", "Primary": "n", "Replica": "y"}
_COPIED_FROM = re.compile(r"backup file ([^:\s]+):/")


@dataclass(frozen=True, slots=True)
class Member:
    """An instance of the cluster and the address of its pgBackRest server."""

    instance: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupJob:
    """The fields of job.json.

    Args:
        identity: UID of the ``Backup`` object; a Job's second pod finds the backup of the first by it.
    """

    version: str
    type: BackupType
    source: Source
    trigger: Trigger
    name: str
    identity: str
    members: Sequence[Member]
    port: int
    processes: int
    retention: Retention | None

    @classmethod
    def parse(cls, job: JobFields) -> BackupJob:
        """Validate job.json. Raises JobRefused."""
        backup = job.part("backup") or JobFields({})
        members = [Member(each.text("instance"), each.text("address")) for each in job.parts("members", 100)]
        if not members:
            raise JobRefused("InvalidJob", "job.json: members must have at least one instance.")
        return cls(
            version=job.text("version"),
            type=cast(BackupType, job.choice("type", get_args(BackupType))),
            source=cast(Source, job.choice("source", get_args(Source), "PreferReplica")),
            trigger=cast(Trigger, backup.choice("trigger", get_args(Trigger), "OnDemand")),
            name=backup.text("name", ""),
            identity=backup.text("uid", ""),
            members=members[:MAX_MEMBERS],
            port=job.number("port", 1, 65535, SERVER_PORT),
            processes=job.number("processes", 1, 64, 1),
            retention=Retention.parse(job),
        )


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Make a backup, then apply retention. Return the result for the operator.

    Raises:
        JobFailed: another attempt may succeed.
        JobRefused: it will not.
        ArchiveError: the store failed.
    """
    given = BackupJob.parse(job)
    return _Backup(given, Repository(require_store(paths.store_file), paths), paths).run()


class _Backup:
    def __init__(self, job: BackupJob, repository: Repository, paths: InstancePaths) -> None:
        self._job = job
        self._repository = repository
        self._paths = paths

    def run(self) -> Result:
        self._repository.check_ownership()
        catalog = self._repository.catalog()
        done = self._completed(catalog)
        if done is None:
            done = self._attempts(catalog)
        result: dict[str, object] = {"backup": done}
        if self._job.retention is not None:
            try:
                result["expired"] = expire(self._repository, self._job.retention, datetime.datetime.now(datetime.UTC))
            except ArchiveError as error:
                # The backup counts nevertheless: the next one applies retention again.
                result["warning"] = f"Retention was not applied: {error.message}"
        return result

    def _completed(self, catalog: Catalog) -> Mapping[str, object] | None:
        """Return the backup that an earlier pod of this Job completed."""
        found = [each for each in catalog.all_backups if self._job.identity and each.job == self._job.identity]
        return found[-1].entry() if found else None

    def _attempts(self, catalog: Catalog) -> Mapping[str, object]:
        members = list(self._job.members)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._prepare_stanza(catalog, members)
                return self._back_up(members)
            except ArchiveError as error:
                failed = self._member_of(error, members)
                if failed is None or attempt == ATTEMPTS or len(members) == 1:
                    raise self._failure(error, failed) from None
                log(f"{failed.instance} failed, another member is tried: {error.message}")
                members.remove(failed)
        raise AssertionError("the last attempt returns or raises")

    def _prepare_stanza(self, catalog: Catalog, members: Sequence[Member]) -> None:
        """Create the archive, or add the database of a major upgrade."""
        current = catalog.current
        command = "stanza-upgrade" if current and current.version != self._job.version else "stanza-create"
        # A member that is unreachable shows here, before the backup waits for it.
        self._repository.run(command, options=[*self._hosts(members), IO_TIMEOUT], seconds=STANZA_SECONDS)

    def _back_up(self, members: Sequence[Member]) -> Mapping[str, object]:
        catalog = self._repository.catalog()
        known = {backup.id for backup in catalog.all_backups}
        # pgBackRest would choose the same, but the result must say so.
        kind: BackupType = self._job.type if _has_full(catalog) else "Full"
        with tempfile.TemporaryDirectory() as directory:
            watch = ProgressWatch(Path(directory))
            options = [
                *self._hosts(members),
                f"--type={TYPE_OPTIONS[kind]}",
                f"--backup-standby={_STANDBY[self._job.source] if len(members) > 1 else 'n'}",
                f"--process-max={self._job.processes}",
                "--start-fast",
                *self._annotations(),
                *watch.options,
            ]
            log(f"{kind} backup of {', '.join(member.instance for member in members)}")
            try:
                self._repository.run("backup", options=options, seconds=BACKUP_SECONDS, give_up=watch)
            except ArchiveError:
                if watch.stalled:
                    raise JobFailed("NoProgress", "The backup made no progress for 30 minutes.") from None
                raise
            source = _copied_from(Path(directory), members)
        made = [backup for backup in self._repository.catalog().all_backups if backup.id not in known]
        if not made:
            raise JobFailed("BackupFailed", "pgBackRest reported success, but the archive has no new backup.")
        return {**made[-1].entry(), **({"instance": source} if source else {})}

    def _hosts(self, members: Sequence[Member]) -> list[str]:
        """Return the options that lead to the members."""
        client, options = self._paths.backup_client, list[str]()
        for index, member in enumerate(members, 1):
            values = {
                "host": member.address,
                "host-type": "tls",
                "host-port": str(self._job.port),
                "host-cert-file": str(client / "tls.crt"),
                "host-key-file": str(client / "tls.key"),
                "host-ca-file": str(client / "ca.crt"),
                "path": str(self._paths.postgresql_data),
                "socket-path": str(self._paths.run),
                "port": "5432",
                "user": "postgres",
            }
            options += [f"--pg{index}-{name}={value}" for name, value in values.items()]
        return options

    def _annotations(self) -> list[str]:
        found = {
            NAME_ANNOTATION: self._job.name,
            TRIGGER_ANNOTATION: self._job.trigger,
            JOB_ANNOTATION: self._job.identity,
        }
        return [f"--annotation={name}={value}" for name, value in found.items() if value]

    def _member_of(self, error: ArchiveError, members: Sequence[Member]) -> Member | None:
        """Return the member that caused an error, or None.

        None means the store or the archive.
        """
        if error.code not in _MEMBER_ERRORS:
            return None
        return next((member for member in members if member.address in error.detail), None)

    def _failure(self, error: ArchiveError, failed: Member | None) -> Exception:
        """Return the error that ends the program."""
        if failed is not None:
            return JobFailed(
                "MemberUnreachable", f"The pgBackRest server of {failed.instance} cannot be used: {error.detail}."
            )
        if error.code in (EXIT_DB_CONNECT, EXIT_DB_QUERY):
            return JobFailed("MemberUnreachable", f"No primary of the cluster responds: {error.detail}.")
        if error.code == EXIT_LOCKED:
            return JobFailed("BackupRunning", "Another backup of the cluster is running.")
        if error.code == EXIT_ARCHIVE_TIMEOUT:
            return JobFailed(
                "WALMissing", "WAL of the backup did not arrive in the archive. Check condition ContinuousArchiving."
            )
        if error.code in _DATABASE_MISMATCH:
            return JobRefused(
                "PathBelongsToAnotherCluster",
                f"The archive at {self._repository.store.root} is of another database. Nothing was written.",
            )
        return error


def _has_full(catalog: Catalog) -> bool:
    return any(backup.type == "Full" and not backup.damaged for backup in catalog.current_backups())


def _copied_from(directory: Path, members: Sequence[Member]) -> str:
    """Return the instance that most files were copied from."""
    text = "".join(file.read_text(errors="replace") for file in directory.glob("*.log"))
    hosts = _COPIED_FROM.findall(text)
    found = max(set(hosts), key=hosts.count, default="")
    return next((member.instance for member in members if member.address == found), "")
