"""Test of MyApp on a real API server, with the operator's role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from steersman import Client, Manager, ManagerOptions, MergePatch, NotFound, ObjectKey, connect
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman.errors import Invalid
from steersman.meta import unstructured
from steersman_testing.envtest import Envtest

from my_operator.api.v1.myapp import MyApp, MyAppStatus, Phase
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.main import setup
from my_operator.resources import has_database, migration_key, release_of

CONFIG = Path(__file__).parents[2] / "config"
ROLE: dict[str, Any] = yaml.safe_load((CONFIG / "rbac/role.yaml").read_text())
SAMPLE: dict[str, Any] = yaml.safe_load((CONFIG / "samples/v1_myapp.yaml").read_text())


class SimulatedCluster:
    """Acts as the user and as the controllers that envtest lacks."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.key = ObjectKey(namespace, SAMPLE["metadata"]["name"])

    async def apply_sample(self) -> None:
        sample = {**SAMPLE, "metadata": {**SAMPLE["metadata"], "namespace": self.key.namespace}}
        await self.client.apply(unstructured(MyApp.api_resource).of(sample))

    async def patch_spec(self, **spec: Any) -> None:
        await self.client.patch(MyApp, self.key, MergePatch({"spec": spec}))

    async def mark_database_ready(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "DatabaseReady", "message": ""}
        ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        patch = MergePatch({"status": {"phase": "Ready", "conditions": [ready]}})
        await self.wait_for_object(Database)
        await self.client.patch(Database, self.key, patch, subresource="status")

    async def finish_migration(self, image: str, *, succeeded: bool) -> None:
        key = migration_key(await self.client.get(MyApp, self.key), image)
        async with asyncio.timeout(30):
            while key not in (jobs := {job.key: job for job in await self.jobs()}):
                await asyncio.sleep(0.05)
        timestamp = "2026-01-01T00:00:00Z"
        kinds = ("SuccessCriteriaMet", "Complete") if succeeded else ("FailureTarget", "Failed")
        condition = {"status": "True", "reason": "Told", "lastTransitionTime": timestamp}
        status: dict[str, Any] = {
            "startTime": timestamp,
            "conditions": [{"type": kind, **condition} for kind in kinds],
        }
        status |= {"completionTime": timestamp, "succeeded": 1} if succeeded else {}
        await self.client.patch(Job, jobs[key].key, MergePatch({"status": status}), subresource="status")

    async def jobs(self) -> list[Job]:
        """Return the Jobs, after deleting orphans like the garbage collector."""
        found = (await self.client.list(Job, namespace=self.key.namespace)).items
        for job in found:
            if job.metadata.deletion_timestamp is not None:
                await self.client.patch(Job, job.key, MergePatch({"metadata": {"finalizers": None}}))
        return [job for job in found if job.metadata.deletion_timestamp is None]

    async def settings(self) -> list[ConfigMap]:
        """Return the ConfigMaps of the operator."""
        found = await self.client.list(
            ConfigMap, namespace=self.key.namespace, label_selector="app.kubernetes.io/name"
        )
        return list(found.items)

    async def wait_for_settings(self, data: dict[str, str]) -> ObjectKey:
        """Return the key of the Deployment's ConfigMap when it has ``data``."""
        async with asyncio.timeout(30):
            while True:
                running = release_of((await self.wait_for_object(Deployment)).spec.template.spec)
                for found in await self.settings():
                    if found.data == data and running is not None and running.config == found.metadata.name:
                        return found.key
                await asyncio.sleep(0.05)

    async def finish_rollout(self, image: str, *, with_database: bool) -> None:
        async with asyncio.timeout(30):
            found = await self.wait_for_object(Deployment)
            while deployed_image(found) != (image, with_database):
                await asyncio.sleep(0.05)
                found = await self.wait_for_object(Deployment)
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {**dict.fromkeys(counts, found.spec.replicas), "observedGeneration": found.metadata.generation}
        await self.client.patch(Deployment, self.key, MergePatch({"status": status}), subresource="status")

    async def wait_for_object(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(30):
            while True:
                try:
                    return await self.client.get(kind, self.key)
                except NotFound:
                    await asyncio.sleep(0.05)

    async def wait_for_phase(self, phase: Phase, version: str) -> MyAppStatus:
        async with asyncio.timeout(30):
            while True:
                app = await self.client.get(MyApp, self.key)
                status = app.status
                observed = status.observed_generation == app.metadata.generation
                if observed and (status.phase, app.spec.version) == (phase, version):
                    return status
                await asyncio.sleep(0.05)


def deployed_image(deployment: Deployment) -> tuple[str, bool]:
    """Return the image, and True if it has a database."""
    release = release_of(deployment.spec.template.spec)
    return release.image if release else "", has_database(deployment.spec.template.spec)


@asynccontextmanager
async def running_operator(envtest: Envtest, namespace: str) -> AsyncGenerator[SimulatedCluster]:
    """Run the operator in one namespace with exactly its role."""
    user = envtest.user("operator", roles=[ROLE])
    async with connect(user.config) as transport, envtest.client() as client:
        manager = Manager(transport, ManagerOptions(namespaces=(namespace,)))
        setup(manager)
        running = asyncio.create_task(manager.run())
        try:
            yield SimulatedCluster(client, namespace)
        finally:
            manager.stop()
            await running


@pytest.mark.requirement("programming/status", "overview/required-objects")
async def test_myapp_becomes_ready_with_operator_role(envtest: Envtest, envtest_namespace: str) -> None:
    async with running_operator(envtest, envtest_namespace) as cluster:
        await cluster.apply_sample()
        assert (await cluster.wait_for_phase("Pending", "1.2.0")).version is None
        await cluster.mark_database_ready()
        await cluster.finish_migration("example.com/myapp:1.2.0", succeeded=True)
        await cluster.finish_rollout("example.com/myapp:1.2.0", with_database=True)
        status = await cluster.wait_for_phase("Ready", "1.2.0")
        assert (status.version, status.replicas, status.ready_replicas) == ("1.2.0", 3, 3)

        first = await cluster.wait_for_settings({"LOG_LEVEL": "info"})
        with pytest.raises(Invalid, match="immutable"):
            await cluster.client.patch(ConfigMap, first, MergePatch({"data": {"LOG_LEVEL": "debug"}}))
        await cluster.patch_spec(config={"LOG_LEVEL": "debug"})
        await cluster.wait_for_settings({"LOG_LEVEL": "debug"})
        await cluster.finish_rollout("example.com/myapp:1.2.0", with_database=True)
        async with asyncio.timeout(30):
            while first in [found.key for found in await cluster.settings()]:
                await asyncio.sleep(0.05)

        await cluster.patch_spec(version="1.3.0")
        await cluster.finish_migration("example.com/myapp:1.3.0", succeeded=False)
        status = await cluster.wait_for_phase("RolledBack", "1.3.0")
        assert status.version == "1.2.0"

        await cluster.patch_spec(database={"enabled": False}, version="1.2.0")
        await cluster.finish_rollout("example.com/myapp:1.2.0", with_database=False)
        async with asyncio.timeout(30):
            while (await cluster.client.list(Database, namespace=envtest_namespace)).items:
                await asyncio.sleep(0.05)


@pytest.mark.requirement("programming/scale-subresource")
async def test_scale_subresource_changes_replicas(envtest: Envtest, envtest_namespace: str) -> None:
    async with running_operator(envtest, envtest_namespace) as cluster:
        await cluster.apply_sample()
        await cluster.patch_spec(database={"enabled": False})
        await cluster.finish_rollout("example.com/myapp:1.2.0", with_database=False)
        await cluster.wait_for_phase("Ready", "1.2.0")
        before = await cluster.client.get_scale(MyApp, cluster.key)
        assert (before.spec.replicas, before.status.replicas) == (3, 3)
        found = await cluster.wait_for_object(Deployment)
        assert set((before.status.selector or "").split(",")) == {
            f"{name}={value}" for name, value in found.spec.selector.match_labels.items()
        }
        await cluster.client.scale(MyApp, cluster.key, 5)
        async with asyncio.timeout(30):
            while (await cluster.wait_for_object(Deployment)).spec.replicas != 5:
                await asyncio.sleep(0.05)
