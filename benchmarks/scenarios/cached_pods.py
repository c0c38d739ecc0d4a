"""Cached pods: the memory that 50,000 pods of 7 KB take, and the longest pause after all have changed once.

Each peer caches the pods as its users do when memory counts: without ``managedFields``. Kopf has no cache; its users
make an index. A reconcile reads the pod and counts. The pause is how much later than asked a timer of 5 ms fires in
the operator's own process, at the worst, while 100 pods a second change.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from benchmarks.environment import EMPTY_NAMESPACE, NAMESPACE, ApiServer, Bench, api_server
from benchmarks.load import change_pod, churn_pods, create_pods, steadily
from benchmarks.measurement import Figure
from benchmarks.peers import Peer, Settings
from benchmarks.process import OperatorProcess

RATE = 100.0
_PATIENCE = 600.0
_QUIET_REPORTS = 3
_POLL = 0.2
_changes = itertools.count(1)


@asynccontextmanager
async def server_with_pods(bench: Bench) -> AsyncGenerator[ApiServer]:
    """An API server that has the pods."""
    async with api_server(bench) as server:
        await create_pods(server, bench.pods)
        yield server


async def measure(server: ApiServer, peer: Peer) -> list[Figure]:
    """One run: idle, all pods cached, all pods changed once, then the pauses."""
    pods = server.bench.pods
    idle = await _idle_rss(server, peer)
    settings = Settings(server.kubeconfig, NAMESPACE, operator="pods")
    async with server.operator(peer, settings) as operator:
        await operator.until(_quiet_after(operator, pods), _PATIENCE)
        cached = operator.rss
        before, done = operator.cpu, operator.reports[-1].reconciles
        await operator.until(churn_pods(server, pods), _PATIENCE)
        await operator.until(_quiet_after(operator, done + pods), _PATIENCE)
        churned, churn_cpu = operator.rss, operator.cpu - before
        longest = await operator.until(_longest_pause(server, operator), _PATIENCE)
        peak = operator.peak_rss
    return [
        Figure("idle RSS", idle, "MiB"),
        Figure("RSS", cached, "MiB"),
        Figure("memory per pod", (cached - idle) * 1024 / pods, "KiB"),
        Figure("RSS after churn", churned, "MiB"),
        Figure("memory per pod after churn", (churned - idle) * 1024 / pods, "KiB"),
        Figure("peak RSS", peak, "MiB"),
        Figure("longest pause after churn", longest, "ms"),
        Figure("CPU per change", churn_cpu / pods * 1000, "ms"),
    ]


async def _idle_rss(server: ApiServer, peer: Peer) -> float:
    settings = Settings(server.kubeconfig, EMPTY_NAMESPACE, operator="pods")
    async with server.operator(peer, settings) as operator:
        await operator.until(_quiet_after(operator, 0), _PATIENCE)
        return operator.rss


async def _quiet_after(operator: OperatorProcess, reconciles: int) -> None:
    """Returns when the operator has done so many reconciles, and no more for some seconds."""
    # What was reported before this began does not count: it may be older than the last change.
    begun = len(operator.reports)
    while True:
        await asyncio.sleep(_POLL)
        last = operator.reports[begun:][-_QUIET_REPORTS:]
        if len(last) == _QUIET_REPORTS and last[0].reconciles == last[-1].reconciles >= reconciles:
            return


async def _longest_pause(server: ApiServer, operator: OperatorProcess) -> float:
    seconds, pods = server.bench.seconds, server.bench.pods
    begun = len(operator.reports)
    await steadily(lambda n: change_pod(server.client, n % pods, str(next(_changes))), RATE, round(RATE * seconds))
    return max(report.pause_ms for report in operator.reports[begun:])
