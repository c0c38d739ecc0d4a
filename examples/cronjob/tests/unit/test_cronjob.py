"""CronJob on the in-memory API server, in virtual time from midnight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from steersman import Client, FrozenDict, Manager, MergePatch, ObjectKey, ObjectMeta, find_condition
from steersman.api.batch_v1 import Job, JobSpec, JobTemplateSpec
from steersman.api.core_v1 import Container, PodSpec, PodTemplateSpec
from steersman_testing import InMemoryApiServer, World, simulate, virtual_time
from steersman_testing.webhooks import serve_webhooks

from project.api.v1.cronjob import CronJob, CronJobSpec, CronJobStatus
from project.controllers.cronjob import SCHEDULED_AT
from project.main import WEBHOOKS, setup

KEY = ObjectKey("default", "nightly")
HOUR = 3600.0
POD = PodSpec(containers=(Container(name="hello", image="busybox"),), restart_policy="OnFailure")
TEMPLATE = JobTemplateSpec(
    metadata=ObjectMeta(labels=FrozenDict(app="hello")), spec=JobSpec(template=PodTemplateSpec(spec=POD))
)


def hourly_cronjob(**spec: Any) -> CronJob:
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    return CronJob(metadata=metadata, spec=CronJobSpec(schedule="0 * * * *", job_template=TEMPLATE, **spec))


class CronJobDriver:
    """Acts as the user and as the Job controller."""

    def __init__(self, server: InMemoryApiServer) -> None:
        self.client = Client(server, field_manager="user")
        self._clock = server.runtime.clock

    async def jobs(self) -> list[Job]:
        """Return all Jobs, oldest first."""
        return sorted((await self.client.list(Job)).items, key=lambda job: job.metadata.name)

    async def due_times(self) -> list[str]:
        """Return the scheduled times of the Jobs."""
        times = [datetime.fromisoformat(j.metadata.annotations[SCHEDULED_AT]) for j in await self.jobs()]
        return [f"{time:%H:%M}" for time in times]

    async def finish_last_job(self, *, condition_type: str = "Complete") -> None:
        """Finish the last Job with the given condition."""
        job = (await self.jobs())[-1]
        status = {
            "startTime": self._clock.now().isoformat(),
            "conditions": [{"type": condition_type, "status": "True"}],
        }
        await self.client.patch(Job, job.key, MergePatch({"status": status}), subresource="status")

    async def patch_spec(self, **spec: Any) -> None:
        """Patch fields of the spec, with their JSON names."""
        await self.client.patch(CronJob, KEY, MergePatch({"spec": spec}))

    async def status(self) -> CronJobStatus:
        """Return the status of the CronJob."""
        status = (await self.client.get(CronJob, KEY)).status
        return status

    async def available_condition(self) -> str:
        """Return the reason of the condition ``Available``."""
        condition = find_condition((await self.status()).conditions, "Available")
        assert condition is not None
        return f"{condition.status} {condition.reason}"


@asynccontextmanager
async def running_operator(server: InMemoryApiServer) -> AsyncGenerator[CronJobDriver]:
    """Run the operator with its webhooks."""
    manager = Manager(server, runtime=server.runtime)
    setup(manager)
    serve_webhooks(server, manager, WEBHOOKS)
    running = asyncio.create_task(manager.run())
    try:
        yield CronJobDriver(server)
    finally:
        manager.stop()
        await running


@virtual_time
async def test_job_is_created_on_schedule(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as cluster:
        await cluster.client.create(hourly_cronjob())
        await asyncio.sleep(HOUR + 1)
        (job,) = await cluster.jobs()
        assert job.metadata.name == f"nightly-{int(datetime.fromisoformat('2030-01-01T01:00Z').timestamp())}"
        assert job.metadata.labels["app"] == "hello"
        assert job.controller_reference is not None
        assert job.controller_reference.kind == "CronJob"
        status = await cluster.status()
        assert [f"{r.kind} {r.name}" for r in status.active] == [f"Job {job.metadata.name}"]
        assert status.last_schedule_time == datetime.fromisoformat("2030-01-01T01:00Z")
        assert await cluster.available_condition() == "True Scheduled"
        await cluster.finish_last_job()
        await asyncio.sleep(2 * HOUR)
        assert await cluster.due_times() == ["01:00", "02:00", "03:00"]


@virtual_time
async def test_history_limit_deletes_old_jobs(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as cluster:
        await cluster.client.create(hourly_cronjob(successful_jobs_history_limit=2, failed_jobs_history_limit=0))
        await asyncio.sleep(1)
        for how in ("Complete", "Complete", "Failed", "Complete"):
            await asyncio.sleep(HOUR)
            await cluster.finish_last_job(condition_type=how)
        await asyncio.sleep(60)
        assert await cluster.due_times() == ["02:00", "04:00"]
        await cluster.patch_spec(successfulJobsHistoryLimit=0)
        await asyncio.sleep(60)
        assert await cluster.due_times() == []
        status = await cluster.status()
        assert status.last_schedule_time == datetime.fromisoformat("2030-01-01T04:00Z")


@virtual_time
async def test_suspended(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as cluster:
        await cluster.client.create(hourly_cronjob(suspend=True))
        await asyncio.sleep(2.5 * HOUR)
        assert await cluster.due_times() == []
        assert await cluster.available_condition() == "False Suspended"
        # Only the last missed run is started.
        await cluster.patch_spec(suspend=False)
        await asyncio.sleep(60)
        assert await cluster.due_times() == ["02:00"]


@virtual_time
async def test_run_missed_beyond_deadline_is_skipped(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as cluster:
        await cluster.client.create(hourly_cronjob(suspend=True, starting_deadline_seconds=600))
        await asyncio.sleep(2.5 * HOUR)
        await cluster.patch_spec(suspend=False)
        await asyncio.sleep(HOUR)
        assert await cluster.due_times() == ["03:00"]


@virtual_time
async def test_foreign_job_changes_do_not_stop_schedule(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as cluster:
        await cluster.client.create(hourly_cronjob())
        await asyncio.sleep(HOUR + 60)
        (job,) = await cluster.jobs()
        changed = MergePatch({"metadata": {"annotations": {SCHEDULED_AT: "2030-01-01T01:00"}}})
        await cluster.client.patch(Job, job.key, changed)
        await asyncio.sleep(HOUR)
        assert await cluster.due_times() == ["01:00", "02:00"]


@pytest.mark.parametrize(
    ("policy", "due"), [("Allow", ["01:00", "02:00"]), ("Forbid", ["01:00"]), ("Replace", ["02:00"])]
)
@virtual_time
async def test_running_job_follows_concurrency_policy(
    apiserver: InMemoryApiServer, policy: str, due: list[str]
) -> None:
    async with running_operator(apiserver) as cluster:
        await cluster.client.create(hourly_cronjob(concurrency_policy=policy))
        await asyncio.sleep(2 * HOUR + 60)
        assert await cluster.due_times() == due
        if policy == "Forbid":
            await cluster.finish_last_job()
            await asyncio.sleep(60)
            assert await cluster.due_times() == ["01:00", "02:00"]


async def scenario(world: World[None]) -> None:
    """Run a CronJob with Jobs of five minutes through a night."""
    await world.client.create(hourly_cronjob(successful_jobs_history_limit=1, concurrency_policy="Forbid"))
    for _ in range(2):
        await world.sleep(HOUR)
        await world.settle()
    await world.client.patch(CronJob, KEY, MergePatch({"spec": {"suspend": True}}))
    await world.settle()
    await world.client.delete(CronJob, KEY)


async def job_controller(world: World[None]) -> None:
    """Complete each Job after five minutes, like the Job controller."""
    while True:
        await world.sleep(300)
        for job in world.read_all(Job):
            if not job.status.conditions:
                status = {"conditions": [{"type": "Complete", "status": "True"}], "startTime": "2030-01-01T00:00:00Z"}
                await world.client.patch(Job, job.key, MergePatch({"status": status}), subresource="status")


def at_most_one_active_job(world: World[None]) -> None:
    assert sum(not job.status.conditions for job in world.read_all(Job)) <= 1


def test_simulated_faults_are_recovered() -> None:
    report = simulate(
        setup,
        scenario,
        kinds=[CronJob],
        actors=[job_controller],
        invariants=[at_most_one_active_job],
        max_places=5,
        random_runs=1,
    )
    assert sum(report.tried.values()) >= 5
