# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Admission webhook of CronJob."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from steersman import Manager
from steersman.webhook import AdmissionWarning, FieldError

from project.api.v1.cronjob import CronJob
from project.schedules import schedule_error

MAX_NAME_LENGTH = 52
"""Of 63 characters, which is what a Job's pods can be named by, 11 are for the time of the run."""


def default(obj: CronJob) -> CronJob:
    """What users may leave out."""
    spec = obj.spec
    spec = replace(
        spec,
        concurrency_policy=spec.concurrency_policy or "Allow",
        suspend=spec.suspend or False,
        successful_jobs_history_limit=_or_default(spec.successful_jobs_history_limit, 3),
        failed_jobs_history_limit=_or_default(spec.failed_jobs_history_limit, 1),
    )
    return replace(obj, spec=spec)


def validate(obj: CronJob, old: CronJob | None) -> Iterable[FieldError | AdmissionWarning]:
    """What is wrong with it; ``former`` is what it was before, None when it is created."""
    if len(obj.metadata.name) > MAX_NAME_LENGTH:
        yield FieldError("metadata.name", f"must be no more than {MAX_NAME_LENGTH} characters")
    if error := schedule_error(obj.spec.schedule):
        yield FieldError("spec.schedule", f"{obj.spec.schedule!r} cannot be read: {error}")


def setup_cronjob_webhook_with_manager(manager: Manager) -> None:
    """Register the webhook."""
    manager.webhook(CronJob).defaults(default).validates(validate)


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value
