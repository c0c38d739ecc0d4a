"""Memory after 36,000 changes, which equal an hour at ten per second."""

from __future__ import annotations

import asyncio

from framework_support.churn import Churn
from framework_support.fault_tests import FaultScale, StartOperator, write_measurements
from steersman_testing.envtest import Envtest

SAMPLES = 20
WARMUP_SAMPLES = 6


async def test_memory_is_flat(envtest: Envtest, churn: Churn, operator: StartOperator, scale: FaultScale) -> None:
    async with operator(envtest.kubeconfig) as process:
        await churn.wait_until_converged()
        churn.rate = float("inf")
        curve: list[float] = []
        async with churn.running():
            started = churn.total
            for sample in range(SAMPLES):
                goal = started + scale.hourly_changes * (sample + 1) // SAMPLES
                while churn.total < goal:
                    await asyncio.sleep(0.02)
                curve.append(round(process.rss_mib(), 2))
        await churn.wait_until_converged()
        warm, end = max(curve[:WARMUP_SAMPLES]), process.rss_mib()
        # An hour causes no measurable growth. A leak of 60 bytes per change exceeds this limit.
        assert end < warm * 1.02 + 1, curve
        await write_measurements("an hour of changes", churn, process, warm=warm, end=end, curve=curve)
