"""Failover between two replicas after the leader is frozen or isolated.

A proxy for each replica records the start time of each request.
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
from framework_support.fault_proxy import FaultProxy, ProxiedRequest
from framework_support.fault_tests import FaultScale, StartOperator, write_measurements
from framework_support.operator_process import OperatorProcess
from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.meta import ObjectKey
from steersman_testing.envtest import Envtest


@dataclass(frozen=True, slots=True)
class Replica:
    """An operator with its proxy to the API server."""

    process: OperatorProcess
    proxy: FaultProxy

    async def wait_until_leading(self, seconds: float) -> ProxiedRequest:
        """Return the first write of an object."""
        await self.process.wait_for_log("successfully acquired lease", seconds)
        return await self.proxy.first_write(seconds)

    async def wait_until_exited(self) -> float:
        """Return the exit time in monotonic seconds.

        The exit code must report a failure, so that a kubelet restarts the process.
        """
        assert await self.process.wait_until_exited() > 0
        return time.monotonic()


async def test_frozen_leader_is_replaced_and_ends(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: FaultScale, tmp_path: Path
) -> None:
    async with _start_replicas(envtest, operator, scale, tmp_path) as (leader, standby):
        await churn.wait_until_converged()
        async with churn.running():
            await churn.wait_for_round()
            leader.process.signal(signal.SIGSTOP)
            paused_at = time.monotonic()
            former = await _lease(churn)
            first = await standby.wait_until_leading(10 * scale.lease)
            lease = await _lease(churn)
            await churn.wait_for_round()
            leader.process.signal(signal.SIGCONT)
            resumed_at = time.monotonic()
            ended = await leader.wait_until_exited()
            await churn.wait_for_round()
        elapsed = await churn.wait_until_converged()
        assert _first_write_after(first.received_at, leader) == []
        assert standby.process.exit_code is None
        assert former.renew_time is not None
        assert lease.acquire_time is not None
        fresh = (lease.acquire_time - former.renew_time).total_seconds() < scale.lease
        assert not fresh, "taken over while the lease was fresh"
        await write_measurements(
            "leader frozen",
            churn,
            standby.process,
            takeover=first.received_at - paused_at,
            end=ended - resumed_at,
            recovery=elapsed,
        )


async def test_leader_unreachable_is_replaced(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: FaultScale, tmp_path: Path
) -> None:
    async with _start_replicas(envtest, operator, scale, tmp_path) as (leader, standby):
        await churn.wait_until_converged()
        async with churn.running():
            await churn.wait_for_round()
            with leader.proxy.dropped_inbound_packets():
                cut = time.monotonic()
                # Writes of objects, besides Lease renewals, that started in time and are still in flight.
                await _until(lambda: leader.proxy.unacknowledged_sockets() > 3, scale.lease)
                first, ended = await asyncio.gather(
                    standby.wait_until_leading(10 * scale.lease), leader.wait_until_exited()
                )
                await churn.wait_for_round()
            # Data in the socket buffers of the old leader would arrive now.
            await _until(lambda: leader.proxy.unacknowledged_sockets() == 0, 90)
            await churn.wait_for_round()
        elapsed = await churn.wait_until_converged()
        assert _first_write_after(first.received_at, leader) == []
        assert standby.process.exit_code is None
        figures = {"takeover": first.received_at - cut, "end": ended - cut, "recovery": elapsed}
        await write_measurements("leader not heard", churn, standby.process, **figures)


async def _lease(churn: Churn) -> LeaseSpec:
    return (await churn.client.get(Lease, ObjectKey(churn.namespace, "gadgets"))).spec


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _start_replicas(
    envtest: Envtest, operator: StartOperator, scale: FaultScale, directory: Path
) -> AsyncGenerator[tuple[Replica, Replica]]:
    """Start a leader, and a standby with synchronized caches."""
    lease = f"--lease={scale.lease}"
    with (
        FaultProxy.running(directory, envtest.kubeconfig) as one,
        FaultProxy.running(directory, envtest.kubeconfig) as other,
    ):
        async with operator(one.kubeconfig, lease, name="a") as leader:
            await leader.wait_for_log("successfully acquired lease")
            async with operator(other.kubeconfig, lease, name="b") as standby:
                await standby.wait_for_log("attempting to acquire leader lease")
                yield Replica(leader, one), Replica(standby, other)


def _first_write_after(moment: float, replica: Replica) -> list[ProxiedRequest]:
    """Return the writes after ``moment``, including those of Leases."""
    return [seen for seen in replica.proxy.requests if seen.is_write and seen.received_at >= moment]
