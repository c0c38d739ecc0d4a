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
"""What becomes of a run that is due while a former one still works: it is made, left out, or takes its place."""

HistoryLimit = Annotated[int, Field(ge=0, format="int32")]


class CronJobSpec(Spec):
    """Desired state of a CronJob."""

    schedule: Annotated[str, Field(pattern=SCHEDULE_PATTERN, max_length=200)]
    """When Jobs run, in cron's format and UTC: minute, hour, day of the month, month, day of the week."""
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


class CronJobStatus(Status):
    """Observed state of a CronJob."""

    active: Annotated[tuple[ObjectReference, ...], Field(list_type="atomic", max_items=10)] = ()
    """Jobs that run now; the first ten of them."""
    last_schedule_time: datetime | None = None
    """When the last Job was due that was made."""


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
    """A Job that runs again and again."""
