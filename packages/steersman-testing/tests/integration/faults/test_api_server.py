"""The API server dies, forgets, or is not to be reached."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from framework_support.churn import Churn
from framework_support.fault_proxy import FaultProxy, Refusal
from framework_support.fault_scale import Scale, StartOperator
from framework_support.figures import report
from steersman_testing.envtest import Envtest


async def test_it_is_killed_again_and_again(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: Scale
) -> None:
    async with operator(envtest.kubeconfig) as process:
        await churn.settled()
        async with churn.changing():
            for _ in range(scale.kills):
                await churn.round()
                envtest.control_plane.kill_apiserver()
                await churn.failure()
                envtest.control_plane.begin_apiserver()
                await asyncio.to_thread(envtest.control_plane.wait_until_ready)
            await churn.round()
        took = await churn.settled()
        assert process.exit_code is None
        await report("API server killed", churn, process, kills=scale.kills, recovery=took)


async def test_it_refuses_everything_for_a_while(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: Scale, tmp_path: Path
) -> None:
    refusals = [Refusal(429, 1), Refusal(500), Refusal(503), Refusal(429), Refusal(503, 1), Refusal(504)]
    in_turn = itertools.cycle(refusals)
    with FaultProxy.running(tmp_path, envtest.kubeconfig) as proxy:
        async with operator(proxy.kubeconfig) as process:
            await churn.settled()
            async with churn.changing():
                await churn.round()
                proxy.refuse = lambda _: next(in_turn)
                begun = time.monotonic()
                proxy.break_watches()
                await asyncio.sleep(scale.outage)
                async with asyncio.timeout(churn.patience):
                    while len(proxy.refused) < len(refusals):
                        await asyncio.sleep(0.05)
                refused, seconds = len(proxy.refused), time.monotonic() - begun
                proxy.refuse = lambda _: None
                await churn.round()
            took = await churn.settled()
            assert process.exit_code is None
            assert refused < 50 * seconds, "it hammers a server that refuses"
            await report("429 and 5xx", churn, process, seconds=seconds, refused=refused, recovery=took)


async def test_packets_vanish(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: Scale, tmp_path: Path
) -> None:
    with FaultProxy.running(tmp_path, envtest.kubeconfig) as proxy:
        async with operator(proxy.kubeconfig) as process:
            await churn.settled()
            async with churn.changing():
                await churn.round()
                with proxy.black_hole(for_ever=True):
                    await asyncio.sleep(scale.outage)
                await churn.round()
            took = await churn.settled()
            assert process.exit_code is None
            await report("black hole", churn, process, seconds=scale.outage, recovery=took)


async def test_etcd_forgets_what_a_slow_watcher_has_not_read(
    forgetful: Envtest, operator: StartOperator, churn: Churn, tmp_path: Path
) -> None:
    with FaultProxy.running(tmp_path, forgetful.kubeconfig) as proxy:
        async with operator(proxy.kubeconfig) as process:
            await churn.settled()
            async with churn.changing():
                await churn.round()
                with proxy.held_watches():
                    await churn.round()
                    forgetful.control_plane.compact()
                    proxy.break_watches()
                await churn.round()
            took = await churn.settled()
            assert process.exit_code is None
            restarts = await process.metrics()
            assert any("Expired" in name for name in restarts if name.startswith("steersman_watch_restarts_total"))
            await report("etcd compacted", churn, process, recovery=took)
