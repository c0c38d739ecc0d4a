"""``complete_workloads`` writes the status that a cluster would write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from steersman.api.apps_v1 import Deployment
from steersman.client import Client, MergePatch
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman_testing import InMemoryApiServer, virtual_time
from steersman_testing.workloads import complete_workloads

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "orders"}},
    "spec": {"containers": [{"name": "app", "image": "orders:1"}]},
}
SELECTOR = {"matchLabels": {"app": "orders"}}
KEY = ObjectKey("default", "orders")


@asynccontextmanager
async def workloads(server: InMemoryApiServer) -> AsyncGenerator[Client]:
    manager = Manager(server, ManagerOptions(name="workloads"))
    complete_workloads(manager)
    task = asyncio.create_task(manager.run())
    try:
        yield Client(server)
    finally:
        manager.stop()
        await task


async def status_of(client: Client, group: str, version: str, kind: str, plural: str, spec: dict[str, Any]) -> Any:
    """Create an object, and return its status a second later."""
    dynamic = unstructured(ApiResource(group, version, kind, plural))
    await client.create(dynamic.of({"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": spec}))
    await asyncio.sleep(1)
    return (await client.get(dynamic, KEY)).to_dict()["status"]


@virtual_time
async def test_deployment_becomes_available_after_each_change() -> None:
    server = InMemoryApiServer()
    async with workloads(server) as client:
        spec = {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE}
        status = await status_of(client, "apps", "v1", "Deployment", "deployments", spec)
        assert (status["observedGeneration"], status["availableReplicas"]) == (1, 3)
        await client.patch(Deployment, KEY, MergePatch({"spec": {"replicas": 0}}))
        await asyncio.sleep(1)
        found = await client.get(Deployment, KEY)
    assert (found.status.observed_generation, found.status.ready_replicas or 0) == (2, 0)
    assert {c.type: c.status for c in found.status.conditions} == {"Available": "True", "Progressing": "True"}


@virtual_time
async def test_workloads_without_change_are_not_written() -> None:
    server = InMemoryApiServer()
    async with workloads(server) as client:
        await status_of(
            client, "apps", "v1", "Deployment", "deployments", {"selector": SELECTOR, "template": TEMPLATE}
        )
        version = (await client.get(Deployment, KEY)).metadata.resource_version
        await asyncio.sleep(3600)
        assert (await client.get(Deployment, KEY)).metadata.resource_version == version


@virtual_time
async def test_stateful_set_and_daemon_set_become_ready() -> None:
    async with workloads(InMemoryApiServer()) as client:
        spec = {"replicas": 2, "serviceName": "orders", "selector": SELECTOR, "template": TEMPLATE}
        status = await status_of(client, "apps", "v1", "StatefulSet", "statefulsets", spec)
        assert (status["readyReplicas"], status["currentRevision"]) == (2, status["updateRevision"])
        spec = {"selector": SELECTOR, "template": TEMPLATE}
        status = await status_of(client, "apps", "v1", "DaemonSet", "daemonsets", spec)
        assert (status["numberReady"], status["desiredNumberScheduled"]) == (1, 1)


@virtual_time
async def test_job_succeeds_unless_suspended() -> None:
    async with workloads(InMemoryApiServer()) as client:
        template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
        status = await status_of(client, "batch", "v1", "Job", "jobs", {"template": template})
        assert {c["type"] for c in status["conditions"]} == {"SuccessCriteriaMet", "Complete"}
        assert status["succeeded"] == 1
    async with workloads(InMemoryApiServer()) as client:
        status = await status_of(client, "batch", "v1", "Job", "jobs", {"template": template, "suspend": True})
        assert "conditions" not in status


@virtual_time
async def test_pod_pvc_and_load_balancer_become_ready() -> None:
    async with workloads(InMemoryApiServer()) as client:
        status = await status_of(client, "", "v1", "Pod", "pods", TEMPLATE["spec"])
        assert status["phase"] == "Running"
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        status = await status_of(client, "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", claim)
        assert (status["phase"], status["capacity"]) == ("Bound", {"storage": "1Gi"})
        service = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        status = await status_of(client, "", "v1", "Service", "services", service)
        assert status["loadBalancer"]["ingress"][0]["ip"]
