"""RedisCluster in the cluster of the kubeconfig, with real Redis: after ``make deploy IMG=…``.

The images are those of images.toml; ``REDIS_REPOSITORY=docker.io/library/redis`` takes those of Docker Hub.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from steersman import Client, MergePatch, ObjectKey, ObjectMeta, connect, load_config
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import Namespace, PersistentVolumeClaim, Pod
from steersman.errors import NotFound, SteersmanError
from steersman.meta import FrozenDict

from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterStatus
from redis_world import Clusters

pytestmark = pytest.mark.e2e
OPERATOR = ObjectKey("redis-operator-system", "redis-operator")
REPOSITORY = os.environ.get("REDIS_REPOSITORY", "steersman.dev/redis")
CLI = 'REDISCLI_AUTH="$(cat /etc/redis/auth/password)" exec redis-cli -c'
KEYS = {f"word-{number}": f"value-{number}" for number in range(2000)}
SECONDS = 300.0


@asynccontextmanager
async def a_namespace(client: Client) -> AsyncGenerator[str]:
    """Of the test's own, under the restricted Pod Security Standard."""
    name = f"e2e-redis-{uuid.uuid4().hex[:8]}"
    labels = FrozenDict({"pod-security.kubernetes.io/enforce": "restricted"})
    await client.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    try:
        yield name
    finally:
        await client.delete(Namespace, ObjectKey("", name))


async def redis(pod: ObjectKey, commands: list[str]) -> list[str]:
    """What redis-cli in a pod answers, following redirections."""
    words = ("kubectl", "exec", "-i", "-n", pod.namespace, pod.name, "--", "sh", "-c", CLI)
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    said, wrong = await process.communicate("\n".join(commands).encode())
    assert process.returncode == 0, wrong.decode()
    return [line for line in said.decode().splitlines() if line and not line.startswith("->")]


async def kept(pod: ObjectKey) -> dict[str, str]:
    return dict(zip(KEYS, await redis(pod, [f"get {key}" for key in KEYS]), strict=True))


def roles(status: RedisClusterStatus) -> Counter[str]:
    return Counter(node.role for node in status.nodes)


async def test_it_lives() -> None:
    try:
        config = load_config()
    except SteersmanError as error:
        pytest.skip(f"no cluster: {error}")
    async with connect(config) as transport:
        client = Client(transport)
        try:
            await client.get(Deployment, OPERATOR)
        except NotFound:
            pytest.skip("the operator is not deployed: make deploy IMG=…")
        async with a_namespace(client) as namespace:
            await live(Clusters(client, ObjectKey(namespace, "blue")))


async def live(clusters: Clusters) -> None:
    client, namespace = clusters.user, clusters.key.namespace
    first, last = ObjectKey(namespace, "blue-0"), ObjectKey(namespace, "blue-5")
    await clusters.create("7.0", repository=REPOSITORY, config={"maxmemory": "64mb"})
    status = await clusters.ready(SECONDS)
    assert roles(status) == {"master": 3, "replica": 3}
    places = {node.pod: node.node_name for node in status.nodes}
    assert all(node.master is None or places[node.master] != places[node.pod] for node in status.nodes)
    assert set(await redis(first, [f"set {key} {value}" for key, value in KEYS.items()])) == {"OK"}

    await client.delete(Pod, first)
    await clusters.busy()
    await clusters.ready(SECONDS)
    assert await kept(last) == KEYS

    await client.scale(RedisCluster, clusters.key, 8)
    assert roles(await clusters.ready(SECONDS)) == {"master": 4, "replica": 4}
    assert await kept(last) == KEYS

    await client.scale(RedisCluster, clusters.key, 6)
    assert roles(await clusters.ready(SECONDS)) == {"master": 3, "replica": 3}
    assert await kept(last) == KEYS
    assert len((await client.list(PersistentVolumeClaim, namespace=namespace)).items) <= 8

    await client.patch(RedisCluster, clusters.key, MergePatch({"spec": {"version": "8.0"}}))
    status = await clusters.ready(SECONDS)
    assert (status.version, roles(status)) == ("8.0", {"master": 3, "replica": 3})
    assert {line for line in await redis(last, ["info server"]) if line.startswith("redis_version:8.0")}
    assert await kept(first) == KEYS

    # All at once: every node comes back with another address, and its keys.
    await client.delete_collection(Pod, namespace=namespace)
    await clusters.busy()
    await clusters.ready(SECONDS)
    assert await kept(last) == KEYS
