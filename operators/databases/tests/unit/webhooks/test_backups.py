"""Checks of backup settings and of backup stores."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.backup_stores import store
from steersman.meta import decode_builtins
from steersman.webhook import AdmissionWarning, FieldError
from steersman_databases.api.backups.backup_common import BackupSettings, period
from steersman_databases.api.group import DeletionPolicy
from steersman_databases.webhooks.backups import check_backup_settings, check_store


def _found(deletion_policy: DeletionPolicy = "Retain", **fields: Any) -> list[str]:
    settings = decode_builtins({"storeRef": {"name": "archive"}, **fields}, BackupSettings)
    return [
        f"{each.field}: {each.message}" if isinstance(each, FieldError) else each.message
        for each in check_backup_settings(settings, deletion_policy)
    ]


def _scheduled(schedule: str, zone: str = "UTC") -> list[str]:
    return _found(schedules=[{"name": "daily", "schedule": schedule, "timeZone": zone}])


@pytest.mark.parametrize("schedule", ["30 2 * * *", "*/15 * * * *", "0 3 * * MON-FRI", "0 0 1,15 * *", "0 4 L * *"])
def test_valid_schedule_has_no_finding(schedule: str) -> None:
    assert _scheduled(schedule, "Europe/Berlin") == []


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("30 2 * *", "does not have 5 fields"),
        ("0 30 2 * * *", "does not have 5 fields"),
        ("@daily", "does not have 5 fields"),
        ("61 * * * *", "is not a cron expression (Bad minute)"),
        ("0 0 30 2 *", "is not a cron expression"),
    ],
)
def test_invalid_schedule_is_refused(schedule: str, message: str) -> None:
    (found,) = _scheduled(schedule)
    assert found.startswith("spec.backup.schedules[0].schedule: ") and message in found


@pytest.mark.parametrize("zone", ["Mars/Base", "Europe", "../etc/passwd", "CET6CET7"])
def test_unknown_time_zone_is_refused(zone: str) -> None:
    (found,) = _scheduled("30 2 * * *", zone)
    assert found == f"spec.backup.schedules[0].timeZone: {zone} is not a time zone. Use a name such as Europe/Berlin"


def test_invalid_schedule_of_verification_is_refused() -> None:
    schedules = [{"name": "daily", "schedule": "30 2 * * *"}]
    valid = {"schedule": "0 5 * * 0", "timeZone": "Europe/Berlin"}
    assert _found(schedules=schedules, verification=valid) == []
    found = _found(schedules=schedules, verification={"schedule": "often", "timeZone": "Mars/Base"})
    fields = [each.partition(": ")[0] for each in found]
    assert fields == ["spec.backup.verification.schedule", "spec.backup.verification.timeZone"]


def test_settings_without_backups_are_warned_about() -> None:
    suspended = [{"name": "daily", "schedule": "30 2 * * *", "suspend": True}]
    assert _found(schedules=suspended) == _found() != []
    schedules = [{"name": "daily", "schedule": "30 2 * * *"}]
    (warning,) = _found("Delete", schedules=schedules, finalBackup="Disabled")
    assert warning.startswith("spec.backup.finalBackup")
    assert list(check_backup_settings(None, "Delete")) == []


def test_store_in_clear_text_is_warned_about() -> None:
    assert list(check_store(store())) == []
    found = list(check_store(store(encryption={"mode": "Disabled"}, allowedNamespaces=["*"])))
    assert [type(each) for each in found] == [AdmissionWarning, AdmissionWarning]


@pytest.mark.parametrize("text", ["", "14", "d", "1.5d", "-1d", "²d", "14m"])
def test_period_of_unknown_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a period"):
        period(text)


def test_period_has_hours_days_and_weeks() -> None:
    parsed = [period(text) for text in ("36h", "14d", "2w")]
    assert [each.total_seconds() / 3600 for each in parsed if each is not None] == [36, 336, 336]
    assert period("Forever") is None
