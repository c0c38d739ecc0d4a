"""RedisCluster on the real API server, with a Redis process per pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from redis.asyncio import RedisCluster as RedisClient
from redis.asyncio.cluster import ClusterNode
from steersman import Manager, ManagerOptions, ObjectKey, connect
from steersman.api.core_v1 import Pod, Secret
from steersman_testing.envtest import Envtest

from fake_kubelet import FakeKubelet
from redis_harness import WORDS, RedisClusterDriver, running_operator
from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.main import setup
from redis_processes import RedisProcesses

ROLE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "config/rbac/role.yaml").read_text())


@asynccontextmanager
async def operator_with_redis(
    envtest: Envtest, namespace: str, directory: Path
) -> AsyncGenerator[RedisClusterDriver]:
    """Run the operator with its role, and a kubelet with all permissions."""
    operator = envtest.user("redis-operator", roles=[ROLE])
    processes = RedisProcesses(directory)
    async with connect(operator.config) as transport, envtest.client() as user:

        async def read(kind: type[Any]) -> Sequence[Any]:
            return (await user.list(kind, namespace=namespace)).items

        manager = Manager(transport, ManagerOptions(namespaces=(namespace,)))
        setup(manager)
        try:
            async with running_operator(manager, FakeKubelet(user, read, processes).reconcile_pods, 0.2):
                yield RedisClusterDriver(user, ObjectKey(namespace, "blue"), 0.2)
        finally:
            await processes.stop_all()


@asynccontextmanager
async def redis_client(clusters: RedisClusterDriver) -> AsyncGenerator[RedisClient]:
    """Connect a cluster-aware client, which discovers the other nodes."""
    secret = await clusters.user.get(Secret, ObjectKey(clusters.key.namespace, "blue-auth"))
    nodes = [ClusterNode(pod.status.pod_ip or "", 6379) for pod in (await clusters.pods()).values()]
    client = RedisClient(startup_nodes=nodes, password=secret.data["password"].decode(), decode_responses=True)
    try:
        yield client
    finally:
        await client.aclose()


async def read_all_words(clusters: RedisClusterDriver) -> dict[str, str]:
    async with redis_client(clusters) as client:
        return {key: str(await client.get(key)) for key in WORDS}


async def test_cluster_lifecycle_succeeds(envtest: Envtest, envtest_namespace: str, tmp_path: Path) -> None:
    async with operator_with_redis(envtest, envtest_namespace, tmp_path) as clusters:
        await clusters.create("7.0", replicas=3, replicas_per_master=0, config={"cluster-node-timeout": "1000"})
        await clusters.wait_ready(60)
        async with redis_client(clusters) as client:
            for key, value in WORDS.items():
                await client.set(key, value)
        await clusters.user.delete(Pod, ObjectKey(envtest_namespace, "blue-0"))
        await clusters.wait_not_ready()
        await clusters.wait_ready(60)
        await clusters.user.scale(RedisCluster, clusters.key, 4)
        status = await clusters.wait_ready(60)
        assert Counter(node.role for node in status.nodes) == {"master": 4}
        assert await read_all_words(clusters) == WORDS
        await clusters.user.scale(RedisCluster, clusters.key, 3)
        await clusters.wait_ready(60)
        assert await read_all_words(clusters) == WORDS
