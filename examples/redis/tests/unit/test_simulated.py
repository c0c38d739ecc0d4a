"""RedisCluster under crashes, lost responses and delayed watches."""

from __future__ import annotations

from typing import Any

from steersman import ManagerOptions, MergePatch, ObjectMeta
from steersman_testing import World, simulate

from fake_kubelet import FakeKubelet
from model_runtime import ModelRuntime
from redis_harness import KEY, WORDS
from redis_model import ModelRedis
from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterSpec, RedisClusterStatus
from redis_operator.controllers.rediscluster import RedisClusterReconciler
from redis_operator.nodes import SLOT_COUNT

RedisSimulation = World[ModelRedis]


async def fake_kubelet(world: RedisSimulation) -> None:
    """Run the pods and their servers."""

    async def read(kind: type[Any]) -> Any:
        return world.read_all(kind)

    simulated_kubelet = FakeKubelet(world.client, read, ModelRuntime(world.outside))
    while True:
        await simulated_kubelet.reconcile_pods()
        await world.sleep(1)


def cluster_phase(world: RedisSimulation) -> str:
    found = world.read(RedisCluster, KEY)
    status = found.status if found is not None else RedisClusterStatus()
    current = found is not None and status.observed_generation == found.metadata.generation
    return status.phase or "" if current else ""


async def wait_ready(world: RedisSimulation) -> None:
    await world.wait_until("Ready", lambda: cluster_phase(world) == "Ready")
    await world.settle_after_faults()


async def scenario(world: RedisSimulation) -> None:
    """Create, fill, scale out, change and scale in a cluster."""
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    spec = RedisClusterSpec(version="8.0", replicas=4, replicas_per_master=0)
    await world.client.create(RedisCluster(metadata=metadata, spec=spec))
    await wait_ready(world)
    for key, value in WORDS.items():
        world.outside.write(key, value)
    await world.client.patch(RedisCluster, KEY, MergePatch({"spec": {"replicas": 6, "replicasPerMaster": 1}}))
    await wait_ready(world)
    await world.client.patch(RedisCluster, KEY, MergePatch({"spec": {"version": "8.2"}}))
    await wait_ready(world)
    await world.client.patch(RedisCluster, KEY, MergePatch({"spec": {"replicas": 3, "replicasPerMaster": 0}}))
    await wait_ready(world)


def observe_keys(redis: ModelRedis) -> dict[str, Any]:
    """Return the state that does not depend on the order of events."""
    return {"keys": redis.readable_keys(), "slots": redis.covered_slots(), "nodes": len(redis.running)}


def no_key_is_lost(world: RedisSimulation) -> None:
    """Check that each written key is stored, and served when stable."""
    stored_keys = {key for node in world.outside.volumes.values() for key in node.keys}
    if cluster_phase(world) == "Ready":
        assert world.outside.covered_slots() == SLOT_COUNT, "a slot has no owner, and the operator is content"
    assert world.outside.written <= stored_keys, f"lost: {sorted(world.outside.written - stored_keys)}"


def normalize(obj: dict[str, Any]) -> dict[str, Any]:
    """Remove roles, addresses and passwords, which differ between runs."""
    if obj["kind"] == "RedisCluster":
        return obj | {"status": {k: v for k, v in obj.get("status", {}).items() if k != "nodes"}}
    if obj["kind"] == "Pod":
        return obj | {"status": {}, "metadata": {"name": obj["metadata"]["name"]}}
    if obj["kind"] == "StatefulSet":
        template = obj["spec"]["template"]
        normalized_template = template | {"metadata": {"labels": template["metadata"]["labels"]}}
        return obj | {"status": {}, "spec": obj["spec"] | {"template": normalized_template}}
    return obj


def test_simulated_faults_are_recovered() -> None:
    report = simulate(
        RedisClusterReconciler.setup_with_manager,
        scenario,
        outside=ModelRedis,
        observe=observe_keys,
        kinds=[RedisCluster],
        actors=[fake_kubelet],
        invariants=[no_key_is_lost],
        options=ManagerOptions(name="redis-operator"),
        adjust=normalize,
        random_runs=1,
        max_places=6,
    )
    assert sum(report.tried.values()) >= 6
