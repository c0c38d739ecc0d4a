"""Leader election of processes on the real API server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import framework_support
from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.client import Client, HttpRequest, MergePatch, connect
from steersman.meta import ObjectKey
from steersman_manifests.rbac import leader_election_role
from steersman_testing.envtest import AuthenticatedUser, Envtest

PROGRAM = Path(framework_support.__file__).with_name("elected_process.py")
DEFAULT_TIMINGS = "15,10,2"
FAST_TIMINGS = "6,5,0.5"


class Replica:
    """A process and its logs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log_lines: list[str] = []

    async def wait_for_log(self, text: str, seconds: float = 60.0) -> float:
        """Wait for ``text`` in the logs, and return the time."""
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            while text not in self.log_lines:
                line = await self.process.stdout.readline()
                assert line, f"it ended without saying {text!r}: {await self.read_stderr()}"
                self.log_lines.append(line.decode().strip())
        return time.monotonic()

    async def wait_for_exit(self, seconds: float = 60.0) -> int:
        """Wait for the exit code."""
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def read_stderr(self) -> str:
        """Wait for the end of the process, and return its logs."""
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


@dataclass(frozen=True, slots=True)
class ElectionNamespace:
    """A namespace, its administrator, and a user with the generated role."""

    namespace: str
    client: Client
    user: AuthenticatedUser

    async def lease(self) -> LeaseSpec:
        return (await self.client.get(Lease, ObjectKey(self.namespace, "replicas"))).spec

    async def next_holder(self, former: str | None, version: str) -> str | None:
        """Wait for the holder after ``former``; empty after a release."""
        changes = self.client.watch(Lease, namespace=self.namespace, resource_version=version)
        async with asyncio.timeout(60), aclosing(changes):
            async for change in changes:
                if change.object is not None and change.object.spec.holder_identity != former:
                    return change.object.spec.holder_identity
        raise AssertionError(f"{former} holds it for ever")


@pytest.fixture
async def harness(envtest: Envtest, envtest_namespace: str) -> AsyncGenerator[ElectionNamespace]:
    role = leader_election_role("candidate", "replicas", namespace=envtest_namespace)
    role["rules"].append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]})
    async with envtest.client() as client:
        yield ElectionNamespace(envtest_namespace, client, envtest.user("candidate", roles=[role]))


@asynccontextmanager
async def replica(harness: ElectionNamespace, times: str) -> AsyncGenerator[Replica]:
    """A running replica; it is dead at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        str(harness.user.kubeconfig),
        harness.namespace,
        times,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parent)},
    )
    try:
        yield Replica(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_clean_shutdown_passes_lease_before_expiry(harness: ElectionNamespace) -> None:
    async with replica(harness, DEFAULT_TIMINGS) as first, replica(harness, DEFAULT_TIMINGS) as second:
        await asyncio.gather(first.wait_for_log("standing by"), second.wait_for_log("standing by"))
        leads = {asyncio.create_task(r.wait_for_log("leading")): r for r in (first, second)}
        (done, *_), _ = await asyncio.wait(leads, return_when=asyncio.FIRST_COMPLETED)
        leader = leads.pop(done)
        ((waiting, standby),) = leads.items()
        listed = await harness.client.list(Lease, namespace=harness.namespace)
        (before,) = (lease.spec for lease in listed.items)
        assert before.lease_duration_seconds == 15
        leader.process.send_signal(signal.SIGTERM)
        assert await leader.wait_for_exit() == 0
        # The next leader found the Lease released, and did not wait for its expiry.
        assert not await harness.next_holder(before.holder_identity, listed.resource_version)
        await waiting
        assert "leading" in standby.log_lines
        after = await harness.lease()
        assert after.holder_identity != before.holder_identity
        assert after.lease_transitions == (before.lease_transitions or 0) + 1


async def test_crash_passes_lease_after_expiry(harness: ElectionNamespace) -> None:
    async with replica(harness, FAST_TIMINGS) as first:
        await first.wait_for_log("leading")
        async with replica(harness, FAST_TIMINGS) as second:
            await second.wait_for_log("standing by")
            first.process.kill()
            await first.wait_for_exit()
            renewed = (await harness.lease()).renew_time
            await second.wait_for_log("leading")
            taken = await harness.lease()
            assert renewed is not None
            assert taken.acquire_time is not None
            # Both clocks are this machine's.
            assert (taken.acquire_time - renewed).total_seconds() >= 6
            assert taken.lease_transitions == 1


async def test_lost_lease_ends_process_with_one_line(harness: ElectionNamespace) -> None:
    async with replica(harness, FAST_TIMINGS) as first:
        await first.wait_for_log("leading")
        foreign_holder = MergePatch({"spec": {"holderIdentity": "other-holder"}})
        await harness.client.patch(Lease, ObjectKey(harness.namespace, "replicas"), foreign_holder)
        assert await first.wait_for_exit() == 1
        logged = await first.read_stderr()
        assert logged.count("leader election lost") == 1, logged
        assert "is held by 'other-holder'" in logged
        assert "Traceback" not in logged
        assert (await harness.lease()).holder_identity == "other-holder"


async def test_user_role_is_limited_to_its_lease(harness: ElectionNamespace) -> None:
    async with connect(harness.user.config) as transport:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{harness.namespace}/leases"
        for target, expected in ((f"{path}/replicas", 404), (f"{path}/other", 403), (path, 403)):
            assert (await transport.request(HttpRequest(method="GET", path=target))).status == expected
