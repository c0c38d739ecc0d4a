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
    """When Jobs run, in UTC; each field in cron's format, and every one unless told."""

    minute: CronField = "*"
    hour: CronField = "*"
    day_of_month: CronField = "*"
    month: CronField = "*"
    day_of_week: CronField = "*"


class CronJobSpec(Spec):
    """Desired state of a CronJob."""

    schedule: CronSchedule
    """When Jobs run."""
    starting_deadline_seconds: Annotated[int, Field(ge=0)] | None = None
    """How late a run may begin. Runs that are missed by more are left out."""
    concurrency_policy: ConcurrencyPolicy | None = None
    """What becomes of a run that is due while a former one still works; Allow unless told."""
    suspend: bool | None = None
    """Whether no more runs begin. Those that have begun go on."""
    job_template: JobTemplateSpec
    """The Job to run."""
    successful_jobs_history_limit: HistoryLimit | None = None
    """How many successful Jobs are kept; 3 unless told."""
    failed_jobs_history_limit: HistoryLimit | None = None
    """How many failed Jobs are kept; 1 unless told."""


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
    """A Job that runs again and again."""
