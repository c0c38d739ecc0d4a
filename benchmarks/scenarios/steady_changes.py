"""Steady changes: 100 per second across 1,000 reconciled objects.

Latency runs from just before the change is sent until the reconcile of the new generation starts. Every operator
writes that time into the status; all processes share one clock. The latency includes the API server's processing. A
watch by the benchmark itself measures that part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from benchmarks.environment import NAMESPACE, BenchmarkApiServer
from benchmarks.load import change_work, create_works, run_at_rate, work_key
from benchmarks.measurement import Figure
from benchmarks.peers import OperatorSettings, Peer
from benchmarks.scenarios.cold_start import TIMEOUT_SECONDS, wait_until_all_done
from benchmarks.summary import percentile
from benchmarks.work import Work
from steersman.client import Client

RATE = 100.0
OBJECTS = 1000
_SETTLE_SECONDS = 3.0
_LAST_CHANGE_TIMEOUT_SECONDS = 300.0

WorkChange = tuple[str, int]
"""The name of an object, and the generation that the change made."""


async def measure(server: BenchmarkApiServer, peer: Peer) -> list[Figure]:
    """Measure one run of the configured length.

    Raises:
        TimeoutError: a change was not reconciled within five minutes after the last one.
    """
    version = await create_works(server, OBJECTS)
    count = round(RATE * server.config.seconds)
    async with server.operator(peer, OperatorSettings(server.kubeconfig, NAMESPACE, timed=True)) as operator:
        await operator.wait_for(wait_until_all_done(server.client, version, OBJECTS), TIMEOUT_SECONDS)
        await asyncio.sleep(_SETTLE_SECONDS)
        recorder = _Recorder(server.client)
        watching = asyncio.create_task(recorder.watch())
        try:
            await asyncio.sleep(_SETTLE_SECONDS)
            cpu = operator.cpu
            await operator.wait_for(run_at_rate(recorder.change, RATE, count), TIMEOUT_SECONDS)
            await operator.wait_for(recorder.wait_until_all_started(), _LAST_CHANGE_TIMEOUT_SECONDS)
            cpu = operator.cpu - cpu
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    latencies, seen = recorder.latencies(recorder.started), recorder.latencies(recorder.seen)
    return [
        Figure("latency p50", percentile(latencies, 50), "ms"),
        Figure("latency p99", percentile(latencies, 99), "ms"),
        Figure("latency max", max(latencies), "ms"),
        Figure("bare watch p50", percentile(seen, 50), "ms"),
        Figure("bare watch p99", percentile(seen, 99), "ms"),
        Figure("CPU per change", cpu / count * 1000, "ms"),
    ]


class _Recorder:
    """Records when each change was sent, observed and reconciled."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.sent: dict[WorkChange, int] = {}
        self.seen: dict[WorkChange, int] = {}
        self.started: dict[WorkChange, int] = {}
        self._progress = asyncio.Event()

    async def change(self, number: int) -> None:
        """Change the next object."""
        key = work_key(number % OBJECTS)
        now = time.time_ns()
        generation = await change_work(self._client, key, f"change {number}")
        self.sent[key.name, generation] = now

    async def watch(self) -> None:
        """Record watch events until cancelled."""
        version = (await self._client.list(Work, namespace=NAMESPACE)).resource_version
        async for event in self._client.watch(
            Work, resource_version=version, namespace=NAMESPACE, timeout=TIMEOUT_SECONDS
        ):
            now, work = time.time_ns(), event.object
            if work is None:
                continue
            self.seen.setdefault((work.metadata.name, work.metadata.generation), now)
            status = work.status
            if status.started_at is not None and status.observed_generation is not None:
                self.started.setdefault((work.metadata.name, status.observed_generation), status.started_at)
                self._progress.set()

    async def wait_until_all_started(self) -> None:
        """Wait until the reconcile of every change has started."""
        while not self.sent.keys() <= self.started.keys():
            self._progress.clear()
            await self._progress.wait()

    def latencies(self, moments: Mapping[WorkChange, int]) -> list[float]:
        """Return the latencies from sending to ``moments`` in milliseconds."""
        return [(moments[change] - sent) / 1e6 for change, sent in self.sent.items()]
