"""The stage of the in-place resize where the cache lags behind."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec

from database_support.unit.planned_cluster import DECLARED, KEY, NOW, cluster_state, instance, primary
from steersman.api.core_v1 import Namespace, Pod, ResourceRequirements
from steersman.client import Client, MergePatch
from steersman.meta import ObjectMeta, decode_builtins
from steersman_databases.cluster.actions import RecreatePod
from steersman_databases.cluster.planner import next_action
from steersman_databases.cluster.rules.pod_hashes import restart_hash, template_hashes
from steersman_databases.core.context import ClusterContext
from steersman_databases.features.in_place_resize.model import RESIZE, ResizeRecord
from steersman_databases.features.in_place_resize.stage import PodResizer
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

SMALL, LARGE = ({"limits": {"memory": size}, "requests": {"memory": size}} for size in ("1Gi", "2Gi"))


@virtual_time
async def test_timed_out_resize_is_read_live_before_recreation() -> None:
    runtime = virtual_runtime()
    client = Client(InMemoryApiServer(runtime), field_manager="test")
    await client.create(Namespace(metadata=ObjectMeta(name=KEY.namespace)))
    small, large = (
        replace(
            DECLARED,
            instances=1,
            pod_settings=replace(DECLARED.pod_settings, resources=decode_builtins(each, ResourceRequirements)),
        )
        for each in (SMALL, LARGE)
    )
    record = ResizeRecord(target=restart_hash(large, large.image), requested_at=NOW.replace(year=2020))
    metadata = {
        "name": "orders-0-0",
        "namespace": KEY.namespace,
        "annotations": {**template_hashes(small, small.image), RESIZE: msgspec.json.encode(record).decode()},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "orders-0", "uid": "uid-0", "controller": True}
        ],
    }
    container = {"name": "server", "image": DECLARED.image, "resources": LARGE}
    pod = await client.create(decode_builtins({"metadata": metadata, "spec": {"containers": [container]}}, Pod))

    async def report(running: dict[str, Any]) -> Pod:
        status: dict[str, Any] = {"name": "server", "image": "", "state": {"running": {}}, "resources": running}
        body: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [status]}
        return await client.patch(Pod, pod.key, MergePatch({"status": body}), subresource="status")

    cached = await report(SMALL)
    await report(LARGE)
    state = cluster_state([replace(instance(0), pod=cached)], primary(0))
    assert isinstance(next_action(large, state), RecreatePod)
    fields: dict[str, Any] = {"cluster": pod, "events": None, "client": SimpleNamespace(live=client)}
    context = ClusterContext(declared=large, clock=runtime.clock, **fields)
    refreshed = await PodResizer(context).refresh(state)
    assert not isinstance(next_action(large, refreshed), RecreatePod)
