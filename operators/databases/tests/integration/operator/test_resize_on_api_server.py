"""In-place resizes of a pod on a real API server: accepted, refused for good, and refused by a quota."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from database_support.unit.planned_cluster import DECLARED, NOW, cluster_state, instance, primary
from steersman.api.core_v1 import Namespace, Node, Pod, ResourceQuota, ResourceRequirements
from steersman.client import Client, MergePatch
from steersman.errors import AlreadyExists
from steersman.meta import ObjectKey, ObjectMeta, decode_builtins
from steersman.observability.runtime import Runtime
from steersman_databases.cluster.rules.pod_hashes import template_hashes
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.in_place_resize.model import ResizeRecord, record_of
from steersman_databases.features.in_place_resize.stage import PodResizer
from steersman_testing.envtest import Envtest

KEY = DECLARED.names.pod(0)
SMALL: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}


def declaring(resources: dict[str, Any]) -> DeclaredCluster:
    declared = decode_builtins(resources, ResourceRequirements)
    return replace(DECLARED, pod_settings=replace(DECLARED.pod_settings, resources=declared))


def larger(memory: str) -> DeclaredCluster:
    return declaring({"requests": {"cpu": "1", "memory": memory}, "limits": {"memory": memory}})


@asynccontextmanager
async def running_pod(envtest: Envtest) -> AsyncGenerator[Client]:
    """A pod on a node with 8 GiB, in a namespace of its own, as a kubelet reports it."""
    async with envtest.client() as client:
        with suppress(AlreadyExists):
            await client.create(Namespace(metadata=ObjectMeta(name=KEY.namespace)))
        with suppress(AlreadyExists):
            await client.create(Node(metadata=ObjectMeta(name="large")))
        size = {"cpu": "8", "memory": "8Gi", "pods": "10"}
        status = MergePatch({"status": {"allocatable": size, "capacity": size}})
        await client.patch(Node, ObjectKey("", "large"), status, subresource="status")
        small = declaring(SMALL)
        container = {"name": "server", "image": DECLARED.image, "resources": SMALL}
        annotations = dict(template_hashes(small, small.image))
        metadata = {"name": KEY.name, "namespace": KEY.namespace, "annotations": annotations}
        spec = {"nodeName": "large", "containers": [container], "terminationGracePeriodSeconds": 0}
        await client.create(decode_builtins({"metadata": metadata, "spec": spec}, Pod))
        running: dict[str, Any] = {"name": "server", "image": "", "imageID": "", "ready": True, "restartCount": 0}
        running |= {"state": {"running": {}}, "resources": SMALL}
        ready = [{"type": "Ready", "status": "True"}]
        reported: dict[str, Any] = {"phase": "Running", "conditions": ready, "containerStatuses": [running]}
        await client.patch(Pod, KEY, MergePatch({"status": reported}), subresource="status")
        try:
            yield client
        finally:
            await client.delete(Pod, KEY, grace_period_seconds=0)


async def ensure(client: Client, cluster: DeclaredCluster) -> tuple[str, ResizeRecord]:
    """Take one step, and return the memory limit of the pod and the record."""
    pod = await client.get(Pod, KEY)
    one = replace(instance(0), pod=pod)
    fields: dict[str, Any] = {"cluster": pod, "events": None}
    context = ClusterContext(declared=cluster, client=cast("Any", client), clock=Runtime().clock, **fields)
    await PodResizer(context).ensure(replace(cluster_state([one], primary(0)), now=NOW))
    found = await client.get(Pod, KEY)
    record = record_of(found)
    assert record is not None
    return str(found.spec.containers[0].resources.limits["memory"]), record


async def test_larger_limit_is_accepted(envtest: Envtest) -> None:
    async with running_pod(envtest) as client:
        limit, record = await ensure(client, larger("2Gi"))
        assert (limit, record.refusal, record.is_final) == ("2Gi", "", False)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (larger("9Gi"), "node didn't have enough allocatable resources"),
        (
            declaring({"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}),
            "resource requests cannot be removed",
        ),
    ],
)
async def test_impossible_resize_is_refused_finally(envtest: Envtest, cluster: DeclaredCluster, message: str) -> None:
    async with running_pod(envtest) as client:
        limit, record = await ensure(client, cluster)
        assert limit == "1Gi" and record.is_final and message in record.refusal


async def test_quota_refuses_resize_for_now(envtest: Envtest) -> None:
    async with running_pod(envtest) as client:
        metadata = {"name": "memory", "namespace": KEY.namespace}
        hard = {"limits.memory": "1536Mi"}
        quota = decode_builtins({"metadata": metadata, "spec": {"hard": hard}}, ResourceQuota)
        await client.create(quota)
        # The controller that counts does not run here.
        status = MergePatch({"status": {"hard": hard, "used": {"limits.memory": "1Gi"}}})
        await client.patch(ResourceQuota, quota.key, status, subresource="status")
        limit, record = await ensure(client, larger("2Gi"))
        await client.delete(ResourceQuota, quota.key)
        assert limit == "1Gi" and not record.is_final and "exceeded quota" in record.refusal
