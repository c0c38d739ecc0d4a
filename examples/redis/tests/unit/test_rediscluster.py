"""RedisCluster on an API server in memory, with nodes that are models, in virtual time."""

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

from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterStatus
from redis_operator.nodes import SLOTS
from redis_world import KEY, WORDS, redis_world


def roles(status: RedisClusterStatus) -> Counter[str]:
    return Counter(node.role for node in status.nodes)


@virtual_time
async def test_it_forms(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        await world.create()
        status = await world.ready()
        assert is_true(status.conditions, "Ready")
        assert is_true(status.conditions, "Available")
        assert (status.slots_covered, status.replicas, status.ready_replicas) == (SLOTS, 6, 6)
        assert roles(status) == {"master": 3, "replica": 3}
        places = {node.pod: node.node_name for node in status.nodes}
        for node in status.nodes:
            assert node.slots in (0, SLOTS // 3, SLOTS // 3 + 1)
            assert node.master is None or places[node.pod] != places[node.master], "one machine has both copies"


@virtual_time
async def test_it_grows_and_shrinks_without_losing_a_key(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        await world.created()
        for replicas, masters in ((10, 5), (7, 3), (6, 3)):
            await world.user.scale(RedisCluster, KEY, replicas)
            status = await world.ready()
            assert roles(status) == {"master": masters, "replica": replicas - masters}
            assert len(await world.pods()) == replicas
            assert world.redis.served() == WORDS
        claims = (await world.user.list(PersistentVolumeClaim, namespace=KEY.namespace)).items
        assert len(claims) == 6
        await world.patch(replicasPerMaster=0)
        assert roles(await world.ready()) == {"master": 6}
        assert world.redis.served() == WORDS


@virtual_time
async def test_a_new_version_comes_pod_by_pod(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        await world.created()
        before = {name: pod.metadata.uid for name, pod in (await world.pods()).items()}
        await world.patch(version="8.2")
        status = await world.ready()
        assert status.version == "8.2"
        after = await world.pods()
        assert all(before[name] != pod.metadata.uid for name, pod in after.items())
        assert {c.image for pod in after.values() for c in pod.spec.containers} == {"docker.io/library/redis:8.2"}
        assert world.redis.served() == WORDS


@virtual_time
async def test_another_configuration_restarts_it_and_a_bad_one_can_be_taken_back(
    apiserver: InMemoryApiServer,
) -> None:
    async with redis_world(apiserver) as world:
        await world.created(config={"maxmemory-policy": "allkeys-lru"})
        await world.patch(config={"maxmemory": "nonsense"})
        message = await world.reason("NodesMissing")
        assert world.redis.covered() == SLOTS, "only one replica is away"
        assert message == "waiting for Redis in blue-5"
        await world.patch(config={"maxmemory": None})
        await world.ready()
        assert world.redis.served() == WORDS
        (left,) = (await world.user.list(ConfigMap, namespace=KEY.namespace)).items
        assert "maxmemory-policy allkeys-lru\n" in left.data["redis.conf"]


@virtual_time
async def test_pods_come_back_with_other_addresses(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        await world.created()
        await world.user.delete(Pod, ObjectKey(KEY.namespace, "blue-0"))
        await world.busy()
        await world.ready()
        assert world.redis.served() == WORDS
        await world.user.delete_collection(Pod, namespace=KEY.namespace)
        await world.busy()
        await world.ready()
        assert world.redis.served() == WORDS


@virtual_time
async def test_a_lost_volume_is_filled_again(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        await world.created()
        claim = ObjectKey(KEY.namespace, "data-blue-0")
        volume = (await world.user.get(PersistentVolumeClaim, claim)).metadata.uid
        world.redis.lose(volume)
        await world.user.delete(Pod, ObjectKey(KEY.namespace, "blue-0"))
        await world.busy()
        status = await world.ready()
        assert roles(status) == {"master": 3, "replica": 3}
        assert world.redis.served() == WORDS


@virtual_time
async def test_slots_that_are_lost_are_given_up_only_when_the_user_says_so(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        await world.created(replicas=3, replicas_per_master=0)
        claim = ObjectKey(KEY.namespace, "data-blue-0")
        world.redis.lose((await world.user.get(PersistentVolumeClaim, claim)).metadata.uid)
        await world.user.delete(Pod, ObjectKey(KEY.namespace, "blue-0"))
        message = await world.reason("SlotsLost")
        assert not is_true((await world.status()).conditions, "Available")
        name, _, node = message.rpartition(" ")[2].partition("=")
        await world.user.patch(RedisCluster, KEY, MergePatch({"metadata": {"annotations": {name: node}}}))
        status = await world.ready()
        assert status.slots_covered == SLOTS
        assert set(world.redis.served()) < set(WORDS)


@virtual_time
async def test_a_lost_password_is_made_anew(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        await world.created()
        secret = ObjectKey(KEY.namespace, "blue-auth")
        former = (await world.user.get(Secret, secret)).data["password"]
        await world.user.delete(Secret, secret)
        await world.busy()
        await world.ready()
        assert (await world.user.get(Secret, secret)).data["password"] != former
        assert world.redis.served() == WORDS


@virtual_time
async def test_a_password_is_never_overwritten(apiserver: InMemoryApiServer) -> None:
    secret = ObjectKey(KEY.namespace, "blue-auth")
    async with redis_world(apiserver) as world:
        data = FrozenDict({"password": b"mine"})
        await world.user.create(Secret(metadata=ObjectMeta(name=secret.name, namespace=secret.namespace), data=data))
        await world.create()
        assert "blue-auth is somebody else's" in await world.reason("NameTaken")
        assert (await world.user.get(Secret, secret)).data == data
        await world.user.delete(Secret, secret)
        await world.ready()
        # Without its labels the operator's cache does not have it.
        password = (await world.user.get(Secret, secret)).data["password"]
        bare = MergePatch({"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
        await world.user.patch(Secret, secret, bare)
        await asyncio.sleep(60)
        assert (await world.user.get(Secret, secret)).data["password"] == password
        assert (await world.status()).phase == "Ready"


@virtual_time
async def test_what_is_refused(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        refused: tuple[tuple[dict[str, Any], str], ...] = (
            ({"replicas": 5}, "a cluster has three masters or more"),
            ({"config": {"requirepass": "x"}}, "the operator itself sets"),
            ({"config": {"cluster-announce-ip": "x"}}, "the operator itself sets"),
            ({"config": {"maxmemory": "1mb\nrequirepass x"}}, "a value is one line"),
            ({"config": {"Port": "1"}}, "names of Redis' parameters"),
        )
        for spec, words in refused:
            with pytest.raises(Invalid, match=words):
                await world.create(**spec)
        await world.create()
        with pytest.raises(Invalid, match="an older series"):
            await world.patch(version="7.4")


@virtual_time
async def test_the_password_is_nowhere_but_in_the_secret(apiserver: InMemoryApiServer) -> None:
    async with redis_world(apiserver) as world:
        await world.create()
        await world.ready()
        password = (await world.user.get(Secret, ObjectKey(KEY.namespace, "blue-auth"))).data["password"].decode()
        for kind in (ConfigMap, StatefulSet, Pod, RedisCluster):
            assert password not in str((await world.user.list(kind, namespace=KEY.namespace)).items)
