"""Cached pods: memory for 50,000 pods and the longest pause.

Each pod has 7 KB. The caches drop ``managedFields``, as users do to save memory. Kopf has no cache, so its
operator keeps a dictionary. A reconcile reads the pod and increments a counter. The pause is the longest delay of a
5 ms timer in the operator's process while 100 pods per second change.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from benchmarks.environment import EMPTY_NAMESPACE, NAMESPACE, BenchmarkApiServer, BenchmarkConfig, api_server
from benchmarks.load import change_pod, churn_pods, create_pods, run_at_rate
from benchmarks.measurement import Figure
from benchmarks.peers import OperatorSettings, Peer
from benchmarks.process import OperatorProcess

RATE = 100.0
_TIMEOUT_SECONDS = 600.0
_QUIET_REPORTS = 3
_POLL_INTERVAL_SECONDS = 0.2
_changes_per_run = itertools.count(1)


@asynccontextmanager
async def server_with_pods(config: BenchmarkConfig) -> AsyncGenerator[BenchmarkApiServer]:
    """Run an API server that contains the pods."""
    async with api_server(config) as server:
        await create_pods(server, config.pods)
        yield server


async def measure(server: BenchmarkApiServer, peer: Peer) -> list[Figure]:
    """Measure one run: idle, initial list, all pods changed, then pauses."""
    pods = server.config.pods
    idle = await _idle_rss(server, peer)
    settings = OperatorSettings(server.kubeconfig, NAMESPACE, operator="pods")
    async with server.operator(peer, settings) as operator:
        await operator.wait_for(_wait_until_quiet(operator, pods), _TIMEOUT_SECONDS)
        cached = operator.rss
        before, done = operator.cpu, operator.reports[-1].reconciles
        await operator.wait_for(churn_pods(server, pods), _TIMEOUT_SECONDS)
        await operator.wait_for(_wait_until_quiet(operator, done + pods), _TIMEOUT_SECONDS)
        churned, churn_cpu = operator.rss, operator.cpu - before
        longest = await operator.wait_for(_longest_pause(server, operator), _TIMEOUT_SECONDS)
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


async def _idle_rss(server: BenchmarkApiServer, peer: Peer) -> float:
    settings = OperatorSettings(server.kubeconfig, EMPTY_NAMESPACE, operator="pods")
    async with server.operator(peer, settings) as operator:
        await operator.wait_for(_wait_until_quiet(operator, 0), _TIMEOUT_SECONDS)
        return operator.rss


async def _wait_until_quiet(operator: OperatorProcess, reconciles: int) -> None:
    """Wait until the operator has done ``reconciles`` and stays quiet."""
    # Ignore earlier reports, which may predate the last change.
    started_at = len(operator.reports)
    while True:
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        last = operator.reports[started_at:][-_QUIET_REPORTS:]
        if len(last) == _QUIET_REPORTS and last[0].reconciles == last[-1].reconciles >= reconciles:
            return


async def _longest_pause(server: BenchmarkApiServer, operator: OperatorProcess) -> float:
    seconds, pods = server.config.seconds, server.config.pods
    begun = len(operator.reports)
    await run_at_rate(
        lambda n: change_pod(server.client, n % pods, str(next(_changes_per_run))), RATE, round(RATE * seconds)
    )
    return max(report.pause_ms for report in operator.reports[begun:])
