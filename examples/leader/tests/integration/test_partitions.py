"""Faults of processes on a real API server: writers never overlap.

``RUNS=50 make partitions`` prints the figures of 50 faults. The default is two.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml
from steersman import Client, FrozenDict, ObjectKey, ObjectMeta
from steersman_testing.envtest import Envtest

from leader_operator.api.v1.leaderservice import LeaderService, LeaderServiceSpec, ServicePort
from real_pod import RealPod, real_pods
from store import Store
from store_server import StoreServer

RUNS = int(os.environ.get("RUNS", "2"))
ROLE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "config/rbac/sidecar_role.yaml").read_text())
TERMINATION_SECONDS = 1
LEADER_TIMEOUT_SECONDS = 60.0

Fault = Callable[[RealPod], Awaitable[None]]


async def partition(pod: RealPod) -> None:
    pod.proxy.forwarding.clear()


async def freeze_pod(pod: RealPod) -> None:
    pod.signal(signal.SIGSTOP, pod.pids())


async def kill_pod(pod: RealPod) -> None:
    await pod.end()


async def freeze_sidecar(pod: RealPod) -> None:
    pod.signal(signal.SIGSTOP, pod.sidecar_pids())


async def kill_sidecar(pod: RealPod) -> None:
    pod.signal(signal.SIGKILL, pod.sidecar_pids())


async def kill_application(pod: RealPod) -> None:
    pod.signal(signal.SIGKILL, pod.application_pids())


FAULTS: tuple[Fault, ...] = (partition, freeze_pod, kill_pod, freeze_sidecar, kill_sidecar, kill_application)
FROZEN = (freeze_pod, freeze_sidecar)
# On a busy machine, a killed sidecar may restart after the short Lease of this test.
NEED_CHECK = (*FROZEN, kill_sidecar)


async def repair(fault: Fault, pod: RealPod) -> None:
    """End the fault, as far as Kubernetes does not."""
    if fault is partition:
        pod.proxy.forwarding.set()
    elif fault in FROZEN:
        pod.signal(signal.SIGCONT, pod.pids())
    elif fault is kill_pod:
        pod.start()


async def wait_until(condition: Callable[[], bool], store: Store) -> None:
    async with asyncio.timeout(LEADER_TIMEOUT_SECONDS):
        while not condition():
            assert store.violations() == []
            await asyncio.sleep(0.02)


async def run_fault(fault: Fault, pods: list[RealPod], store: Store) -> tuple[float, int]:
    """Replace the leader by a fault.

    Returns:
        Seconds without a writer, and the number of refused writes.
    """
    before = store.highest_term
    last = store.acknowledged[-1]
    leader = next(pod for pod in pods if pod.name == last.writer)
    refused = len(store.refused)
    await fault(leader)
    await wait_until(lambda: store.highest_term > before and store.acknowledged[-1].term > before, store)
    await repair(fault, leader)
    if fault in FROZEN:
        # The frozen leader wrote again, or its sidecar was quicker. A frozen sidecar ends it after the repair.
        sessions = list(leader.sessions)
        await wait_until(lambda: leader.sessions != sessions, store)
    if fault not in NEED_CHECK:
        assert len(store.refused) == refused, "the previous leader wrote after the next one"
    following = next(write for write in store.acknowledged if write.term > before)
    previous = max(write.at for write in store.acknowledged if write.term <= before)
    return following.at - previous, len(store.refused) - refused


async def create_service(client: Client, key: ObjectKey) -> None:
    spec = LeaderServiceSpec(
        selector=FrozenDict({"app": "orders"}),
        ports=(ServicePort(port=80),),
        fencing="Sidecar",
        termination_seconds=TERMINATION_SECONDS,
    )
    await client.create(LeaderService(metadata=ObjectMeta(name=key.name, namespace=key.namespace), spec=spec))


@pytest.mark.requirement("pattern/leader")
async def test_two_writers_are_never_acknowledged_at_once(
    envtest: Envtest, envtest_namespace: str, tmp_path: Path
) -> None:
    key = ObjectKey(envtest_namespace, "orders")
    user = envtest.user("orders", roles=[ROLE], namespace=envtest_namespace)
    results: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    server = StoreServer()
    async with envtest.client() as client, await server.start():
        await create_service(client, key)
        async with real_pods(user, key, tmp_path, server.port) as pods:
            await wait_until(lambda: bool(server.store.acknowledged), server.store)
            for number in range(RUNS):
                fault = FAULTS[number % len(FAULTS)]
                results[fault.__name__].append(await run_fault(fault, pods, server.store))
        assert server.store.violations() == []
        found = await client.get(LeaderService, key)
        assert found.status.term == server.store.highest_term
    print(figures(results, server.store))


def figures(results: dict[str, list[tuple[float, int]]], store: Store) -> str:
    """Return a table of the gaps between leaders in seconds."""
    rows = [
        "",
        "| fault | runs | median gap (s) | worst gap (s) | refused writes |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, runs in results.items():
        gaps, refused = [gap for gap, _ in runs], sum(number for _, number in runs)
        rows.append(f"| {name.replace('_', ' ')} | {len(runs)} | {median(gaps):.1f} | {max(gaps):.1f} | {refused} |")
    return "\n".join((*rows, f"{len(store.acknowledged)} writes acknowledged, {len(store.refused)} refused"))
