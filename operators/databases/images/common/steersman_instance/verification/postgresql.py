"""Verification of a backup of PostgreSQL.

The data are restored and replayed as by a recovery to the end of the archive. The promoted server accepts connections
on a private socket only, and nothing is written to the object store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..archive.errors import ArchiveError, classify
from ..backup.repository import Repository
from ..jobs import JobFailed, JobFields, JobRefused, Result, require_store
from ..paths import InstancePaths
from ..recovery.plan import RecoveryRefused
from ..recovery.postgresql import PostgreSQLRecovery, RecoveryJob
from ..recovery.server import RecoveryServer, ServerFailed
from ..recovery.staging import Staging
from ..recovery.target import parse_time
from ..recovery.wal import InvalidWalName, SegmentSize
from .measurement import UNREADABLE, Measurement, damaged, unreadable_object

VOLUME_FIELD = "spec.backup.verification.storage.size"
_AMCHECK_DAMAGE = 2
# A user who may create objects in its schema could make a superuser run functions of the same names.
_INSTALL_AMCHECK = (
    "CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA pg_catalog; ALTER EXTENSION amcheck SET SCHEMA pg_catalog"
)
# An interrupted DROP DATABASE leaves an invalid database, which accepts no connections.
_DATABASES = "SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY 1"
_ROWS = """
SELECT count(*), coalesce(sum((xpath('/row/n/text()', query_to_xml(
    format('SELECT count(*) AS n FROM %I.%I', nspname, relname), false, true, '')))[1]::text::bigint), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'm') AND relpersistence = 'p' AND relispopulated
AND nspname NOT IN ('pg_catalog', 'information_schema')
"""


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Verify a backup. Return the result for the operator.

    Raises:
        JobFailed: it is worth another attempt.
        JobRefused: it is not, for example because data are damaged.
        ArchiveError: the object store cannot be read.
    """
    given, archived = RecoveryJob.parse(job), job.text("archived", "")
    store = require_store(paths.store_file)
    if store.engine != "postgresql":
        raise JobRefused("WrongEngine", f"The archive at {store.root} is of {store.engine}, not of PostgreSQL.")
    measurement = Measurement()
    repository = Repository(store, replace(paths, run=paths.run / "source"))
    recovery = PostgreSQLRecovery(
        given, repository, Staging(paths, given.digest(store)), paths, volume_field=VOLUME_FIELD
    )
    verification = _Verification(recovery, repository, measurement, given.processes)
    try:
        return verification.run(archived)
    except RecoveryRefused as refused:
        raise JobRefused(refused.reason, refused.message) from None


class _Verification:
    def __init__(
        self, recovery: PostgreSQLRecovery, repository: Repository, measurement: Measurement, processes: int
    ) -> None:
        self._recovery = recovery
        self._repository = repository
        self._measurement = measurement
        self._processes = processes
        self._tables = 0
        self._rows = 0

    def run(self, archived: str) -> Result:
        """Restore, replay and check.

        Args:
            archived: the last segment that the cluster reported as archived.
        """
        self._repository.check_ownership()
        # Garbage in what follows is damage, since the archive itself could be read with this key.
        self._repository.catalog()
        try:
            plan = self._recovery.restore()
            size = SegmentSize(int(self._recovery.server.control()["Bytes per WAL segment"]))
            _require_archived(plan, archived, size)
            self._measurement.end("restore")
            reached = self._recovery.replay(plan, self._check)
        except ArchiveError as error:
            raise unreadable_object(error) from None
        except ServerFailed as failed:
            raise self._explain(failed) from None
        recovered_to = parse_time(reached["recoveredTo"] or plan["stop"])
        return self._measurement.result(plan["backup"], recovered_to, tables=self._tables, rows=self._rows)

    def _check(self, server: RecoveryServer) -> None:
        """Check all indexes and tables of the server, and count rows."""
        self._measurement.end("replay")
        databases = server.query(_DATABASES)
        for database in databases:
            server.query(_INSTALL_AMCHECK, database)
        done = server.run_program(
            ["pg_amcheck", "--all", "--heapallindexed", f"--jobs={self._processes}", "--maintenance-db=postgres"]
        )
        if done.returncode == _AMCHECK_DAMAGE:
            raise damaged(f"pg_amcheck reports damage: {_first_line(done.stdout)}")
        if done.returncode:
            raise ServerFailed(f"pg_amcheck failed: {_first_line(done.stderr)}")
        for database in databases:
            try:
                tables, rows = server.query(_ROWS, database)[0].split("|")
            except ServerFailed as failed:
                raise damaged(f"The rows of database {database} cannot be read: {failed}") from None
            self._tables += int(tables)
            self._rows += int(rows)
        self._measurement.end("check")

    def _explain(self, failed: ServerFailed) -> Exception:
        """Return why the server failed. The store is at fault if it cannot be read now."""
        if (failure := self._recovery.fetch.failure()) is not None:
            if not failure.code:
                return JobRefused("ArchiveDamaged", failure.sentence)
            error = classify(self._repository.store, failure.code, self._recovery.server.logged())
            self._repository.check_ownership()
            return JobFailed("ArchiveDamaged", failure.sentence) if error.reason in UNREADABLE else error
        phase = "while it was checked" if self._measurement.has_ended("replay") else "during the replay"
        return JobFailed("RecoveryFailed", f"PostgreSQL failed {phase}: {str(failed).rstrip('.')}.")


def _require_archived(plan: Mapping[str, Any], archived: str, size: SegmentSize) -> None:
    """Refuse an archive that ends before a segment.

    The cluster reported the segment as archived.
    """
    try:
        segment = size.parse(archived)
    except InvalidWalName:
        return  # a history file, or nothing yet
    if plan["through"] is not None and segment.timeline == plan["timeline"] and segment.number > plan["through"]:
        raise JobRefused("WALMissing", f"WAL segment {archived} was archived, and the archive ends before it.")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no reason was given"
