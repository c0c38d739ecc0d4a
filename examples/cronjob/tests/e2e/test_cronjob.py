"""End-to-end test of CronJob. It needs a deployed operator: ``make deploy IMG=…``."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from steersman import Client, MergePatch, ObjectKey, ObjectMeta, connect, load_config
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job, JobSpec, JobTemplateSpec
from steersman.api.core_v1 import Container, Namespace, PodSpec, PodTemplateSpec
from steersman.errors import Invalid, NotFound, SteersmanError

from project.api.v1 import cronjob as v1
from project.api.v2 import cronjob as v2

pytestmark = pytest.mark.e2e
OPERATOR = ObjectKey("project-system", "project")


@asynccontextmanager
async def temporary_namespace() -> AsyncGenerator[tuple[Client, str, JobTemplateSpec]]:
    """Create a namespace. Yield a client, its name, and a Job template.

    The template uses the image of the operator, which exists on the nodes.
    """
    try:
        config = load_config()
    except SteersmanError as error:
        pytest.skip(f"no cluster: {error}")
    async with connect(config) as transport:
        client = Client(transport)
        try:
            (operator,) = (await client.get(Deployment, OPERATOR)).spec.template.spec.containers
        except NotFound:
            pytest.skip("the operator is not deployed: make deploy IMG=…")
        command = ("python3", "-c", "print('Hello from the Kubernetes cluster')")
        container = Container(name="hello", image=operator.image, command=command)
        pod = PodSpec(containers=(container,), restart_policy="OnFailure")
        template = JobTemplateSpec(spec=JobSpec(template=PodTemplateSpec(spec=pod)))
        name = f"e2e-cronjob-{uuid.uuid4().hex[:8]}"
        await client.create(Namespace(metadata=ObjectMeta(name=name)))
        try:
            yield client, name, template
        finally:
            await client.delete(Namespace, ObjectKey("", name))


async def test_jobs_run_every_minute() -> None:
    async with temporary_namespace() as (client, namespace, template), asyncio.timeout(240):
        key = ObjectKey(namespace, "minutely")
        spec = v2.CronJobSpec(
            schedule=v2.CronSchedule(minute="*"), job_template=template, successful_jobs_history_limit=1
        )
        await client.create(v2.CronJob(metadata=ObjectMeta(name=key.name, namespace=namespace), spec=spec))
        found = await client.get(v1.CronJob, key)
        assert found.spec.schedule == "* * * * *"
        assert found.spec.concurrency_policy == "Allow"
        # The second run replaces the first one in the history.
        first = await wait_for_succeeded_job(client, namespace, set())
        second = await wait_for_succeeded_job(client, namespace, {first})
        while first in await job_names(client, namespace):
            await asyncio.sleep(1)
        assert second in await job_names(client, namespace)
        status = (await client.get(v2.CronJob, key)).status
        assert status.last_schedule_time is not None
        with pytest.raises(Invalid, match="Bad minute"):
            await client.patch(v2.CronJob, key, MergePatch({"spec": {"schedule": {"minute": "61"}}}))
        await client.delete(v2.CronJob, key)
        while await job_names(client, namespace):
            await asyncio.sleep(1)


async def job_names(client: Client, namespace: str) -> set[str]:
    """Return the names of all Jobs."""
    return {job.metadata.name for job in (await client.list(Job, namespace=namespace)).items}


async def wait_for_succeeded_job(client: Client, namespace: str, excluded: set[str]) -> str:
    """Return the first succeeded Job that is not in ``excluded``."""
    while True:
        for job in (await client.list(Job, namespace=namespace)).items:
            if job.status.succeeded and job.metadata.name not in excluded:
                return job.metadata.name
        await asyncio.sleep(1)
