"""Test of the admission webhook of CronJob."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from steersman import ObjectMeta
from steersman.api.batch_v1 import JobTemplateSpec
from steersman.webhook import FieldError

from project.api.v1.cronjob import CronJob, CronJobSpec
from project.webhooks.cronjob import default, validate

SAMPLE = CronJob(
    metadata=ObjectMeta(name="sample", namespace="default"),
    spec=CronJobSpec(schedule="*/5 * * * MON", job_template=JobTemplateSpec()),
)


def test_defaults() -> None:
    spec = default(SAMPLE).spec
    assert (spec.concurrency_policy, spec.suspend) == ("Allow", False)
    assert (spec.successful_jobs_history_limit, spec.failed_jobs_history_limit) == (3, 1)


def test_complete_object_is_not_defaulted() -> None:
    complete = default(SAMPLE)
    none = replace(complete, spec=replace(complete.spec, concurrency_policy="Forbid", failed_jobs_history_limit=0))
    assert default(none) == none


def test_sample_is_valid() -> None:
    assert not list(validate(SAMPLE, None))
    named = replace(SAMPLE, metadata=ObjectMeta(name="x" * 52))
    assert not list(validate(named, SAMPLE))


@pytest.mark.parametrize(
    ("schedule", "told"),
    [("61 * * * *", "Bad minute"), ("* * * * MOO", "Bad day-of-week"), ("* * 31 2 *", "Bad day-of-month")],
)
def test_schedules_that_cannot_be_read(schedule: str, told: str) -> None:
    (cause,) = validate(replace(SAMPLE, spec=replace(SAMPLE.spec, schedule=schedule)), None)
    assert isinstance(cause, FieldError)
    assert cause.field == "spec.schedule"
    assert told in cause.message


def test_names_that_are_too_long() -> None:
    (cause,) = validate(replace(SAMPLE, metadata=ObjectMeta(name="x" * 53)), None)
    assert isinstance(cause, FieldError)
    assert cause.field == "metadata.name"
