# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Conversion of CronJob between v2 and the hub v1."""

from __future__ import annotations

from steersman.webhook import Spoke, copy_fields

from project.api.v1 import cronjob as hub
from project.api.v2 import cronjob as v2


def to_hub(old: v2.CronJob) -> hub.CronJob:
    """Convert from v2: join the fields of the schedule."""
    parts = old.spec.schedule
    schedule = " ".join((parts.minute, parts.hour, parts.day_of_month, parts.month, parts.day_of_week))
    spec = copy_fields(old.spec, hub.CronJobSpec, schedule=schedule)
    return hub.CronJob(metadata=old.metadata, spec=spec, status=old.status)


def from_hub(new: hub.CronJob) -> v2.CronJob:
    """Convert to v2: split the schedule into fields."""
    minute, hour, day_of_month, month, day_of_week = new.spec.schedule.split()
    schedule = v2.CronSchedule(
        minute=minute, hour=hour, day_of_month=day_of_month, month=month, day_of_week=day_of_week
    )
    spec = copy_fields(new.spec, v2.CronJobSpec, schedule=schedule)
    return v2.CronJob(metadata=new.metadata, spec=spec, status=new.status)


SPOKE = Spoke(v2.CronJob, to_hub=to_hub, from_hub=from_hub)
