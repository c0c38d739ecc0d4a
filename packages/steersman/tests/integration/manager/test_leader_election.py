"""Replicas in processes of their own, on the real API server: who leads after an end, a crash, a lost lease."""

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
from steersman.rbac import leader_election_role
from steersman_testing.envtest import Envtest, User

PROGRAM = Path(framework_support.__file__).with_name("elected_process.py")
USUAL = "15,10,2"
QUICK = "6,5,0.5"


class Replica:
    """The process, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []

    async def says(self, words: str, seconds: float = 60.0) -> float:
        """The moment at which it said ``words``."""
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            while words not in self.said:
                line = await self.process.stdout.readline()
                assert line, f"it ended without saying {words!r}: {await self.complaint()}"
                self.said.append(line.decode().strip())
        return time.monotonic()

    async def ended(self, seconds: float = 60.0) -> int:
        """Its exit code."""
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def complaint(self) -> str:
        """What it logged, once it has ended."""
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


@dataclass(frozen=True, slots=True)
class Harbour:
    """A namespace, its administrator, and a user who may do what the generated role allows, and read ConfigMaps."""

    namespace: str
    client: Client
    user: User

    async def lease(self) -> LeaseSpec:
        return (await self.client.get(Lease, ObjectKey(self.namespace, "replicas"))).spec

    async def next_holder(self, former: str | None, version: str) -> str | None:
        """Who holds it next after ``former``, which held it at ``version``; nobody where it was given back."""
        changes = self.client.watch(Lease, namespace=self.namespace, resource_version=version)
        async with asyncio.timeout(60), aclosing(changes):
            async for change in changes:
                if change.object is not None and change.object.spec.holder_identity != former:
                    return change.object.spec.holder_identity
        raise AssertionError(f"{former} holds it for ever")


@pytest.fixture
async def harbour(envtest: Envtest, envtest_namespace: str) -> AsyncGenerator[Harbour]:
    role = leader_election_role("candidate", "replicas", namespace=envtest_namespace)
    role["rules"].append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]})
    async with envtest.client() as client:
        yield Harbour(envtest_namespace, client, envtest.user("candidate", roles=[role]))


@asynccontextmanager
async def replica(harbour: Harbour, times: str) -> AsyncGenerator[Replica]:
    """A running replica; it is dead at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        str(harbour.user.kubeconfig),
        harbour.namespace,
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


async def test_after_a_clean_end_the_standby_leads_before_the_lease_would_run_out(harbour: Harbour) -> None:
    async with replica(harbour, USUAL) as first, replica(harbour, USUAL) as second:
        await asyncio.gather(first.says("standing by"), second.says("standing by"))
        leads = {asyncio.create_task(r.says("leading")): r for r in (first, second)}
        (done, *_), _ = await asyncio.wait(leads, return_when=asyncio.FIRST_COMPLETED)
        leader = leads.pop(done)
        ((waiting, standby),) = leads.items()
        listed = await harbour.client.list(Lease, namespace=harbour.namespace)
        (before,) = (lease.spec for lease in listed.items)
        assert before.lease_duration_seconds == 15
        leader.process.send_signal(signal.SIGTERM)
        assert await leader.ended() == 0
        # Whoever leads next has found it given back, and so need not wait until it runs out.
        assert not await harbour.next_holder(before.holder_identity, listed.resource_version)
        await waiting
        assert "leading" in standby.said
        after = await harbour.lease()
        assert after.holder_identity != before.holder_identity
        assert after.lease_transitions == (before.lease_transitions or 0) + 1


async def test_after_a_crash_the_standby_leads_when_the_lease_has_run_out(harbour: Harbour) -> None:
    async with replica(harbour, QUICK) as first:
        await first.says("leading")
        async with replica(harbour, QUICK) as second:
            await second.says("standing by")
            first.process.kill()
            await first.ended()
            renewed = (await harbour.lease()).renew_time
            await second.says("leading")
            taken = await harbour.lease()
            assert renewed is not None
            assert taken.acquire_time is not None
            # Both clocks are this machine's.
            assert (taken.acquire_time - renewed).total_seconds() >= 6
            assert taken.lease_transitions == 1


async def test_who_loses_the_lease_ends_with_one_clear_line(harbour: Harbour) -> None:
    async with replica(harbour, QUICK) as first:
        await first.says("leading")
        stolen = MergePatch({"spec": {"holderIdentity": "pirate"}})
        await harbour.client.patch(Lease, ObjectKey(harbour.namespace, "replicas"), stolen)
        assert await first.ended() == 1
        logged = await first.complaint()
        assert logged.count("leadership lost") == 1, logged
        assert "is held by 'pirate' now" in logged
        assert "Traceback" not in logged
        assert (await harbour.lease()).holder_identity == "pirate"


async def test_the_user_of_these_tests_may_touch_no_other_lease(harbour: Harbour) -> None:
    async with connect(harbour.user.config) as transport:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{harbour.namespace}/leases"
        for target, expected in ((f"{path}/replicas", 404), (f"{path}/other", 403), (path, 403)):
            assert (await transport.request(HttpRequest(method="GET", path=target))).status == expected
