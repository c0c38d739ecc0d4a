"""API server with the ``Work`` CRD, pinned away from the operator's core."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.machine import Cores, pin
from benchmarks.measurement import cpu_seconds
from benchmarks.peers import OperatorSettings, Peer, Toolchain
from benchmarks.process import OperatorProcess, run_operator
from benchmarks.work import Work
from steersman.api.apply import apiextensions, core, meta
from steersman.client import Client, connect
from steersman.errors import NotFound
from steersman.meta import decode_builtins
from steersman_manifests.crd import definition
from steersman_testing.envtest import Envtest

NAMESPACE = "benchmark"
EMPTY_NAMESPACE = "empty"


@dataclass(frozen=True, slots=True)
class BenchmarkConfig:
    """Settings that all scenarios share.

    Attributes:
        built: program or interpreter per toolchain.
        cores: assignment of cores to processes.
        objects: number of objects in scenarios without a fixed number.
        pods: number of cached pods.
        seconds: measurement time of scenarios without a fixed one.
    """

    built: Mapping[Toolchain, Path]
    cores: Cores
    objects: int = 2000
    pods: int = 50_000
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class BenchmarkApiServer:
    """A running API server with an administrator's client."""

    config: BenchmarkConfig
    environment: Envtest
    client: Client
    audit_log: Path

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig."""
        return self.environment.kubeconfig

    @property
    def cpu(self) -> float:
        """CPU time of the API server and etcd in seconds."""
        return sum(cpu_seconds(pid) for pid in self.environment.control_plane.pids)

    @contextmanager
    def all_cores(self) -> Generator[None]:
        """Let the API server and etcd use all cores. Requires a stopped operator."""
        cores = self.config.cores
        pin(self.environment.control_plane.pids, cores.others | {cores.operator})
        try:
            yield
        finally:
            pin(self.environment.control_plane.pids, cores.others)

    @asynccontextmanager
    async def operator(self, peer: Peer, settings: OperatorSettings) -> AsyncGenerator[OperatorProcess]:
        """Run the peer's operator during the block."""
        settings = replace(settings, metrics_port=_free_port())
        command = peer.command(self.config.built, settings)
        async with run_operator(command, settings.environment(), self.config.cores.operator) as process:
            yield process


@asynccontextmanager
async def api_server(
    config: BenchmarkConfig, arguments: Mapping[str, str] | None = None
) -> AsyncGenerator[BenchmarkApiServer]:
    """Run a new API server with the CRD and the two namespaces.

    Args:
        arguments: additional kube-apiserver arguments.
    """
    # The API server and etcd inherit the affinity.
    os.sched_setaffinity(0, config.cores.others)
    with await asyncio.to_thread(Envtest.start, arguments=arguments) as environment:
        async with connect(environment.config) as transport:
            client = Client(transport, field_manager="benchmark-harness")
            await _install(client)
            yield BenchmarkApiServer(
                config, environment, client, Path((arguments or {}).get("audit-log-path", os.devnull))
            )


async def _install(client: Client) -> None:
    """Install the ``Work`` CRD and wait until it is served."""
    for name in (NAMESPACE, EMPTY_NAMESPACE):
        await client.apply(core.Namespace(metadata=meta.ObjectMeta(name=name)))
    await client.apply(decode_builtins(definition(Work), apiextensions.CustomResourceDefinition))
    async with asyncio.timeout(30):
        while True:
            try:
                await client.list(Work)
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
