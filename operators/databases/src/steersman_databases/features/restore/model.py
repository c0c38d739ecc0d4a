"""Names, results and status of a ``Restore``. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from steersman.meta import FrozenStruct
from steersman_databases.api import Restore
from steersman_databases.api.backups.restore import RestoredTable, RestoreItem, RestoreStatus
from steersman_databases.api.group import EngineName
from steersman_databases.api.reasons import BACKUP_STORE_REASONS, advice_for, with_next_step
from steersman_databases.core.outcome import truncated
from steersman_databases.engines.server import SqlCredentials
from steersman_databases.engines.sql.restore_account import MAX_NAME_BYTES, CopyOutcome, CopyTarget
from steersman_databases.features.backup.progress import COMPLETE, Progress, progress_conditions
from steersman_databases.features.backup.specs import JobResult

ACCOUNT_PREFIX = "steersman_restore_"
START_DEADLINE = timedelta(hours=1)
"""Time after which a restore that cannot start fails."""
_DEFAULT_SCHEMA = "public"
_HASH_LENGTH = 8
_UNSAFE = re.compile(r"[^a-z0-9_]")
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class RestoreReport(FrozenStruct):
    """The member ``restore`` of a Job's result.

    Args:
        owner: of the database at that time.
        left_out: extensions that only a superuser can create.
    """

    backup: str
    recovered_to: datetime | None = None
    owner: str = ""
    size_bytes: int | None = None
    left_out: tuple[str, ...] = ()


def is_finished(restore: Restore) -> bool:
    """Return True if the restore has completed or failed. It never runs again."""
    return restore.status.phase in ("Completed", "Failed")


def engine_of(restore: Restore) -> EngineName:
    """Return the engine of the cluster."""
    return "mysql" if restore.spec.cluster_ref.kind == "MySQLCluster" else "postgresql"


def items_of(restore: Restore) -> Sequence[RestoreItem]:
    """Return ``spec.only``, which a restore of the whole cluster does not have."""
    return restore.spec.only or ()


def database_of(restore: Restore) -> str:
    """Return the name of the present database."""
    return items_of(restore)[0].database


def is_schema(restore: Restore) -> bool:
    """Return True if the copy is a schema of the present database."""
    return engine_of(restore) == "postgresql" and items_of(restore)[0].table is not None


def copy_name(restore: Restore) -> str:
    """Return the name of the new schema or database."""
    if restore.spec.into is not None:
        return restore.spec.into
    suffix = f"restored_{_UNSAFE.sub('_', restore.metadata.name)}"
    return _shortened(suffix if is_schema(restore) else f"{database_of(restore)}_{suffix}")


def schema_of(item: RestoreItem, engine: EngineName) -> str | None:
    """Return the schema of a table on PostgreSQL."""
    if engine == "mysql" or item.table is None:
        return None
    return item.schema or _DEFAULT_SCHEMA


def account_name(restore: Restore) -> str:
    """Return the name of the temporary account. MySQL allows 32 characters."""
    return f"{ACCOUNT_PREFIX}{hashlib.sha256(restore.metadata.uid.encode()).hexdigest()[:12]}"


def copy_target(restore: Restore, password: str) -> CopyTarget:
    """Return the place of the copy."""
    engine = engine_of(restore)
    return CopyTarget(
        account=SqlCredentials(account_name(restore), password),
        database=database_of(restore),
        into=copy_name(restore),
        is_schema=is_schema(restore),
        comment=f"Copied from database {database_of(restore)} by Restore {restore.key}",
        tables=tuple((schema_of(item, engine) or "", item.table or "") for item in _tables(restore)),
    )


def invalid_name(restore: Restore) -> str:
    """Return why the name of the copy cannot be used, or ""."""
    name = copy_name(restore)
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"spec.into {name} has more than {MAX_NAME_BYTES} bytes"
    return ""


def report_of(result: JobResult | None) -> RestoreReport | None:
    """Return the report of a Job that succeeded."""
    if result is None or not result.ok:
        return None
    try:
        return msgspec.convert(result.document.get("restore"), RestoreReport, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return None


def restored_tables(restore: Restore, outcome: CopyOutcome) -> tuple[RestoredTable, ...]:
    """Return the restored tables with the names of their copies."""
    engine, into = engine_of(restore), copy_name(restore)
    return tuple(
        RestoredTable(
            name=f"{schema_of(item, engine) or item.database}.{item.table}",
            copy=f"{into}.{item.table}",
            exists=exists,
        )
        for item, exists in zip(_tables(restore), outcome.exists, strict=True)
    )


def completed_fields(
    restore: Restore, report: RestoreReport, outcome: CopyOutcome, now: datetime
) -> dict[str, object]:
    """Return the fields of the status after a successful Job."""
    return {
        "database": database_of(restore) if is_schema(restore) else copy_name(restore),
        "schema": copy_name(restore) if is_schema(restore) else None,
        "backup_id": report.backup,
        "recovered_to": report.recovered_to,
        "owner": outcome.owner or None,
        "size_bytes": report.size_bytes,
        "tables": restored_tables(restore, outcome),
        "completion_time": now,
    }


def completed_message(restore: Restore, report: RestoreReport) -> str:
    """Return where the copy is."""
    place = f"database {copy_name(restore)}"
    if is_schema(restore):
        place = f"schema {copy_name(restore)} of database {database_of(restore)}"
    time = report.recovered_to
    moment = "" if time is None else f" as of {time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    left_out = f". Extensions that only a superuser can create are missing: {', '.join(report.left_out)}"
    return f"the copy{moment} is in {place}{left_out if report.left_out else ''}"


def with_progress(restore: Restore, progress: Progress, now: datetime, **fields: object) -> RestoreStatus:
    """Return the status with its phase and condition.

    Args:
        fields: further fields of the status.
    """
    message = truncated(with_next_step(progress.message, _advice(progress.reason)))
    return msgspec.structs.replace(
        restore.status,
        observed_generation=restore.metadata.generation,
        conditions=progress_conditions(restore, progress, message, now),
        message=message,
        **{"phase": progress.phase, **fields},
    )


def age_of(restore: Restore, now: datetime) -> timedelta:
    """Time since the object was created."""
    return now - (restore.metadata.creation_timestamp or _EARLIEST)


def _tables(restore: Restore) -> Sequence[RestoreItem]:
    return [item for item in items_of(restore) if item.table is not None]


def _advice(reason: str) -> str:
    found = advice_for("Restore", COMPLETE, reason)
    return found or BACKUP_STORE_REASONS["Ready"].get(reason, "")


def _shortened(name: str) -> str:
    """Return a name of at most `MAX_NAME_BYTES`. A hash replaces its end."""
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    kept = name.encode()[: MAX_NAME_BYTES - _HASH_LENGTH - 1].decode(errors="ignore")
    return f"{kept}_{digest}"
