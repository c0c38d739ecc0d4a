"""Request of a restore in ``job.json``."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..jobs import JobFields, JobRefused, log
from ..recovery.plan import RecoveryRefused
from ..recovery.target import AtTime

T = TypeVar("T")

VOLUME_FIELD = "spec.storage.size of the Restore, or spec.backup.verification.storage.size"
_ARCHIVE_DELAY = datetime.timedelta(minutes=5)
_POLL_SECONDS = 5.0
_MAX_TABLES = 100
_MAX_LISTED = 10


@dataclass(frozen=True, slots=True)
class TableName:
    """A table. ``schema`` is empty on MySQL."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """The content to copy.

    Args:
        database: in the restored data.
        into: the new schema for tables of PostgreSQL, otherwise the new database.
        tables: empty for the whole database.
    """

    database: str
    into: str
    tables: Sequence[TableName]

    @classmethod
    def parse(cls, job: JobFields) -> CopyRequest:
        """Validate the member ``restore``. Raises JobRefused."""
        fields = job.part("restore")
        if fields is None:
            raise JobRefused("InvalidJob", "job.json: restore must be an object.")
        tables = [
            TableName(each.text("schema", ""), each.text("table")) for each in fields.parts("tables", _MAX_TABLES)
        ]
        return cls(fields.text("database"), fields.text("into"), tables)


def database_missing(database: str, others: Sequence[str]) -> JobRefused:
    """Return the refusal of a database that did not exist."""
    return JobRefused(
        "DatabaseNotFound",
        f"Database {database} did not exist at that time, or was being dropped. Databases: {listed(others)}.",
    )


def table_missing(table: TableName, others: Sequence[str]) -> JobRefused:
    """Return the refusal of a table that did not exist."""
    return JobRefused("TableNotFound", f"Table {table} did not exist at that time. Tables: {listed(others)}.")


def reached(plan: Callable[[], T], target: object) -> T:
    """Repeat a plan until the archive reaches a recent time.

    The archive does not have the last commits yet.

    Raises:
        RecoveryRefused: the archive does not reach the target.
    """
    while True:
        try:
            return plan()
        except RecoveryRefused as refused:
            if refused.reason != "TargetNotReached" or not isinstance(target, AtTime):
                raise
            now = datetime.datetime.now(datetime.UTC)
            if not target.time <= now < target.time + _ARCHIVE_DELAY:
                raise
            log(f"waiting for the archive: {refused.message}")
            time.sleep(_POLL_SECONDS)


def listed(names: Sequence[str]) -> str:
    """Return the first names, for messages."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{', '.join(names[:_MAX_LISTED]) or 'none'}{more}"
