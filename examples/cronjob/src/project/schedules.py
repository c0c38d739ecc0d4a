# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Schedules in UTC, in the format of Debian's cron(8)."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

FIELD_PATTERN = "[0-9A-Za-z*/,#-]+"
"""Pattern of one field. ``schedule_error`` checks its value."""

SCHEDULE_PATTERN = f"^{FIELD_PATTERN}( +{FIELD_PATTERN}){{4}}$"
"""Pattern of a schedule: five fields."""


def schedule_error(schedule: str) -> str | None:
    """Return the problem of a schedule, or None."""
    try:
        CronSim(schedule, datetime(2000, 1, 1))
    except CronSimError as error:
        return str(error)
    return None


def next_due(schedule: str, after: datetime) -> datetime | None:
    """Return the first time after ``after``, or None after 50 years."""
    return next(CronSim(schedule, after), None)


def last_due(schedule: str, after: datetime, until: datetime) -> datetime | None:
    """Return the last time after ``after`` and not after ``until``, or None."""
    last = next(CronSim(schedule, until.replace(microsecond=0) + timedelta(seconds=1), reverse=True), None)
    return last if last is not None and last > after else None
