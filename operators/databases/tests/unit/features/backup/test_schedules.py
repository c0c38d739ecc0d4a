"""Due times of schedules: time zones, daylight saving time, outages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from steersman_databases.api.backups.backup_common import BackupSchedule
from steersman_databases.features.backup.schedules import InvalidSchedule, due_backups, next_time, overdue

NIGHTLY = BackupSchedule(name="nightly", schedule="30 2 * * *", time_zone="Europe/Berlin")


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(schedule: BackupSchedule, start: datetime, end: datetime) -> list[datetime]:
    """When an operator that reconciles every minute creates backups."""
    last: dict[str, datetime] = {}
    announced, now, created = next_time([schedule], start), start, list[datetime]()
    while now < end:
        now += timedelta(minutes=1)
        for due in due_backups([schedule], last, announced, now):
            created.append(due.time)
            last[due.schedule.name] = due.time
        announced = next_time([schedule], now)
    return created


@pytest.mark.requirement("pattern/scheduled-backups")
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("2026-01-10T00:00", ["2026-01-10T01:30", "2026-01-11T01:30"]),
        ("2026-07-10T00:00", ["2026-07-10T00:30", "2026-07-11T00:30"]),
        # 02:30 is skipped in Berlin and runs at 03:00, which is 01:00 UTC.
        ("2026-03-29T00:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        # 02:30 comes twice in Berlin and runs once.
        ("2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
    ],
)
def test_schedule_in_time_zone_runs_once_a_day(start: str, expected: list[str]) -> None:
    assert runs(NIGHTLY, at(start), at(start) + timedelta(days=2)) == [at(time) for time in expected]


def test_outage_of_a_day_leaves_one_catch_up() -> None:
    hourly = BackupSchedule(name="hourly", schedule="0 * * * *")
    last = {"hourly": at("2026-05-01T03:00")}
    now = at("2026-05-02T03:20")
    (due,) = due_backups([hourly], last, at("2026-05-01T04:00"), now)
    assert due.time == at("2026-05-02T03:00")
    assert not due_backups([hourly], {"hourly": due.time}, at("2026-05-01T04:00"), now)


def test_first_time_is_missed_only_if_announced() -> None:
    now = at("2026-01-10T12:00")
    assert not due_backups([NIGHTLY], {}, None, now), "a new schedule has missed nothing"
    assert not due_backups([NIGHTLY], {}, at("2026-01-11T01:30"), now)
    assert len(due_backups([NIGHTLY], {}, at("2026-01-10T01:30"), now)) == 1


def test_suspended_schedule_is_never_due() -> None:
    suspended = BackupSchedule(name="s", schedule="* * * * *", suspend=True)
    now = at("2026-01-10T12:00")
    assert not due_backups([suspended], {"s": at("2026-01-01T00:00")}, None, now)
    assert next_time([suspended], now) is None
    assert overdue([suspended], at("2025-01-01T00:00"), now) is None


def test_schedule_is_overdue_after_two_missed_times() -> None:
    assert overdue([NIGHTLY], at("2026-01-09T01:31"), at("2026-01-11T01:29")) is None
    assert overdue([NIGHTLY], at("2026-01-10T01:31"), at("2026-01-11T01:31")) is None
    assert overdue([NIGHTLY], at("2026-01-09T01:29"), at("2026-01-11T01:31")) is NIGHTLY


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (BackupSchedule(name="s", schedule="61 * * * *"), r"schedules\[s\].schedule"),
        (BackupSchedule(name="s", schedule="0 3 * * *", time_zone="Mars/Base"), r"schedules\[s\].timeZone"),
    ],
)
def test_invalid_schedule_names_its_field(schedule: BackupSchedule, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        next_time([schedule], at("2026-01-10T12:00"))
