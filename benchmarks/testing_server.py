"""``python -m benchmarks.testing_server``: measure the in-memory API server.

The benchmark has no peers. In memory, one client sends requests sequentially. Over HTTP, the server is a separate
process and receives 32 concurrent requests.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from benchmarks import machine, report
from benchmarks.load import run_in_parallel
from benchmarks.measurement import Measurement
from benchmarks.summary import summarise
from benchmarks.targets import Target, TargetResult
from benchmarks.work import Work
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, HttpRequest, Transport, connect, load_config
from steersman.meta import FrozenDict, ObjectMeta
from steersman_manifests.crd import definition
from steersman_testing import InMemoryApiServer
from steersman_testing.serving import serve

START, CREATES = "start", "creates"
MEMORY, HTTP, COMMAND = "in memory", "HTTP", "steersman testing serve"
CONFIG_MAPS, WORKS, BY_CLIENT = "ConfigMaps", "Work, a custom kind", "ConfigMaps, by a typed client"
TARGETS = (
    Target(START, "ready after", 10.0),
    Target(CREATES, CONFIG_MAPS, 5000.0, at_least=True),
    Target(CREATES, WORKS, 5000.0, at_least=True),
)
# Process starts and sockets are not the server's own cost, so their metrics have no targets.
_TARGETED_FIGURES = ((START, MEMORY), (START, HTTP), (CREATES, MEMORY))
_STARTS = 20
console = Console(highlight=False)


def bodies(kind: str, count: int) -> Iterator[bytes]:
    """Yield ``count`` request bodies of about 500 bytes each."""
    labels = {"app.kubernetes.io/name": "benchmark", "app.kubernetes.io/managed-by": "steersman"}
    text = "the text of an object, as long as many are. " * 6
    for number in range(count):
        meta = {"name": f"object-{number:06}", "namespace": "default", "labels": labels}
        if kind == WORKS:
            names = {"apiVersion": Work.api_resource.api_version, "kind": Work.api_resource.kind}
            yield msgspec.json.encode({**names, "metadata": meta, "spec": {"text": text}})
        else:
            data = {"number": str(number), "text": text}
            yield msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def path(kind: str) -> str:
    """Return the URL path for creating objects of ``kind``."""
    resource = Work.api_resource if kind == WORKS else ConfigMap.api_resource
    return resource.path(namespace="default")


async def create(transport: Transport, kind: str, body: bytes) -> None:
    """Create one object.

    Raises:
        RuntimeError: the server returned an error.
    """
    query = {"fieldManager": "benchmark"}
    response = await transport.request(HttpRequest(method="POST", path=path(kind), query=query, body=body))
    if response.status != 201:
        raise RuntimeError(f"HTTP {response.status}: {response.body[:500].decode(errors='replace')}")


async def measure_starts() -> list[Measurement]:
    """Measure the time to the first response, in memory and over HTTP."""
    first = HttpRequest(method="GET", path="/readyz")

    async def in_memory() -> None:
        await InMemoryApiServer().request(first)

    async def over_http() -> None:
        async with serve(InMemoryApiServer()) as endpoint, open_transport(endpoint.kubeconfig) as transport:
            await transport.request(first)

    async def by_command() -> None:
        async with serve_command():
            pass

    found = [
        (MEMORY, await median_ms(in_memory, _STARTS)),
        (HTTP, await median_ms(over_http, _STARTS)),
        (COMMAND, await median_ms(by_command, 3)),
    ]
    return [Measurement(START, entry_point, "ready after", value, "ms") for entry_point, value in found]


async def median_ms(start: Callable[[], Any], times: int) -> float:
    """Return the median of ``times`` starts in milliseconds."""
    durations: list[float] = []
    for _ in range(times):
        started_at = time.perf_counter()
        await start()
        durations.append((time.perf_counter() - started_at) * 1000)
    return statistics.median(durations)


@asynccontextmanager
async def open_transport(kubeconfig: str) -> AsyncGenerator[Transport]:
    """Open a connection to the server in ``kubeconfig``."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "kubeconfig"
        file.write_text(kubeconfig)
        async with connect(load_config(str(file))) as transport:
            yield transport


@asynccontextmanager
async def serve_command() -> AsyncGenerator[str]:
    """Run ``steersman testing serve`` with Work and yield its kubeconfig."""
    with tempfile.TemporaryDirectory() as directory:
        definitions, kubeconfig = Path(directory) / "crds.json", Path(directory) / "kubeconfig"
        definitions.write_bytes(msgspec.json.encode(definition(Work)))
        command = "from steersman_cli import main; main()"
        options = ["testing", "serve", "--crd", str(definitions), "--kubeconfig", str(kubeconfig)]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", command, *options), stdout=PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            if not line.startswith(b"Listening"):
                raise RuntimeError("the server did not start")
            yield kubeconfig.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            await process.communicate()


async def measure_creates(count: int) -> list[Measurement]:
    """Measure creations per second, in memory and over HTTP."""
    found = [(MEMORY, kind, await create_sequentially(kind, count)) for kind in (CONFIG_MAPS, WORKS)]
    found.append((MEMORY, BY_CLIENT, await create_with_client(count)))
    async with serve_command() as kubeconfig, open_transport(kubeconfig) as transport:
        found += [(HTTP, kind, await create_in_parallel(transport, kind, count)) for kind in (CONFIG_MAPS, WORKS)]
    return [
        Measurement(CREATES, entry_point, metric, value, "objects a second") for entry_point, metric, value in found
    ]


async def create_sequentially(kind: str, count: int) -> float:
    """Return creations per second for sequential requests."""
    server, encoded_bodies = InMemoryApiServer(), list(bodies(kind, count))
    server.register(Work)
    gc.collect()
    started_at = time.perf_counter()
    for body in encoded_bodies:
        await create(server, kind, body)
    return count / (time.perf_counter() - started_at)


async def create_with_client(count: int) -> float:
    """Return creations per second with the client, including encoding and decoding."""
    client = Client(InMemoryApiServer(), field_manager="benchmark")
    gc.collect()
    started_at = time.perf_counter()
    for number in range(count):
        labels = FrozenDict({"app": "benchmark"})
        meta = ObjectMeta(name=f"object-{number:06}", namespace="default", labels=labels)
        await client.create(ConfigMap(metadata=meta, data=FrozenDict({"number": str(number)})))
    return count / (time.perf_counter() - started_at)


async def create_in_parallel(transport: Transport, kind: str, count: int) -> float:
    """Return creations per second for parallel requests over HTTP."""
    encoded_bodies = list(bodies(kind, count))

    async def send(number: int) -> None:
        await create(transport, kind, encoded_bodies[number])

    gc.collect()
    started_at = time.perf_counter()
    await run_in_parallel(send, range(count))
    return count / (time.perf_counter() - started_at)


def evaluate_targets(measurements: list[Measurement]) -> list[TargetResult]:
    """Compare the medians with the targets."""
    limits = {(t.scenario, t.metric): t for t in TARGETS}
    return [
        TargetResult(target, s.peer, s.median, target.limit, s.unit)
        for s in summarise(measurements)
        if (target := limits.get((s.scenario, s.metric))) and (s.scenario, s.peer) in _TARGETED_FIGURES
    ]


def main(
    runs: Annotated[int, typer.Option(help="Runs of each measurement.", min=1)] = 5,
    objects: Annotated[int, typer.Option(help="Number of objects to create.", min=1)] = 10_000,
) -> None:
    """Measure the in-memory API server. Fails if a target is missed."""
    measurements: list[Measurement] = []
    for _ in range(runs):
        measurements += asyncio.run(measure_starts())
        measurements += asyncio.run(measure_creates(objects))
    for table in report.figures(summarise(measurements)):
        console.print(table)
    verdicts = evaluate_targets(measurements)
    console.print(report.targets(verdicts))
    console.print(machine.description())
    raise typer.Exit(0 if all(v.met for v in verdicts) else 1)


if __name__ == "__main__":
    typer.run(main)
