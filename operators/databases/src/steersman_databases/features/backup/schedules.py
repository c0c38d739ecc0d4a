"""Scheduled backups: which are due, and when the next one is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

from steersman_databases.api.backups.backup_common import BackupSchedule
from steersman_databases.core.time_zones import InvalidTimeZone, load_time_zone

VERIFICATION = ""
"""Name of the schedule ``spec.backup.verification``, which no other schedule can have."""


class InvalidSchedule(ValueError):
    """A schedule or time zone that cannot be evaluated."""


@dataclass(frozen=True, slots=True)
class DueBackup:
    """A backup that should start now. ``time`` is when it was scheduled."""

    schedule: BackupSchedule
    time: datetime


def due_backups(
    schedules: Iterable[BackupSchedule], last: Mapping[str, datetime], announced: datetime | None, now: datetime
) -> Sequence[DueBackup]:
    """Scheduled backups that should start now, at most one per schedule.

    Missed times do not accumulate.

    Args:
        last: by the schedule's name, the scheduled time of its newest ``Backup``.
        announced: ``status.backup.nextBackup``. It bounds what a schedule without a ``Backup`` may have missed;
        None if no time was announced yet.

    Raises:
        InvalidSchedule: a schedule or a time zone is not valid.
    """
    due: list[DueBackup] = []
    for schedule in schedules:
        if schedule.suspend or (latest := latest_time(schedule, now)) is None:
            continue
        previous = last.get(schedule.name)
        missed = latest > previous if previous is not None else announced is not None and latest >= announced
        if missed:
            due.append(DueBackup(schedule, latest))
    return due


def next_time(schedules: Iterable[BackupSchedule], now: datetime) -> datetime | None:
    """Earliest time of all schedules after ``now``, or None.

    None if no schedule is active.

    Raises:
        InvalidSchedule: a schedule or a time zone is not valid.
    """
    times = [_nth(schedule, now, 0, reverse=False) for schedule in schedules if not schedule.suspend]
    return min((time for time in times if time is not None), default=None)


def overdue(schedules: Iterable[BackupSchedule], last_success: datetime, now: datetime) -> BackupSchedule | None:
    """First schedule that is overdue, or None.

    Two of its times passed since the last completed backup.

    Args:
        last_success: when the newest completed backup started.

    Raises:
        InvalidSchedule: a schedule or a time zone is not valid.
    """
    for schedule in schedules:
        before_last = None if schedule.suspend else latest_time(schedule, now, skip=1)
        if before_last is not None and last_success < before_last:
            return schedule
    return None


def latest_time(schedule: BackupSchedule, now: datetime, *, skip: int = 0) -> datetime | None:
    """Last time of a schedule at or before ``now``, in UTC. None if there is none.

    Args:
        skip: leaves out this many of the last times. Defaults to 0.

    Raises:
        InvalidSchedule: the schedule or the time zone is not valid.
    """
    # The iterator excludes its start, and a time may be exactly now.
    return _nth(schedule, now + timedelta(seconds=1), skip, reverse=True)


def _nth(schedule: BackupSchedule, start: datetime, skip: int, *, reverse: bool) -> datetime | None:
    named = f"spec.backup.schedules[{schedule.name}]"
    field = "spec.backup.verification" if schedule.name == VERIFICATION else named
    try:
        zone = load_time_zone(schedule.time_zone)
    except InvalidTimeZone as error:
        raise InvalidSchedule(f"{field}.timeZone: {error}") from None
    try:
        # Daylight saving time follows Debian's cron: a skipped time runs right after the gap, a repeated one once.
        times = CronSim(schedule.schedule, start.astimezone(zone), reverse)
        for _ in range(skip):
            next(times)
        return next(times).astimezone(UTC)
    except StopIteration:
        return None
    except CronSimError as error:
        raise InvalidSchedule(
            f'{field}.schedule: "{schedule.schedule}" is not a cron expression ({error}). '
            'Use five fields, such as "30 2 * * *"'
        ) from None
