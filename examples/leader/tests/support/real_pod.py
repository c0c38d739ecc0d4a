"""Pods as processes of this machine, which the test restarts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steersman import ObjectKey
from steersman_testing.envtest.environment import AuthenticatedUser

from partition_proxy import PartitionProxy

SUPPORT = Path(__file__).parent
RENEW_DEADLINE_SECONDS = 3
RETRY_PERIOD_SECONDS = 0.5
KILL_MARGIN_SECONDS = 3
_RESTART_SECONDS = 0.2


@dataclass
class RealPod:
    """One pod.

    Attributes:
        proxy: its connection to the API server.
        containers: directory with a file for each session of the application.
        sessions: sessions of the application that were started.
    """

    name: str
    service: ObjectKey
    proxy: PartitionProxy
    kubeconfig: Path
    containers: Path
    store_port: int
    port: int
    sidecar: Process | None = None
    sessions: list[int] = field(default_factory=list[int])
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def start(self) -> None:
        """Run both containers, and restart each that ends."""
        self._tasks = [asyncio.create_task(self._run_sidecar()), asyncio.create_task(self._run_application())]

    async def end(self) -> None:
        """Kill all processes for ever."""
        for task in self._tasks:
            task.cancel()
        self.signal(signal.SIGKILL, self.pids())
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def pids(self) -> list[int]:
        """Processes of the sidecar and the application."""
        return [*self.sidecar_pids(), *self.application_pids()]

    def sidecar_pids(self) -> list[int]:
        return [self.sidecar.pid] if self.sidecar is not None and self.sidecar.returncode is None else []

    def application_pids(self) -> list[int]:
        return [pid for pid, session, state in running_processes() if session in self.sessions and state != "Z"]

    def signal(self, number: signal.Signals, pids: Iterable[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def report(self) -> dict[str, Any]:
        """``GET /leader``; empty if the sidecar does not respond."""
        return await asyncio.to_thread(self._get)

    def _get(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/leader", timeout=1) as response:
                return json.load(response)
        except OSError:
            return {}

    async def _run_sidecar(self) -> None:
        environment = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "LEADER_SERVICE": self.service.name,
            "POD_NAMESPACE": self.service.namespace,
            "POD_NAME": self.name,
            "POD_UID": f"uid-{self.name}",
            "LEADER_PORT": str(self.port),
            "LEADER_RENEW_DEADLINE_SECONDS": str(RENEW_DEADLINE_SECONDS),
            "LEADER_RETRY_PERIOD_SECONDS": str(RETRY_PERIOD_SECONDS),
            "PYTHONPATH": os.pathsep.join((str(SUPPORT.parents[1] / "src"), str(SUPPORT))),
        }
        arguments = (str(SUPPORT / "sidecar_process.py"), str(self.containers), str(KILL_MARGIN_SECONDS))
        with (self.containers.parent / f"{self.name}.log").open("ab") as log:
            while True:
                self.sidecar = await asyncio.create_subprocess_exec(
                    sys.executable, *arguments, env=environment, stdout=log, stderr=log
                )
                await self.sidecar.wait()

    async def _run_application(self) -> None:
        arguments = (self.name, str(self.port), "127.0.0.1", str(self.store_port))
        while True:
            # Kubernetes starts it after the sidecar.
            while not await self.report():
                await asyncio.sleep(_RESTART_SECONDS)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-S", str(SUPPORT / "application.py"), *arguments,
                stdout=DEVNULL, stderr=DEVNULL, start_new_session=True,
            )  # fmt: skip
            self.sessions.append(process.pid)
            (self.containers / str(process.pid)).touch()
            await process.wait()
            # The kubelet starts no container before the last process of the previous one has ended.
            while self.application_pids():
                self.signal(signal.SIGKILL, self.application_pids())
                await asyncio.sleep(0.02)
            await asyncio.sleep(_RESTART_SECONDS)


@asynccontextmanager
async def real_pods(
    user: AuthenticatedUser, service: ObjectKey, directory: Path, store_port: int, number: int = 3
) -> AsyncGenerator[list[RealPod]]:
    """Run pods, each with a proxy of its own."""
    api_server = int(user.config.server.rpartition(":")[2])
    async with AsyncExitStack() as stack:
        pods: list[RealPod] = []
        for index in range(number):
            proxy = await stack.enter_async_context(PartitionProxy(api_server).listening())
            kubeconfig = directory / f"orders-{index}.kubeconfig"
            kubeconfig.write_text(user.kubeconfig.read_text().replace(f":{api_server}", f":{proxy.port}"))
            containers = directory / f"orders-{index}"
            containers.mkdir()
            port = free_port()
            pod = RealPod(f"orders-{index}", service, proxy, kubeconfig, containers, store_port, port)
            stack.push_async_callback(pod.end)
            pod.start()
            pods.append(pod)
        yield pods


def free_port() -> int:
    """Return a free port of localhost."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def running_processes() -> list[tuple[int, int, str]]:
    """Return PID, session and state of all processes."""
    found: list[tuple[int, int, str]] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                found.append((int(entry.name), int(session), state))
    return found
