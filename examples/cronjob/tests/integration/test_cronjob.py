"""CronJob on the real API server, with its role, webhooks and conversion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from steersman import Client, Manager, ManagerOptions, MergePatch, ObjectKey, ObjectMeta, connect
from steersman.api.batch_v1 import Job, JobSpec, JobTemplateSpec
from steersman.api.core_v1 import Container, PodSpec, PodTemplateSpec
from steersman.errors import Invalid
from steersman.meta import ApiResource, unstructured
from steersman.webhook import WebhookServerOptions
from steersman_testing.envtest import Envtest

from project.api.v1 import cronjob as v1
from project.api.v2 import cronjob as v2
from project.main import setup

ROLE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "config/rbac/role.yaml").read_text())
SAMPLES = Path(__file__).parents[2] / "config/samples"
POD = PodSpec(containers=(Container(name="hello", image="busybox"),), restart_policy="OnFailure")
TEMPLATE = JobTemplateSpec(spec=JobSpec(template=PodTemplateSpec(spec=POD)))


@asynccontextmanager
async def running_operator(envtest: Envtest) -> AsyncGenerator[Client]:
    """Run the operator with reachable webhooks, and yield a client."""
    operator = envtest.user("operator", roles=[ROLE])
    webhook_server = envtest.webhooks
    address = f"{webhook_server.host}:{webhook_server.port}"
    serving = WebhookServerOptions(
        url=webhook_server.url("/"), bind_address=address, cert_path=str(webhook_server.directory), drain_seconds=0
    )
    async with connect(operator.config) as transport, envtest.client() as user:
        manager = Manager(transport, ManagerOptions(name="project", webhooks=serving))
        setup(manager)
        running = asyncio.create_task(manager.run())
        try:
            await wait_until_listening(webhook_server.host, webhook_server.port)
            yield user
        finally:
            manager.stop()
            await running


async def wait_until_listening(host: str, port: int) -> None:
    """Wait until the port accepts connections."""
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@pytest.mark.requirement("programming/versions")
async def test_both_versions_webhooks_and_rights(envtest: Envtest, envtest_namespace: str) -> None:
    key = ObjectKey(envtest_namespace, "sample")
    async with running_operator(envtest) as user:
        # An object written in v2 is converted, defaulted, validated and stored as v1, and readable as both.
        schedule = v2.CronSchedule(minute="*/5", day_of_week="MON-FRI")
        metadata = ObjectMeta(name=key.name, namespace=key.namespace)
        created = await user.create(
            v2.CronJob(metadata=metadata, spec=v2.CronJobSpec(schedule=schedule, job_template=TEMPLATE))
        )
        assert created.spec.schedule == schedule
        assert created.spec.successful_jobs_history_limit == 3
        found = await user.get(v1.CronJob, key)
        assert found.spec.schedule == "*/5 * * * MON-FRI"
        assert found.spec.concurrency_policy == "Allow"
        assert not found.metadata.annotations

        # The webhook of v1 also rejects invalid objects of v2.
        with pytest.raises(Invalid, match="Bad minute"):
            await user.patch(v2.CronJob, key, MergePatch({"spec": {"schedule": {"minute": "61"}}}))
        with pytest.raises(Invalid, match="must have at most 52 characters"):
            long = v1.CronJob(metadata=ObjectMeta(name="x" * 53, namespace=key.namespace), spec=found.spec)
            await user.create(long)

        # v2 cannot express two spaces. A write in v2 keeps them unless it changes the schedule.
        await user.patch(v1.CronJob, key, MergePatch({"spec": {"schedule": "*/5  * * * MON-FRI"}}))
        await user.patch(v2.CronJob, key, MergePatch({"spec": {"suspend": True}}))
        assert (await user.get(v1.CronJob, key)).spec.schedule == "*/5  * * * MON-FRI"
        await user.patch(v2.CronJob, key, MergePatch({"spec": {"suspend": False, "schedule": {"minute": "*"}}}))
        assert (await user.get(v1.CronJob, key)).spec.schedule == "* * * * MON-FRI"

        status = await wait_for_status(user, key)
        assert [c.type for c in status.conditions] == ["Available"]


async def test_job_is_created_with_manager_role(envtest: Envtest, envtest_namespace: str) -> None:
    key = ObjectKey(envtest_namespace, "sample")
    async with running_operator(envtest) as user:
        spec = v1.CronJobSpec(schedule="* * * * *", job_template=TEMPLATE, suspend=True)
        metadata = ObjectMeta(name=key.name, namespace=key.namespace)
        created = await user.create(v1.CronJob(metadata=metadata, spec=spec))
        await wait_for_status(user, key)
        # Move the last run a minute back, because schedules count from it.
        assert created.metadata.creation_timestamp is not None
        long_ago = created.metadata.creation_timestamp.replace(year=2020).isoformat()
        await user.patch(
            v1.CronJob, key, MergePatch({"status": {"lastScheduleTime": long_ago}}), subresource="status"
        )
        await user.patch(v1.CronJob, key, MergePatch({"spec": {"suspend": False}}))
        async with asyncio.timeout(30):
            while not (jobs := (await user.list(Job, namespace=key.namespace)).items):
                await asyncio.sleep(0.05)
        assert jobs[0].controller_reference is not None
        assert jobs[0].controller_reference.uid == created.metadata.uid


async def test_samples_are_accepted(envtest: Envtest, envtest_namespace: str) -> None:
    async with running_operator(envtest) as user:
        for version in ("v1", "v2"):
            sample = yaml.safe_load((SAMPLES / f"batch_{version}_cronjob.yaml").read_text())
            sample["metadata"]["namespace"] = envtest_namespace
            kind = ApiResource("batch.tutorial.kubebuilder.io", version, "CronJob", "cronjobs")
            await user.apply(unstructured(kind).of(sample), dry_run=True)


async def wait_for_status(client: Client, key: ObjectKey) -> v1.CronJobStatus:
    """Return the first status that the operator writes."""
    async with asyncio.timeout(30):
        while not (status := (await client.get(v1.CronJob, key)).status).conditions:
            await asyncio.sleep(0.05)
    return status
