"""Idle: import time, time to the first reconcile, and memory at rest.

The import time covers the framework in a new Python interpreter; Go and Rust have none. One object exists, so that
the operator proves that it works before its memory is measured.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.environment import NAMESPACE, BenchmarkApiServer
from benchmarks.load import create_works
from benchmarks.measurement import Figure
from benchmarks.peers import OperatorSettings, Peer
from benchmarks.scenarios.cold_start import TIMEOUT_SECONDS, wait_until_all_done

_SETTLE_SECONDS = 3.0
_IMPORTS = 5
_TIMED_IMPORT = "import time; begun = time.perf_counter(); import {}; print(time.perf_counter() - begun)"


async def measure(server: BenchmarkApiServer, peer: Peer) -> list[Figure]:
    """Measure one start."""
    version = await create_works(server, 1)
    started_at = time.perf_counter()
    async with server.operator(peer, OperatorSettings(server.kubeconfig, NAMESPACE)) as operator:
        progress = await operator.wait_for(wait_until_all_done(server.client, version, 1), TIMEOUT_SECONDS)
        await asyncio.sleep(_SETTLE_SECONDS)
        figures = [
            Figure("start to first object done", (progress.last - started_at) * 1000, "ms"),
            Figure("idle RSS", operator.rss, "MiB"),
        ]
    if peer.package:
        figures.insert(0, Figure("import", await _import_ms(server, peer), "ms"))
    return figures


async def _import_ms(server: BenchmarkApiServer, peer: Peer) -> float:
    """Return the median import time of several interpreters, to reduce noise."""
    return statistics.median([await _import_once_ms(server, peer) for _ in range(_IMPORTS)])


async def _import_once_ms(server: BenchmarkApiServer, peer: Peer) -> float:
    interpreter = str(server.config.built[peer.toolchain])
    core = str(server.config.cores.operator)
    process = await asyncio.create_subprocess_exec(
        *("taskset", "--cpu-list", core, interpreter, "-c", _TIMED_IMPORT.format(peer.package)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return float(output) * 1000
