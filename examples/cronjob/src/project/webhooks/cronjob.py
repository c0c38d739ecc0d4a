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
"""Names of Jobs have 63 characters, with 11 for the time."""


def default(obj: CronJob) -> CronJob:
    """Return the object with defaults for omitted fields."""
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
    """Yield an error for each invalid field. ``old`` is None when the object is created."""
    if len(obj.metadata.name) > MAX_NAME_LENGTH:
        yield FieldError("metadata.name", f"must have at most {MAX_NAME_LENGTH} characters")
    if error := schedule_error(obj.spec.schedule):
        yield FieldError("spec.schedule", f"{obj.spec.schedule!r} is not a valid schedule: {error}")


def setup_cronjob_webhook_with_manager(manager: Manager) -> None:
    """Register the webhook."""
    manager.webhook(CronJob).defaults(default).validates(validate)


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value
