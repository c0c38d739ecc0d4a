"""MyApp on the real API server, with the rights of its role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from steersman import Client, Manager, ManagerOptions, MergePatch, NotFound, ObjectKey, connect
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job
from steersman.meta import unstructured
from steersman_testing.envtest import Envtest

from my_operator.api.v1.myapp import MyApp, MyAppStatus, Phase
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.main import setup
from my_operator.resources import has_database, image_of, migration_key

CONFIG = Path(__file__).parents[2] / "config"
ROLE: dict[str, Any] = yaml.safe_load((CONFIG / "rbac/role.yaml").read_text())
SAMPLE: dict[str, Any] = yaml.safe_load((CONFIG / "samples/v1_myapp.yaml").read_text())


class Outside:
    """The user, and what a cluster would do: of that the API server of these tests has nothing."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.key = ObjectKey(namespace, SAMPLE["metadata"]["name"])

    async def apply_sample(self) -> None:
        sample = {**SAMPLE, "metadata": {**SAMPLE["metadata"], "namespace": self.key.namespace}}
        await self.client.apply(unstructured(MyApp.api_resource).of(sample))

    async def change(self, **spec: Any) -> None:
        await self.client.patch(MyApp, self.key, MergePatch({"spec": spec}))

    async def database_is_ready(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "DatabaseReady", "message": ""}
        ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        patch = MergePatch({"status": {"phase": "Ready", "conditions": [ready]}})
        await self.until_there(Database)
        await self.client.patch(Database, self.key, patch, subresource="status")

    async def migration_ends(self, image: str, *, well: bool) -> None:
        key = migration_key(await self.client.get(MyApp, self.key), image)
        async with asyncio.timeout(30):
            while key not in (jobs := {job.key: job for job in await self.jobs()}):
                await asyncio.sleep(0.05)
        moment = "2026-01-01T00:00:00Z"
        kinds = ("SuccessCriteriaMet", "Complete") if well else ("FailureTarget", "Failed")
        told = {"status": "True", "reason": "Told", "lastTransitionTime": moment}
        status: dict[str, Any] = {"startTime": moment, "conditions": [{"type": kind, **told} for kind in kinds]}
        status |= {"completionTime": moment, "succeeded": 1} if well else {}
        await self.client.patch(Job, jobs[key].key, MergePatch({"status": status}), subresource="status")

    async def jobs(self) -> list[Job]:
        """Those that are there, once the garbage collector, which this is, has been."""
        found = (await self.client.list(Job, namespace=self.key.namespace)).items
        for job in found:
            if job.metadata.deletion_timestamp is not None:
                await self.client.patch(Job, job.key, MergePatch({"metadata": {"finalizers": None}}))
        return [job for job in found if job.metadata.deletion_timestamp is None]

    async def rolls_out(self, image: str, *, with_database: bool) -> None:
        async with asyncio.timeout(30):
            found = await self.until_there(Deployment)
            while runs(found) != (image, with_database):
                await asyncio.sleep(0.05)
                found = await self.until_there(Deployment)
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {**dict.fromkeys(counts, found.spec.replicas), "observedGeneration": found.metadata.generation}
        await self.client.patch(Deployment, self.key, MergePatch({"status": status}), subresource="status")

    async def until_there(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(30):
            while True:
                try:
                    return await self.client.get(kind, self.key)
                except NotFound:
                    await asyncio.sleep(0.05)

    async def until(self, phase: Phase, version: str) -> MyAppStatus:
        async with asyncio.timeout(30):
            while True:
                app = await self.client.get(MyApp, self.key)
                status = app.status
                told = status is not None and status.observed_generation == app.metadata.generation
                if told and status is not None and (status.phase, app.spec.version) == (phase, version):
                    return status
                await asyncio.sleep(0.05)


def runs(deployment: Deployment) -> tuple[str, bool]:
    """What it runs, and whether that has a database."""
    pod = deployment.spec.template.spec
    return image_of(pod), has_database(pod)


@asynccontextmanager
async def operator(envtest: Envtest, namespace: str) -> AsyncGenerator[Outside]:
    """The operator at work in one namespace, with the rights of its role and no others."""
    user = envtest.user("operator", roles=[ROLE])
    async with connect(user.config) as transport, envtest.client() as client:
        manager = Manager(transport, ManagerOptions(namespaces=(namespace,)))
        setup(manager)
        running = asyncio.create_task(manager.run())
        try:
            yield Outside(client, namespace)
        finally:
            manager.stop()
            await running


async def test_its_rights_are_enough(envtest: Envtest, envtest_namespace: str) -> None:
    async with operator(envtest, envtest_namespace) as outside:
        await outside.apply_sample()
        assert (await outside.until("Pending", "1.2.0")).version is None
        await outside.database_is_ready()
        await outside.migration_ends("example.com/myapp:1.2.0", well=True)
        await outside.rolls_out("example.com/myapp:1.2.0", with_database=True)
        status = await outside.until("Ready", "1.2.0")
        assert (status.version, status.replicas, status.ready_replicas) == ("1.2.0", 3, 3)

        await outside.change(version="1.3.0")
        await outside.migration_ends("example.com/myapp:1.3.0", well=False)
        status = await outside.until("RolledBack", "1.3.0")
        assert status.version == "1.2.0"

        await outside.change(database={"enabled": False}, version="1.2.0")
        await outside.rolls_out("example.com/myapp:1.2.0", with_database=False)
        async with asyncio.timeout(30):
            while (await outside.client.list(Database, namespace=envtest_namespace)).items:
                await asyncio.sleep(0.05)


async def test_it_scales_as_autoscalers_do(envtest: Envtest, envtest_namespace: str) -> None:
    async with operator(envtest, envtest_namespace) as outside:
        await outside.apply_sample()
        await outside.change(database={"enabled": False})
        await outside.rolls_out("example.com/myapp:1.2.0", with_database=False)
        await outside.until("Ready", "1.2.0")
        before = await outside.client.get_scale(MyApp, outside.key)
        assert (before.spec.replicas, before.status.replicas) == (3, 3)
        found = await outside.until_there(Deployment)
        assert set((before.status.selector or "").split(",")) == {
            f"{name}={value}" for name, value in found.spec.selector.match_labels.items()
        }
        await outside.client.scale(MyApp, outside.key, 5)
        async with asyncio.timeout(30):
            while (await outside.until_there(Deployment)).spec.replicas != 5:
                await asyncio.sleep(0.05)
