"""Checks of backup settings that the schema cannot express."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from steersman.webhook import AdmissionWarning, FieldError
from steersman_databases.api import BackupStore
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.api.group import DeletionPolicy
from steersman_databases.core.time_zones import InvalidTimeZone, load_time_zone

_CRON_FIELDS = 5
# Any moment shows that an expression has a next time.
_REFERENCE_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def check_backup_settings(
    backup: BackupSettings | None, deletion_policy: DeletionPolicy
) -> Iterator[FieldError | AdmissionWarning]:
    """Yield the errors and warnings of ``spec.backup``."""
    if backup is None:
        return
    for number, schedule in enumerate(backup.schedules):
        field = f"spec.backup.schedules[{number}]"
        if problem := _cron_problem(schedule.schedule):
            yield FieldError(f"{field}.schedule", f"{problem}. Write minute, hour, day, month and day of the week")
        yield from check_time_zone(f"{field}.timeZone", schedule.time_zone)
    if (verification := backup.verification) is not None:
        field = "spec.backup.verification"
        if problem := _cron_problem(verification.schedule):
            yield FieldError(f"{field}.schedule", f"{problem}. Write minute, hour, day, month and day of the week")
        yield from check_time_zone(f"{field}.timeZone", verification.time_zone)
    if not any(not schedule.suspend for schedule in backup.schedules):
        yield AdmissionWarning("spec.backup.schedules: no schedule is active, so backups are taken on demand only")
    if deletion_policy == "Delete" and backup.final_backup == "Disabled":
        yield AdmissionWarning("spec.backup.finalBackup: the last changes are lost when this object is deleted")


def check_store(store: BackupStore) -> Iterator[FieldError | AdmissionWarning]:
    """Yield the warnings of a ``BackupStore``."""
    if store.spec.encryption.mode == "Disabled":
        yield AdmissionWarning(
            "spec.encryption.mode: backups and archives are stored in clear text, and this cannot be changed later"
        )
    if "*" in store.spec.allowed_namespaces:
        yield AdmissionWarning(
            "spec.allowedNamespaces: with * each namespace may use the store, and its clusters get the credentials"
        )


def _cron_problem(expression: str) -> str:
    """Return why a cron expression is invalid, or an empty string."""
    if len(expression.split()) != _CRON_FIELDS:
        return f"{expression} does not have {_CRON_FIELDS} fields"
    try:
        found = next(CronSim(expression, _REFERENCE_TIME), None)
    except CronSimError as error:
        return f"{expression} is not a cron expression ({error})"
    return "" if found is not None else f"{expression} has no next time"


def check_time_zone(field: str, name: str) -> Iterator[FieldError]:
    """Yield an error if ``name`` is not a time zone."""
    try:
        load_time_zone(name)
    except InvalidTimeZone as error:
        yield FieldError(field, str(error))
