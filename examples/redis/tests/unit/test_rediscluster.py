"""RedisCluster on the in-memory API server, with models as nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from steersman import FrozenDict, MergePatch, ObjectKey, ObjectMeta, is_true
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.errors import Invalid
from steersman_testing import InMemoryApiServer, virtual_time

from redis_harness import KEY, WORDS, redis_harness
from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterStatus
from redis_operator.nodes import SLOT_COUNT


def count_roles(status: RedisClusterStatus) -> Counter[str]:
    return Counter(node.role for node in status.nodes)


@pytest.mark.requirement("programming/redis-cluster")
@virtual_time
async def test_cluster_forms_with_spread_replicas(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        await world.create()
        status = await world.wait_ready()
        assert is_true(status.conditions, "Ready")
        assert is_true(status.conditions, "Available")
        assert (status.slots_covered, status.replicas, status.ready_replicas) == (SLOT_COUNT, 6, 6)
        assert count_roles(status) == {"master": 3, "replica": 3}
        node_names = {node.pod: node.node_name for node in status.nodes}
        for node in status.nodes:
            assert node.slots in (0, SLOT_COUNT // 3, SLOT_COUNT // 3 + 1)
            assert node.master is None or node_names[node.pod] != node_names[node.master], (
                "one machine has both copies"
            )


@pytest.mark.requirement("programming/redis-cluster")
@virtual_time
async def test_scaling_keeps_all_keys(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        await world.create_with_keys()
        for replicas, masters in ((10, 5), (7, 3), (6, 3)):
            await world.user.scale(RedisCluster, KEY, replicas)
            status = await world.wait_ready()
            assert count_roles(status) == {"master": masters, "replica": replicas - masters}
            assert len(await world.pods()) == replicas
            assert world.redis.readable_keys() == WORDS
        claims = (await world.user.list(PersistentVolumeClaim, namespace=KEY.namespace)).items
        assert len(claims) == 6
        await world.patch_spec(replicasPerMaster=0)
        assert count_roles(await world.wait_ready()) == {"master": 6}
        assert world.redis.readable_keys() == WORDS


@virtual_time
async def test_upgrade_restarts_one_pod_at_a_time(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        await world.create_with_keys()
        before = {name: pod.metadata.uid for name, pod in (await world.pods()).items()}
        await world.patch_spec(version="8.2")
        status = await world.wait_ready()
        assert status.version == "8.2"
        after = await world.pods()
        assert all(before[name] != pod.metadata.uid for name, pod in after.items())
        assert {c.image for pod in after.values() for c in pod.spec.containers} == {"docker.io/library/redis:8.2"}
        assert world.redis.readable_keys() == WORDS


@virtual_time
async def test_invalid_configuration_can_be_reverted(
    apiserver: InMemoryApiServer,
) -> None:
    async with redis_harness(apiserver) as world:
        await world.create_with_keys(config={"maxmemory-policy": "allkeys-lru"})
        await world.patch_spec(config={"maxmemory": "nonsense"})
        message = await world.wait_ready_reason("NodesMissing")
        assert world.redis.covered_slots() == SLOT_COUNT, "only one replica is away"
        assert message == "waiting for Redis in blue-5"
        await world.patch_spec(config={"maxmemory": None})
        await world.wait_ready()
        assert world.redis.readable_keys() == WORDS
        (remaining,) = (await world.user.list(ConfigMap, namespace=KEY.namespace)).items
        assert "maxmemory-policy allkeys-lru\n" in remaining.data["redis.conf"]


@virtual_time
async def test_pods_with_new_addresses_rejoin(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        await world.create_with_keys()
        await world.user.delete(Pod, ObjectKey(KEY.namespace, "blue-0"))
        await world.wait_not_ready()
        await world.wait_ready()
        assert world.redis.readable_keys() == WORDS
        await world.user.delete_collection(Pod, namespace=KEY.namespace)
        await world.wait_not_ready()
        await world.wait_ready()
        assert world.redis.readable_keys() == WORDS


@virtual_time
async def test_a_lost_volume_is_filled_again(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        await world.create_with_keys()
        claim = ObjectKey(KEY.namespace, "data-blue-0")
        volume = (await world.user.get(PersistentVolumeClaim, claim)).metadata.uid
        world.redis.delete_volume(volume)
        await world.user.delete(Pod, ObjectKey(KEY.namespace, "blue-0"))
        await world.wait_not_ready()
        status = await world.wait_ready()
        assert count_roles(status) == {"master": 3, "replica": 3}
        assert world.redis.readable_keys() == WORDS


@virtual_time
async def test_lost_slots_are_reassigned_only_on_request(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        await world.create_with_keys(replicas=3, replicas_per_master=0)
        claim = ObjectKey(KEY.namespace, "data-blue-0")
        world.redis.delete_volume((await world.user.get(PersistentVolumeClaim, claim)).metadata.uid)
        await world.user.delete(Pod, ObjectKey(KEY.namespace, "blue-0"))
        message = await world.wait_ready_reason("SlotsLost")
        assert not is_true((await world.status()).conditions, "Available")
        name, _, node = message.rpartition(" ")[2].partition("=")
        await world.user.patch(RedisCluster, KEY, MergePatch({"metadata": {"annotations": {name: node}}}))
        status = await world.wait_ready()
        assert status.slots_covered == SLOT_COUNT
        assert set(world.redis.readable_keys()) < set(WORDS)


@virtual_time
async def test_deleted_password_is_regenerated(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        await world.create_with_keys()
        secret = ObjectKey(KEY.namespace, "blue-auth")
        old_password = (await world.user.get(Secret, secret)).data["password"]
        await world.user.delete(Secret, secret)
        await world.wait_not_ready()
        await world.wait_ready()
        assert (await world.user.get(Secret, secret)).data["password"] != old_password
        assert world.redis.readable_keys() == WORDS


@virtual_time
async def test_existing_password_is_kept(apiserver: InMemoryApiServer) -> None:
    secret = ObjectKey(KEY.namespace, "blue-auth")
    async with redis_harness(apiserver) as world:
        data = FrozenDict({"password": b"mine"})
        await world.user.create(Secret(metadata=ObjectMeta(name=secret.name, namespace=secret.namespace), data=data))
        await world.create()
        assert "blue-auth belongs to another owner" in await world.wait_ready_reason("NameConflict")
        assert (await world.user.get(Secret, secret)).data == data
        await world.user.delete(Secret, secret)
        await world.wait_ready()
        # Without its labels, the Secret is not in the operator's cache.
        password = (await world.user.get(Secret, secret)).data["password"]
        without_labels = MergePatch({"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
        await world.user.patch(Secret, secret, without_labels)
        await asyncio.sleep(60)
        assert (await world.user.get(Secret, secret)).data["password"] == password
        assert (await world.status()).phase == "Ready"


@virtual_time
async def test_invalid_changes_are_rejected(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        rejected: tuple[tuple[dict[str, Any], str], ...] = (
            ({"replicas": 5}, "a cluster has three masters or more"),
            ({"config": {"requirepass": "x"}}, "the operator itself sets"),
            ({"config": {"cluster-announce-ip": "x"}}, "the operator itself sets"),
            ({"config": {"maxmemory": "1mb\nrequirepass x"}}, "a value is one line"),
            ({"config": {"Port": "1"}}, "names of Redis' parameters"),
        )
        for spec, message in rejected:
            with pytest.raises(Invalid, match=message):
                await world.create(**spec)
        await world.create()
        with pytest.raises(Invalid, match="an older series"):
            await world.patch_spec(version="7.4")


@virtual_time
async def test_the_password_is_nowhere_but_in_the_secret(apiserver: InMemoryApiServer) -> None:
    async with redis_harness(apiserver) as world:
        await world.create()
        await world.wait_ready()
        password = (await world.user.get(Secret, ObjectKey(KEY.namespace, "blue-auth"))).data["password"].decode()
        for kind in (ConfigMap, StatefulSet, Pod, RedisCluster):
            assert password not in str((await world.user.list(kind, namespace=KEY.namespace)).items)
