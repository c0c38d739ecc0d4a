"""Pod operator on Steersman. It reads each changed pod and counts it."""

from __future__ import annotations

import asyncio
import json
import os
import time

from benchmarks.work import main, new_manager
from steersman.api.core_v1 import Pod
from steersman.client import connect, load_config
from steersman.controller import Request, RequestReconciler, Result

_TICK_SECONDS = 0.005
_REPORT_INTERVAL_SECONDS = 1.0


class PodReconciler(RequestReconciler[Pod]):
    """Reads the pod from the cache."""

    reconciles = 0

    async def reconcile(self, request: Request) -> Result:
        await self.client.get(Pod, request)
        PodReconciler.reconciles += 1
        return Result()


async def report_pauses() -> None:
    """Print the longest timer delay of each second."""
    longest, report_at = 0.0, time.monotonic() + _REPORT_INTERVAL_SECONDS
    while True:
        deadline = time.monotonic() + _TICK_SECONDS
        await asyncio.sleep(_TICK_SECONDS)
        now = time.monotonic()
        longest = max(longest, now - deadline)
        if now >= report_at:
            print(json.dumps({"reconciles": PodReconciler.reconciles, "pause_ms": longest * 1000}), flush=True)
            longest, report_at = 0.0, now + _REPORT_INTERVAL_SECONDS


async def run() -> None:
    """Run the operator until SIGTERM."""
    async with connect(load_config()) as transport:
        manager = new_manager(transport)
        workers = int(os.environ["BENCHMARK_WORKERS"])
        manager.controller(Pod).max_concurrent_reconciles(workers).complete(PodReconciler)
        reporter = asyncio.create_task(report_pauses())
        await manager.run_until_signalled()
        reporter.cancel()


if __name__ == "__main__":
    main(run)
