"""An operator with a cluster around it: in memory and in virtual time, or the real API server and real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from steersman import Client, FrozenDict, Manager, ManagerOptions, MergePatch, ObjectKey, ObjectMeta, find_condition
from steersman.api.core_v1 import Pod
from steersman_testing import InMemoryApiServer

from model_machines import ModelMachines
from redis_model import ModelRedis
from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterSpec, RedisClusterStatus
from redis_operator.main import setup
from stateful_pods import Kubelet

WORDS = {f"key-{number}": str(number) for number in range(60)}


class Clusters:
    """What users do with one RedisCluster, and see of it."""

    def __init__(self, user: Client, key: ObjectKey, look_every: float = 1.0) -> None:
        self.user = user
        self.key = key
        self._look_every = look_every

    async def create(self, version: str = "8.0", **spec: Any) -> None:
        metadata = ObjectMeta(name=self.key.name, namespace=self.key.namespace)
        config = FrozenDict(spec.pop("config", {}))
        wanted = RedisClusterSpec(version=version, config=config, **spec)
        await self.user.create(RedisCluster(metadata=metadata, spec=wanted))

    async def patch(self, **spec: Any) -> None:
        await self.user.patch(RedisCluster, self.key, MergePatch({"spec": spec}))

    async def status(self) -> RedisClusterStatus:
        return (await self.user.get(RedisCluster, self.key)).status or RedisClusterStatus()

    async def ready(self, seconds: float = 600) -> RedisClusterStatus:
        """Waits until the operator says that all is as declared."""
        await self.until(lambda status, current: current and status.phase == "Ready", seconds)
        return await self.status()

    async def busy(self) -> None:
        """Waits until the operator says that it is not."""
        await self.until(lambda status, _: status.phase != "Ready")

    async def reason(self, reason: str) -> str:
        """Waits until ``Ready`` has that reason; its message."""

        def told(status: RedisClusterStatus, _: bool) -> bool:
            ready = find_condition(status.conditions, "Ready")
            return ready is not None and ready.reason == reason

        await self.until(told)
        ready = find_condition((await self.status()).conditions, "Ready")
        assert ready is not None
        return ready.message

    async def until(self, wanted: Callable[[RedisClusterStatus, bool], bool], seconds: float = 600) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = await self.user.get(RedisCluster, self.key)
            status = found.status or RedisClusterStatus()
            if wanted(status, status.observed_generation == found.metadata.generation):
                return
            assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {status}"
            await asyncio.sleep(self._look_every)

    async def pods(self) -> dict[str, Pod]:
        listed = await self.user.list(Pod, namespace=self.key.namespace)
        return {pod.metadata.name: pod for pod in listed.items}


KEY = ObjectKey("default", "blue")


class RedisWorld(Clusters):
    """With nodes that are models."""

    def __init__(self, server: InMemoryApiServer) -> None:
        super().__init__(Client(server, field_manager="user"), KEY)
        self.server = server
        self.redis = ModelRedis()
        self.machines = ModelMachines(self.redis)

    async def created(self, **spec: Any) -> None:
        """A cluster with keys in it."""
        await self.create(**spec)
        await self.ready()
        for key, value in WORDS.items():
            self.redis.write(key, value)

    async def read(self, kind: type[Any]) -> Sequence[Any]:
        return self.server.read_all(kind)


@asynccontextmanager
async def redis_world(server: InMemoryApiServer) -> AsyncGenerator[RedisWorld]:
    """The operator runs, and a kubelet."""
    world = RedisWorld(server)
    manager = Manager(server, ManagerOptions(), runtime=server.runtime)
    setup(manager, world.redis)
    kubelet = Kubelet(world.user, world.read, world.machines)
    async with running(manager, kubelet.look, 1.0):
        yield world


@asynccontextmanager
async def running(manager: Manager, look: Callable[[], Awaitable[None]], every: float) -> AsyncGenerator[None]:
    """The operator runs, and a kubelet looks every so many seconds."""

    async def keep_looking() -> None:
        while True:
            await look()
            await asyncio.sleep(every)

    working = asyncio.create_task(manager.run())
    looking = asyncio.create_task(keep_looking())
    try:
        yield
    finally:
        manager.stop()
        await working
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
