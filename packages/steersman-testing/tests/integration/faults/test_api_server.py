"""Crashes, compaction and network failures of the API server."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from framework_support.churn import Churn
from framework_support.fault_proxy import FaultProxy, ProxyResponse
from framework_support.fault_tests import FaultScale, StartOperator, write_measurements
from steersman_testing.envtest import Envtest


async def test_api_server_killed_repeatedly_recovers(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: FaultScale
) -> None:
    async with operator(envtest.kubeconfig) as process:
        await churn.wait_until_converged()
        async with churn.running():
            for _ in range(scale.kills):
                await churn.wait_for_round()
                envtest.control_plane.kill_apiserver()
                await churn.wait_for_failure()
                envtest.control_plane.spawn_apiserver()
                await asyncio.to_thread(envtest.control_plane.wait_until_ready)
            await churn.wait_for_round()
        elapsed = await churn.wait_until_converged()
        assert process.exit_code is None
        await write_measurements("API server killed", churn, process, kills=scale.kills, recovery=elapsed)


async def test_api_server_rejecting_everything_recovers(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: FaultScale, tmp_path: Path
) -> None:
    responses = [
        ProxyResponse(429, 1),
        ProxyResponse(500),
        ProxyResponse(503),
        ProxyResponse(429),
        ProxyResponse(503, 1),
        ProxyResponse(504),
    ]
    next_response = itertools.cycle(responses)
    with FaultProxy.running(tmp_path, envtest.kubeconfig) as proxy:
        async with operator(proxy.kubeconfig) as process:
            await churn.wait_until_converged()
            async with churn.running():
                await churn.wait_for_round()
                proxy.respond = lambda _: next(next_response)
                started = time.monotonic()
                proxy.break_watches()
                await asyncio.sleep(scale.outage)
                async with asyncio.timeout(churn.patience):
                    while len(proxy.intercepted) < len(responses):
                        await asyncio.sleep(0.05)
                refused, seconds = len(proxy.intercepted), time.monotonic() - started
                proxy.respond = lambda _: None
                await churn.wait_for_round()
            elapsed = await churn.wait_until_converged()
            assert process.exit_code is None
            assert refused < 50 * seconds, "it hammers a server that refuses"
            await write_measurements(
                "429 and 5xx", churn, process, seconds=seconds, refused=refused, recovery=elapsed
            )


async def test_lost_packets_are_recovered(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: FaultScale, tmp_path: Path
) -> None:
    with FaultProxy.running(tmp_path, envtest.kubeconfig) as proxy:
        async with operator(proxy.kubeconfig) as process:
            await churn.wait_until_converged()
            async with churn.running():
                await churn.wait_for_round()
                with proxy.black_hole(keep_existing=True):
                    await asyncio.sleep(scale.outage)
                await churn.wait_for_round()
            elapsed = await churn.wait_until_converged()
            assert process.exit_code is None
            await write_measurements("black hole", churn, process, seconds=scale.outage, recovery=elapsed)


async def test_etcd_compaction_relists_slow_watch(
    uncached_envtest: Envtest, operator: StartOperator, churn: Churn, tmp_path: Path
) -> None:
    with FaultProxy.running(tmp_path, uncached_envtest.kubeconfig) as proxy:
        async with operator(proxy.kubeconfig) as process:
            await churn.wait_until_converged()
            async with churn.running():
                await churn.wait_for_round()
                with proxy.delayed_watches():
                    await churn.wait_for_round()
                    uncached_envtest.control_plane.compact()
                    proxy.break_watches()
                await churn.wait_for_round()
            elapsed = await churn.wait_until_converged()
            assert process.exit_code is None
            restarts = await process.metrics()
            assert any("Expired" in name for name in restarts if name.startswith("steersman_watch_restarts_total"))
            await write_measurements("etcd compacted", churn, process, recovery=elapsed)
