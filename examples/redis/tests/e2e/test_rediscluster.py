"""RedisCluster with real Redis in the cluster of the kubeconfig.

Run ``make deploy IMG=…`` first. The images are those of images.toml. To use those of Docker Hub, set
``REDIS_REPOSITORY=docker.io/library/redis``.
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

from redis_harness import RedisClusterDriver
from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterStatus

pytestmark = pytest.mark.e2e
OPERATOR = ObjectKey("redis-operator-system", "redis-operator")
REPOSITORY = os.environ.get("REDIS_REPOSITORY", "steersman.dev/redis")
CLI = 'REDISCLI_AUTH="$(cat /etc/redis/auth/password)" exec redis-cli -c'
KEYS = {f"word-{number}": f"value-{number}" for number in range(2000)}
READY_TIMEOUT_SECONDS = 300.0


@asynccontextmanager
async def temporary_namespace(client: Client) -> AsyncGenerator[str]:
    """Create a namespace under the restricted Pod Security Standard."""
    name = f"e2e-redis-{uuid.uuid4().hex[:8]}"
    labels = FrozenDict({"pod-security.kubernetes.io/enforce": "restricted"})
    await client.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    try:
        yield name
    finally:
        await client.delete(Namespace, ObjectKey("", name))


async def redis_cli(pod: ObjectKey, commands: list[str]) -> list[str]:
    """Run redis-cli in a pod, following redirections, and return its output."""
    command = ("kubectl", "exec", "-i", "-n", pod.namespace, pod.name, "--", "sh", "-c", CLI)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    stdout, stderr = await process.communicate("\n".join(commands).encode())
    assert process.returncode == 0, stderr.decode()
    return [line for line in stdout.decode().splitlines() if line and not line.startswith("->")]


async def read_all_keys(pod: ObjectKey) -> dict[str, str]:
    return dict(zip(KEYS, await redis_cli(pod, [f"get {key}" for key in KEYS]), strict=True))


def count_roles(status: RedisClusterStatus) -> Counter[str]:
    return Counter(node.role for node in status.nodes)


@pytest.mark.requirement("programming/redis-cluster")
async def test_cluster_lifecycle_succeeds() -> None:
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
        async with temporary_namespace(client) as namespace:
            await run_lifecycle(RedisClusterDriver(client, ObjectKey(namespace, "blue")))


async def run_lifecycle(clusters: RedisClusterDriver) -> None:
    client, namespace = clusters.user, clusters.key.namespace
    first, last = ObjectKey(namespace, "blue-0"), ObjectKey(namespace, "blue-5")
    await clusters.create("7.0", repository=REPOSITORY, config={"maxmemory": "64mb"})
    status = await clusters.wait_ready(READY_TIMEOUT_SECONDS)
    assert count_roles(status) == {"master": 3, "replica": 3}
    node_names = {node.pod: node.node_name for node in status.nodes}
    assert all(node.master is None or node_names[node.master] != node_names[node.pod] for node in status.nodes)
    assert set(await redis_cli(first, [f"set {key} {value}" for key, value in KEYS.items()])) == {"OK"}

    await client.delete(Pod, first)
    await clusters.wait_not_ready()
    await clusters.wait_ready(READY_TIMEOUT_SECONDS)
    assert await read_all_keys(last) == KEYS

    await client.scale(RedisCluster, clusters.key, 8)
    assert count_roles(await clusters.wait_ready(READY_TIMEOUT_SECONDS)) == {"master": 4, "replica": 4}
    assert await read_all_keys(last) == KEYS

    await client.scale(RedisCluster, clusters.key, 6)
    assert count_roles(await clusters.wait_ready(READY_TIMEOUT_SECONDS)) == {"master": 3, "replica": 3}
    assert await read_all_keys(last) == KEYS
    assert len((await client.list(PersistentVolumeClaim, namespace=namespace)).items) <= 8

    await client.patch(RedisCluster, clusters.key, MergePatch({"spec": {"version": "8.0"}}))
    status = await clusters.wait_ready(READY_TIMEOUT_SECONDS)
    assert (status.version, count_roles(status)) == ("8.0", {"master": 3, "replica": 3})
    assert {line for line in await redis_cli(last, ["info server"]) if line.startswith("redis_version:8.0")}
    assert await read_all_keys(first) == KEYS

    # Recreate all pods at once: each node gets another address and keeps its keys.
    await client.delete_collection(Pod, namespace=namespace)
    await clusters.wait_not_ready()
    await clusters.wait_ready(READY_TIMEOUT_SECONDS)
    assert await read_all_keys(last) == KEYS
