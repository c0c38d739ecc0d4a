# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Controller of CronJob: creates Jobs that are due, and deletes old ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from steersman import Condition, FrozenDict, Manager, ObjectMeta, Reconciler, Result
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ObjectReference
from steersman.errors import AlreadyExists, NotFound

from project.api.v1.cronjob import CronJob
from project.schedules import last_due, next_due, schedule_error

SCHEDULED_AT = "batch.tutorial.kubebuilder.io/scheduled-at"
"""Annotation of a Job with its scheduled time."""

_MAX_ACTIVE_REFERENCES = 10


@dataclass(frozen=True)
class OwnedJobs:
    """Jobs of one CronJob, oldest first."""

    active: list[Job]
    successful: list[Job]
    failed: list[Job]

    @classmethod
    def from_list(cls, jobs: tuple[Job, ...]) -> OwnedJobs:
        """Group Jobs by their conditions."""
        sorted_jobs = sorted(jobs, key=lambda job: (_start_time(job), job.metadata.name))
        found: dict[str, list[Job]] = {"": [], "Complete": [], "Failed": []}
        for job in sorted_jobs:
            found[_finished_condition(job)].append(job)
        return cls(found[""], found["Complete"], found["Failed"])

    @property
    def last_schedule_time(self) -> datetime | None:
        """Latest scheduled time of a Job, or None."""
        times = (_scheduled_at(job) for job in (*self.active, *self.successful, *self.failed))
        return max((t for t in times if t is not None), default=None)


class CronJobReconciler(Reconciler[CronJob]):
    """Makes the cluster match the spec of each CronJob."""

    async def reconcile(self, cronjob: CronJob) -> Result | None:
        """Compare the actual state with the spec, and change what differs.

        The controller calls it after each change, and retries it with back-off after an error.
        """
        jobs = OwnedJobs.from_list(await self.client.list(Job, namespace=cronjob.metadata.namespace, owner=cronjob))
        times = (cronjob.status.last_schedule_time, jobs.last_schedule_time)
        last = max((t for t in times if t is not None), default=None)
        # Write the status first: pruning deletes the Jobs that record the last scheduled time.
        await self.status(
            cronjob,
            conditions=[_available_condition(cronjob)],
            active=tuple(_object_reference(job) for job in jobs.active[:_MAX_ACTIVE_REFERENCES]),
            last_schedule_time=last,
        )
        await self._prune_history(cronjob, jobs)
        if cronjob.spec.suspend or schedule_error(cronjob.spec.schedule):
            return None
        now = self.runtime.clock.now()
        if due := _missed_schedule_time(cronjob, last, now):
            await self._create_job(cronjob, due, jobs)
        following = next_due(cronjob.spec.schedule, now)
        return Result(requeue_after=following - now) if following else None

    async def _prune_history(self, cronjob: CronJob, jobs: OwnedJobs) -> None:
        spec = cronjob.spec
        for limit, finished in (
            (spec.successful_jobs_history_limit, jobs.successful),
            (spec.failed_jobs_history_limit, jobs.failed),
        ):
            if limit is not None:
                for job in finished[: max(0, len(finished) - limit)]:
                    await self._delete_job(job)

    async def _create_job(self, cronjob: CronJob, due: datetime, jobs: OwnedJobs) -> None:
        if cronjob.spec.concurrency_policy == "Forbid" and jobs.active:
            self.log.info("run skipped: a previous run is active", due=due.isoformat(), active=len(jobs.active))
            return
        if cronjob.spec.concurrency_policy == "Replace":
            for job in jobs.active:
                await self._delete_job(job)
        job = _build_job(cronjob, due)
        try:
            await self.client.create(job, owner=cronjob)
        except AlreadyExists:
            # Created before, but the response was lost. The name contains the scheduled time.
            return
        self.events.normal(cronjob, "SuccessfulCreate", f"created Job {job.metadata.name}")

    async def _delete_job(self, job: Job) -> None:
        try:
            await self.client.delete(Job, job.key, uid=job.metadata.uid)
        except NotFound:
            return

    @classmethod
    def setup_with_manager(cls, manager: Manager) -> None:
        """Declare the watched kinds and the permissions of the controller."""
        manager.controller(CronJob).owns(Job).needs(Job, "delete").complete(cls)


def _missed_schedule_time(cronjob: CronJob, last: datetime | None, now: datetime) -> datetime | None:
    """Return the latest missed scheduled time within the deadline, or None."""
    since = last or cronjob.metadata.creation_timestamp or now
    if (seconds := cronjob.spec.starting_deadline_seconds) is not None:
        since = max(since, now - timedelta(seconds=seconds))
    return last_due(cronjob.spec.schedule, since, now)


def _build_job(cronjob: CronJob, due: datetime) -> Job:
    template = cronjob.spec.job_template
    metadata = ObjectMeta(
        name=f"{cronjob.metadata.name}-{int(due.timestamp())}",
        namespace=cronjob.metadata.namespace,
        labels=template.metadata.labels,
        annotations=FrozenDict({**template.metadata.annotations, SCHEDULED_AT: due.isoformat()}),
    )
    return Job(metadata=metadata, spec=template.spec)


def _available_condition(cronjob: CronJob) -> Condition:
    if error := schedule_error(cronjob.spec.schedule):
        return Condition(type="Available", status="False", reason="InvalidSchedule", message=error)
    if cronjob.spec.suspend:
        return Condition(type="Available", status="False", reason="Suspended", message="New runs are suspended.")
    return Condition(type="Available", status="True", reason="Scheduled", message="Jobs are created on schedule.")


def _object_reference(job: Job) -> ObjectReference:
    metadata, resource = job.metadata, job.api_resource
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
    )


def _finished_condition(job: Job) -> str:
    finished_types = ("Complete", "Failed")
    return next((c.type for c in job.status.conditions if c.type in finished_types and c.status == "True"), "")


def _scheduled_at(job: Job) -> datetime | None:
    try:
        found = datetime.fromisoformat(job.metadata.annotations.get(SCHEDULED_AT, ""))
    except ValueError:
        return None
    # A time without a time zone is foreign and cannot be compared.
    return found if found.tzinfo is not None else None


def _start_time(job: Job) -> datetime:
    return job.status.start_time or job.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
