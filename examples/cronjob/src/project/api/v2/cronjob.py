# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""CronJob in batch.tutorial.kubebuilder.io/v2: the schedule is structured."""

from __future__ import annotations

from typing import Annotated

from steersman import Field, FrozenStruct, PrinterColumn, Resource, Spec, resource
from steersman.api.batch_v1 import JobTemplateSpec

from project.api.v1.cronjob import ConcurrencyPolicy, CronJobStatus, HistoryLimit
from project.schedules import FIELD_PATTERN

CronField = Annotated[str, Field(pattern=f"^{FIELD_PATTERN}$", max_length=39)]


class CronSchedule(FrozenStruct):
    """Schedule in UTC. Each field has cron format and defaults to `*`."""

    minute: CronField = "*"
    hour: CronField = "*"
    day_of_month: CronField = "*"
    month: CronField = "*"
    day_of_week: CronField = "*"


class CronJobSpec(Spec):
    """Desired state of a CronJob."""

    schedule: CronSchedule
    """Schedule of the Jobs."""
    starting_deadline_seconds: Annotated[int, Field(ge=0)] | None = None
    """Deadline for late starts, in seconds. Later runs are skipped."""
    concurrency_policy: ConcurrencyPolicy | None = None
    """Policy for a run while a previous one is active. Defaults to Allow."""
    suspend: bool | None = None
    """Suspends new runs. Active runs continue."""
    job_template: JobTemplateSpec
    """Template of the Jobs."""
    successful_jobs_history_limit: HistoryLimit | None = None
    """Number of successful Jobs to keep. Defaults to 3."""
    failed_jobs_history_limit: HistoryLimit | None = None
    """Number of failed Jobs to keep. Defaults to 1."""


@resource(
    group="batch.tutorial.kubebuilder.io",
    version="v2",
    storage=False,
    columns=[
        PrinterColumn("Minute", ".spec.schedule.minute"),
        PrinterColumn("Hour", ".spec.schedule.hour"),
        PrinterColumn("Suspend", ".spec.suspend", "boolean"),
        PrinterColumn("Last Schedule", ".status.lastScheduleTime", "date"),
        PrinterColumn("Available", '.status.conditions[?(@.type=="Available")].status'),
    ],
)
class CronJob(Resource[CronJobSpec, CronJobStatus]):
    """A CronJob creates Jobs on a schedule."""
