"""Harness for the operator, in memory or on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from steersman import Client, FrozenDict, Manager, ManagerOptions, MergePatch, ObjectKey, ObjectMeta, find_condition
from steersman.api.core_v1 import Pod
from steersman_testing import InMemoryApiServer

from fake_kubelet import FakeKubelet
from model_runtime import ModelRuntime
from redis_model import ModelRedis
from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterSpec, RedisClusterStatus
from redis_operator.controllers.rediscluster import RedisClusterReconciler

WORDS = {f"key-{number}": str(number) for number in range(60)}


class RedisClusterDriver:
    """Changes and observes one RedisCluster like a user."""

    def __init__(self, user: Client, key: ObjectKey, poll_interval: float = 1.0) -> None:
        self.user = user
        self.key = key
        self._poll_interval = poll_interval

    async def create(self, version: str = "8.0", **spec: Any) -> None:
        metadata = ObjectMeta(name=self.key.name, namespace=self.key.namespace)
        config = FrozenDict(spec.pop("config", {}))
        cluster_spec = RedisClusterSpec(version=version, config=config, **spec)
        await self.user.create(RedisCluster(metadata=metadata, spec=cluster_spec))

    async def patch_spec(self, **spec: Any) -> None:
        await self.user.patch(RedisCluster, self.key, MergePatch({"spec": spec}))

    async def status(self) -> RedisClusterStatus:
        return (await self.user.get(RedisCluster, self.key)).status

    async def wait_ready(self, seconds: float = 600) -> RedisClusterStatus:
        """Wait until the operator reports the desired state."""
        await self.wait_until(lambda status, current: current and status.phase == "Ready", seconds)
        return await self.status()

    async def wait_not_ready(self) -> None:
        """Wait until ``Ready`` is not True."""
        await self.wait_until(lambda status, _: status.phase != "Ready")

    async def wait_ready_reason(self, reason: str) -> str:
        """Wait until ``Ready`` has the given reason, and return its message."""

        def has_reason(status: RedisClusterStatus, _: bool) -> bool:
            ready = find_condition(status.conditions, "Ready")
            return ready is not None and ready.reason == reason

        await self.wait_until(has_reason)
        ready = find_condition((await self.status()).conditions, "Ready")
        assert ready is not None
        return ready.message

    async def wait_until(self, predicate: Callable[[RedisClusterStatus, bool], bool], seconds: float = 600) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = await self.user.get(RedisCluster, self.key)
            status = found.status
            if predicate(status, status.observed_generation == found.metadata.generation):
                return
            assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {status}"
            await asyncio.sleep(self._poll_interval)

    async def pods(self) -> dict[str, Pod]:
        listed = await self.user.list(Pod, namespace=self.key.namespace)
        return {pod.metadata.name: pod for pod in listed.items}


KEY = ObjectKey("default", "blue")


class RedisHarness(RedisClusterDriver):
    """Harness with models as nodes."""

    def __init__(self, server: InMemoryApiServer) -> None:
        super().__init__(Client(server, field_manager="user"), KEY)
        self.server = server
        self.redis = ModelRedis()
        self.pod_runtime = ModelRuntime(self.redis)

    async def create_with_keys(self, **spec: Any) -> None:
        """Create a cluster and write keys."""
        await self.create(**spec)
        await self.wait_ready()
        for key, value in WORDS.items():
            self.redis.write(key, value)

    async def read(self, kind: type[Any]) -> Sequence[Any]:
        return self.server.read_all(kind)


@asynccontextmanager
async def redis_harness(server: InMemoryApiServer) -> AsyncGenerator[RedisHarness]:
    """Run the operator and a kubelet on an in-memory server."""
    harness = RedisHarness(server)
    manager = Manager(server, ManagerOptions(), runtime=server.runtime)
    RedisClusterReconciler.setup_with_manager(manager, harness.redis)
    kubelet = FakeKubelet(harness.user, harness.read, harness.pod_runtime)
    async with running_operator(manager, kubelet.reconcile_pods, 1.0):
        yield harness


@asynccontextmanager
async def running_operator(
    manager: Manager, reconcile_pods: Callable[[], Awaitable[None]], poll_interval: float
) -> AsyncGenerator[None]:
    """Run the operator, and a kubelet that reconciles at a fixed interval."""

    async def reconcile_loop() -> None:
        while True:
            await reconcile_pods()
            await asyncio.sleep(poll_interval)

    manager_task = asyncio.create_task(manager.run())
    kubelet_task = asyncio.create_task(reconcile_loop())
    try:
        yield
    finally:
        manager.stop()
        await manager_task
        kubelet_task.cancel()
        with suppress(asyncio.CancelledError):
            await kubelet_task
