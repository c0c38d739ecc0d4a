"""RedisCluster under faults: the process is killed, answers are lost, watches are late, at each place of a life."""

from __future__ import annotations

from typing import Any

from steersman import ManagerOptions, MergePatch, ObjectMeta
from steersman_testing import World, simulate

from model_machines import ModelMachines
from redis_model import ModelRedis
from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterSpec, RedisClusterStatus
from redis_operator.main import setup
from redis_operator.nodes import SLOTS
from redis_world import KEY, WORDS
from stateful_pods import Kubelet

Redis = World[ModelRedis]


async def kubelet(world: Redis) -> None:
    """Pods and their servers."""

    async def read(kind: type[Any]) -> Any:
        return world.read_all(kind)

    working = Kubelet(world.client, read, ModelMachines(world.outside))
    while True:
        await working.look()
        await world.sleep(1)


def phase(world: Redis) -> str:
    found = world.read(RedisCluster, KEY)
    status = found.status if found is not None and found.status is not None else RedisClusterStatus()
    current = found is not None and status.observed_generation == found.metadata.generation
    return status.phase or "" if current else ""


async def ready(world: Redis) -> None:
    await world.until("Ready", lambda: phase(world) == "Ready")
    await world.rest()


async def life(world: Redis) -> None:
    """Made, filled, enlarged, changed, made smaller."""
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    spec = RedisClusterSpec(version="8.0", replicas=4, replicas_per_master=0)
    await world.client.create(RedisCluster(metadata=metadata, spec=spec))
    await ready(world)
    for key, value in WORDS.items():
        world.outside.write(key, value)
    await world.client.patch(RedisCluster, KEY, MergePatch({"spec": {"replicas": 6, "replicasPerMaster": 1}}))
    await ready(world)
    await world.client.patch(RedisCluster, KEY, MergePatch({"spec": {"version": "8.2"}}))
    await ready(world)
    await world.client.patch(RedisCluster, KEY, MergePatch({"spec": {"replicas": 3, "replicasPerMaster": 0}}))
    await ready(world)


def seen(redis: ModelRedis) -> dict[str, Any]:
    """What is the same however it came about: who serves which slots is not."""
    return {"keys": redis.served(), "slots": redis.covered(), "nodes": len(redis.running)}


def no_key_is_lost(world: Redis) -> None:
    """Once all are written, each is on some volume, whatever runs; and once all is well, it is served."""
    there = {key for node in world.outside.volumes.values() for key in node.keys}
    if phase(world) == "Ready":
        assert world.outside.covered() == SLOTS, "a slot has no owner, and the operator is content"
    assert world.outside.written <= there, f"lost: {sorted(world.outside.written - there)}"


def same(obj: dict[str, Any]) -> dict[str, Any]:
    """Who is whose replica, which address a pod has and what the password is differs from run to run."""
    if obj["kind"] == "RedisCluster":
        return obj | {"status": {k: v for k, v in obj.get("status", {}).items() if k != "nodes"}}
    if obj["kind"] == "Pod":
        return obj | {"status": {}, "metadata": {"name": obj["metadata"]["name"]}}
    if obj["kind"] == "StatefulSet":
        template = obj["spec"]["template"]
        bare = template | {"metadata": {"labels": template["metadata"]["labels"]}}
        return obj | {"status": {}, "spec": obj["spec"] | {"template": bare}}
    return obj


def test_it_comes_through() -> None:
    report = simulate(
        setup,
        life,
        outside=ModelRedis,
        observe=seen,
        kinds=[RedisCluster],
        actors=[kubelet],
        invariants=[no_key_is_lost],
        options=ManagerOptions(name="redis-operator"),
        adjust=same,
        random_runs=1,
        most=6,
    )
    assert sum(report.tried.values()) >= 6
