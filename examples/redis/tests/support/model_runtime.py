"""Runtime for the kubelet that starts models of servers."""

from __future__ import annotations

import itertools

from steersman.api.core_v1 import Pod

from redis_model import ModelRedis
from redis_operator.nodes import Address


class ModelRuntime:
    """Gives each started server another IP, like a cluster."""

    def __init__(self, redis: ModelRedis) -> None:
        self.redis = redis
        self._numbers = itertools.count(1)
        self._volumes: dict[str, str] = {}

    async def start(self, pod: Pod, volume: str, configuration: str, password: str) -> str | None:
        """Start a model. ``maxmemory nonsense`` crashes it, like Redis."""
        if "maxmemory nonsense" in configuration:
            return None
        ip = f"10.0.{(number := next(self._numbers)) // 250}.{number % 250 + 1}"
        self.redis.start(volume, Address(ip), password)
        self._volumes[pod.metadata.uid] = volume
        return ip

    async def stop(self, pod: str) -> None:
        if volume := self._volumes.pop(pod, None):
            self.redis.stop(volume)

    async def delete_volume(self, volume: str) -> None:
        self.redis.delete_volume(volume)
