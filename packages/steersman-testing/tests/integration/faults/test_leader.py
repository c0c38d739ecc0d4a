"""Two replicas: the one that leads is frozen or not heard past its lease, and the other takes over.

Each has a proxy of its own that writes down when each of its requests began.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from framework_support.churn import Churn
from framework_support.fault_proxy import FaultProxy, Seen
from framework_support.fault_scale import Scale, StartOperator
from framework_support.figures import report
from framework_support.operator_process import OperatorProcess
from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.meta import ObjectKey
from steersman_testing.envtest import Envtest


@dataclass(frozen=True, slots=True)
class Replica:
    """An operator, and its way to the API server."""

    process: OperatorProcess
    proxy: FaultProxy

    async def takes_over(self, seconds: float) -> Seen:
        """Its first write of an object."""
        await self.process.wait_for_log("became the leader", seconds)
        return await self.proxy.first_write(seconds)

    async def ends(self) -> float:
        """When it ended by itself, in monotonic seconds; as a failure, so that it is started again."""
        assert await self.process.wait_until_ended() > 0
        return time.monotonic()


async def test_it_is_frozen_and_thaws(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: Scale, tmp_path: Path
) -> None:
    async with _pair(envtest, operator, scale, tmp_path) as (leader, standby):
        await churn.settled()
        async with churn.changing():
            await churn.round()
            leader.process.signal(signal.SIGSTOP)
            frozen = time.monotonic()
            former = await _lease(churn)
            first = await standby.takes_over(10 * scale.lease)
            lease = await _lease(churn)
            await churn.round()
            leader.process.signal(signal.SIGCONT)
            thawed = time.monotonic()
            ended = await leader.ends()
            await churn.round()
        took = await churn.settled()
        assert _begun_after(first.at, leader) == []
        assert standby.process.exit_code is None
        assert former.renew_time is not None
        assert lease.acquire_time is not None
        fresh = (lease.acquire_time - former.renew_time).total_seconds() < scale.lease
        assert not fresh, "taken over while the lease was fresh"
        await report(
            "leader frozen", churn, standby.process, takeover=first.at - frozen, end=ended - thawed, recovery=took
        )


async def test_it_is_not_heard_for_a_while(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: Scale, tmp_path: Path
) -> None:
    async with _pair(envtest, operator, scale, tmp_path) as (leader, standby):
        await churn.settled()
        async with churn.changing():
            await churn.round()
            with leader.proxy.deaf():
                cut = time.monotonic()
                # Writes of objects, beside the renewal of the Lease: begun in time, and still on their way.
                await _until(lambda: leader.proxy.waiting_sockets() > 3, scale.lease)
                first, ended = await asyncio.gather(standby.takes_over(10 * scale.lease), leader.ends())
                await churn.round()
            # What the dead leader's kernel still holds back would arrive now.
            await _until(lambda: leader.proxy.waiting_sockets() == 0, 90)
            await churn.round()
        took = await churn.settled()
        assert _begun_after(first.at, leader) == []
        assert standby.process.exit_code is None
        figures = {"takeover": first.at - cut, "end": ended - cut, "recovery": took}
        await report("leader not heard", churn, standby.process, **figures)


async def _lease(churn: Churn) -> LeaseSpec:
    return (await churn.client.get(Lease, ObjectKey(churn.namespace, "beacons"))).spec


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _pair(
    envtest: Envtest, operator: StartOperator, scale: Scale, directory: Path
) -> AsyncGenerator[tuple[Replica, Replica]]:
    """The leader, and one that stands by with warm caches."""
    lease = f"--lease={scale.lease}"
    with (
        FaultProxy.running(directory, envtest.kubeconfig) as one,
        FaultProxy.running(directory, envtest.kubeconfig) as other,
    ):
        async with operator(one.kubeconfig, lease, name="a") as leader:
            await leader.wait_for_log("became the leader")
            async with operator(other.kubeconfig, lease, name="b") as standby:
                await standby.wait_for_log("standing for leader election")
                yield Replica(leader, one), Replica(standby, other)


def _begun_after(moment: float, replica: Replica) -> list[Seen]:
    """All that the replica began to write after ``moment``, Leases included."""
    return [seen for seen in replica.proxy.seen if seen.is_write and seen.at >= moment]
