"""Runtime for the kubelet that starts redis-server processes with separate IPs."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path

from steersman.api.core_v1 import Pod

from redis_operator.nodes import Address, LoginRejected, RedisError, Unreachable
from redis_operator.nodes.client import RedisPyClient

_START_TIMEOUT_SECONDS = 20.0
_STOP_TIMEOUT_SECONDS = 30.0


class RedisProcesses:
    """Gives each started server another IP, like a cluster.

    Args:
        directory: the parent of the data directories, one per volume.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Parallel tests use separate parts of the loopback network.
        self._net = f"127.{os.getpid() % 250 + 2}"
        self._numbers = itertools.count(1)
        self._running: dict[str, Process] = {}

    async def start(self, pod: Pod, volume: str, configuration: str, password: str) -> str | None:
        ip = self.ip(next(self._numbers))
        started = await self.run(pod.metadata.uid, volume, ip, configuration, password)
        return ip if started else None

    def ip(self, number: int) -> str:
        return f"{self._net}.{number // 250}.{number % 250 + 1}"

    async def run(self, name: str, volume: str, ip: str, configuration: str, password: str) -> bool:
        """Start a server. Return True if it responds, and False if it exits."""
        data = self._directory / volume
        data.mkdir(exist_ok=True)
        auth = data / "auth.conf"
        auth.write_text(f"requirepass {password}\nmasterauth {password}\n")
        # A process needs explicit options for the settings that a container has by default.
        conf = configuration.replace("/etc/redis/auth/auth.conf", str(auth)).replace("/data", str(data))
        (data / "redis.conf").write_text(conf.replace("bind * -::*", f"bind {ip}") + 'save ""\n')
        command = ("redis-server", str(data / "redis.conf"), "--cluster-announce-ip", ip)
        process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
        self._running[name] = process
        return await self._wait_responsive(process, Address(ip), password)

    async def _wait_responsive(self, process: Process, address: Address, password: str) -> bool:
        async with asyncio.timeout(_START_TIMEOUT_SECONDS):
            while process.returncode is None:
                try:
                    await RedisPyClient().execute(address, password, ("PING",))
                    return True
                except (Unreachable, RedisError, LoginRejected):
                    await asyncio.sleep(0.02)
        return False

    async def stop(self, pod: str) -> None:
        """Terminate the server like a kubelet.

        A server that is killed on a busy disk loses writes that it has not passed to the kernel.
        """
        process = self._running.pop(pod, None)
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_SECONDS):
                await process.wait()
        except TimeoutError:
            await _kill(process)

    async def delete_volume(self, volume: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self._directory / volume, ignore_errors=True)

    async def stop_all(self) -> None:
        """Kill all servers without waiting for their writes."""
        for process in self._running.values():
            await _kill(process)
        self._running.clear()


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()
