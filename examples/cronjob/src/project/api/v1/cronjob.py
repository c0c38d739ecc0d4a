# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""API types of CronJob in batch.tutorial.kubebuilder.io/v1."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from steersman import Field, PrinterColumn, Resource, Spec, Status, resource
from steersman.api.batch_v1 import JobTemplateSpec
from steersman.api.core_v1 import ObjectReference

from project.schedules import SCHEDULE_PATTERN

ConcurrencyPolicy = Literal["Allow", "Forbid", "Replace"]
"""Policy for a run while a previous one is active."""

HistoryLimit = Annotated[int, Field(ge=0, format="int32")]


class CronJobSpec(Spec):
    """Desired state of a CronJob."""

    schedule: Annotated[str, Field(pattern=SCHEDULE_PATTERN, max_length=200)]
    """Schedule in cron format and UTC.

    The fields are minute, hour, day of the month, month and day of the week.
    """
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


class CronJobStatus(Status):
    """Observed state of a CronJob."""

    active: Annotated[tuple[ObjectReference, ...], Field(list_type="atomic", max_items=10)] = ()
    """Active Jobs, at most ten."""
    last_schedule_time: datetime | None = None
    """Scheduled time of the last created Job."""


@resource(
    group="batch.tutorial.kubebuilder.io",
    version="v1",
    columns=[
        PrinterColumn("Schedule", ".spec.schedule"),
        PrinterColumn("Suspend", ".spec.suspend", "boolean"),
        PrinterColumn("Last Schedule", ".status.lastScheduleTime", "date"),
        PrinterColumn("Available", '.status.conditions[?(@.type=="Available")].status'),
    ],
)
class CronJob(Resource[CronJobSpec, CronJobStatus]):
    """A CronJob creates Jobs on a schedule."""
