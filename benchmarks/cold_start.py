"""Cold start: N custom objects are there, the operator starts, makes one owned ConfigMap each and sets each status.

Time runs from the start of the operator's process, imports included, until the last status is seen by a watch. CPU
and memory are those of the operator's process alone. API server, etcd, operator and this program share the machine's
cores, so objects/s say as much of the machine as of the operator; CPU per object is the figure to compare.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.measurement import Measurement, cpu_seconds, peak_rss_mib
from benchmarks.work import Work, WorkSpec
from steersman.api.apply.core_v1 import NamespaceApply
from steersman.client import Client
from steersman.meta import ObjectMeta, ObjectMetaApply

SCENARIO = "cold start"
WORKERS = 32
_CREATORS = 16
_PATIENCE = 600.0


@dataclass(slots=True)
class _Progress:
    first: float = 0.0
    last: float = 0.0


async def measure(client: Client, kubeconfig: str, objects: int, loop: str) -> list[Measurement]:
    """Measures one run in a namespace of its own.

    Args:
        client: of an API server that knows ``Work``.
        kubeconfig: the path by which the operator's process reaches the same server.
        objects: how many there are.
        loop: ``asyncio`` or ``uvloop``.

    Raises:
        TimeoutError: not finished within ten minutes.
        RuntimeError: the operator ended before it was asked to, or not in order.
    """
    namespace = f"cold-start-{loop}"
    await client.apply(NamespaceApply(metadata=ObjectMetaApply(name=namespace)))
    await _create(client, namespace, objects)
    version = (await client.list(Work, namespace=namespace)).resource_version
    begun = time.perf_counter()
    async with _operator(kubeconfig, namespace, loop) as process:
        progress = await _unless_ended(process, _all_done(client, namespace, version, objects))
        cpu, rss = cpu_seconds(process.pid), peak_rss_mib(process.pid)
    peer = "steersman" if loop == "asyncio" else f"steersman ({loop})"
    figures = {
        "objects per second": (objects / (progress.last - begun), "1/s"),
        "first object done after": (progress.first - begun, "s"),
        "operator CPU per object": (cpu / objects * 1000, "ms"),
        "operator peak RSS": (rss, "MiB"),
    }
    return [Measurement(SCENARIO, peer, name, round(value, 3), unit) for name, (value, unit) in figures.items()]


async def _create(client: Client, namespace: str, objects: int) -> None:
    names = iter([f"work-{number:05}" for number in range(objects)])

    async def creator(remaining: Iterable[str]) -> None:
        for name in remaining:
            metadata = ObjectMeta(name=name, namespace=namespace)
            await client.create(Work(metadata=metadata, spec=WorkSpec(text=f"the text of {name}")))

    async with asyncio.TaskGroup() as group:
        for _ in range(_CREATORS):
            group.create_task(creator(names))


async def _all_done(client: Client, namespace: str, version: str, objects: int) -> _Progress:
    done: set[str] = set()
    progress = _Progress()
    async for event in client.watch(Work, resource_version=version, namespace=namespace, timeout=_PATIENCE):
        work = event.object
        if work is None or work.status is None or work.status.config_map is None:
            continue
        if not done:
            progress.first = time.perf_counter()
        done.add(work.metadata.name)
        if len(done) == objects:
            progress.last = time.perf_counter()
            return progress
    raise TimeoutError(f"the watch ended with {len(done)} of {objects} objects done")


async def _unless_ended(process: Process, work: Coroutine[Any, Any, _Progress]) -> _Progress:
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(process.wait())
    await asyncio.wait((working, ending), timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        working.cancel()
        raise RuntimeError(f"the operator ended by itself with exit code {ending.result()}")
    ending.cancel()
    if not working.done():
        working.cancel()
        raise TimeoutError(f"the operator has not finished after {_PATIENCE:.0f} s")
    return working.result()


@asynccontextmanager
async def _operator(kubeconfig: str, namespace: str, loop: str) -> AsyncGenerator[Process]:
    arguments = ("-m", "benchmarks.work", kubeconfig, namespace, str(WORKERS), loop)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        code = await process.wait()
    if code != 0:
        raise RuntimeError(f"the operator ended with exit code {code}")
