# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""What the API server asks about writes of CronJob."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from steersman import Manager
from steersman.webhook import Cause, Warn

from project.api.v1.cronjob import CronJob
from project.schedules import problem

LONGEST_NAME = 52
"""Of 63 characters, which is what a Job's pods can be named by, 11 are for the time of the run."""


def default(found: CronJob) -> CronJob:
    """What users may leave out."""
    spec = found.spec
    spec = replace(
        spec,
        concurrency_policy=spec.concurrency_policy or "Allow",
        suspend=spec.suspend or False,
        successful_jobs_history_limit=_or(spec.successful_jobs_history_limit, 3),
        failed_jobs_history_limit=_or(spec.failed_jobs_history_limit, 1),
    )
    return replace(found, spec=spec)


def validate(found: CronJob, former: CronJob | None) -> Iterable[Cause | Warn]:
    """What is wrong with it; ``former`` is what it was before, None when it is created."""
    if len(found.metadata.name) > LONGEST_NAME:
        yield Cause("metadata.name", f"must be no more than {LONGEST_NAME} characters")
    if wrong := problem(found.spec.schedule):
        yield Cause("spec.schedule", f"{found.spec.schedule!r} cannot be read: {wrong}")


def setup_cronjob_webhook_with_manager(manager: Manager) -> None:
    """Declares the webhook."""
    manager.webhook(CronJob).defaults(default).validates(validate)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
