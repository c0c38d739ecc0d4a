# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""When a schedule is due, in UTC. Five fields, as cron(8) of Debian reads them; with names such as MON and JAN."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

FIELD_PATTERN = "[0-9A-Za-z*/,#-]+"
"""One of a schedule's fields, as a pattern: what cannot even be cut into fields is no schedule."""

SCHEDULE_PATTERN = f"^{FIELD_PATTERN}( +{FIELD_PATTERN}){{4}}$"
"""Five of them."""


def schedule_error(schedule: str) -> str | None:
    """What is wrong with ``schedule``, if anything is."""
    try:
        CronSim(schedule, datetime(2000, 1, 1))
    except CronSimError as error:
        return str(error)
    return None


def next_due(schedule: str, after: datetime) -> datetime | None:
    """The first time later than ``after``; None if there is none within the next 50 years."""
    return next(CronSim(schedule, after), None)


def last_due(schedule: str, after: datetime, until: datetime) -> datetime | None:
    """The last time later than ``after`` and no later than ``until``, if there is one."""
    last = next(CronSim(schedule, until.replace(microsecond=0) + timedelta(seconds=1), reverse=True), None)
    return last if last is not None and last > after else None
