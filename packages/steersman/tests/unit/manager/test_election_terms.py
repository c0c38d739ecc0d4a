"""Terms of LeaderElector in virtual time: each has one leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

import pytest

from framework_support.leases import now, read_lease, wait_until
from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.client import Client, HttpRequest, HttpResponse, MergePatch, Transport
from steersman.errors import ApiError, ConnectionFailed, LeadershipLost
from steersman.manager.leader_election import LeaderElection, LeaderElector, next_term
from steersman.manager.leader_election.fence import Fence
from steersman.meta import ObjectKey, ObjectMeta, OwnerReference
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

LEASE = ObjectKey("default", "orders")
OWNER = OwnerReference(api_version="v1", kind="Widget", name="orders", uid="1")


@dataclass
class MemoryTermStore:
    """A store that fails on request."""

    term: int = 0
    failure: Exception | None = None
    delay: float = 0.01

    async def highest(self) -> int:
        return self.term

    async def record(self, term: int) -> bool:
        await asyncio.sleep(self.delay)
        if self.failure is not None:
            raise self.failure
        recorded = term > self.term
        self.term = max(self.term, term)
        return recorded


class CutTransport(Transport):
    """A connection that can be lost."""

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server
        self.cut = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        if self.cut:
            raise ConnectionFailed("cut")
        return await self._server.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        if self.cut:
            raise ConnectionFailed("cut")
        return self._server.stream(request)

    async def close(self) -> None:
        """Do nothing."""


@dataclass
class Candidate:
    """One process that leads until it loses the Lease."""

    server: Transport
    store: MemoryTermStore
    identity: str
    retry_period: float = 2.0
    fence: Fence = field(init=False)
    lost: bool = False

    def __post_init__(self) -> None:
        self.fence = Fence(now)
        self.elector = LeaderElector(
            self.server,
            LeaderElection(
                name=LEASE.name,
                namespace=LEASE.namespace,
                identity=self.identity,
                retry_period=self.retry_period,
            ),
            self.fence,
            runtime=virtual_runtime(len(self.identity)),
            clock=now,
            terms=self.store,
            owner_references=[OWNER],
        )
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.elector.acquire()
        with suppress(LeadershipLost):
            await self.elector.renew()
        self.lost = True

    @property
    def leads(self) -> bool:
        return self.fence.is_leader

    def freeze(self) -> None:
        self.task.cancel()

    async def shut_down(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.elector.release()


def lease(server: InMemoryApiServer) -> LeaseSpec:
    return read_lease(server, LEASE)


@pytest.mark.parametrize(("known", "expected"), [((), 1), ((0, 0), 1), ((4, 7), 8), ((7, 4), 8)])
def test_next_term_is_above_all_known_ones(known: tuple[int, ...], expected: int) -> None:
    assert next_term(*known) == expected


@virtual_time
async def test_term_grows_with_each_leadership() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    first = Candidate(server, store, "a")
    await wait_until(lambda: first.leads, within=20)
    assert (first.elector.term, store.term, lease(server).lease_transitions) == (1, 1, 1)
    found = server.read(Lease, LEASE)
    assert found is not None
    assert found.metadata.owner_references == (OWNER,)
    second = Candidate(server, store, "bb")
    await asyncio.sleep(5)
    await first.shut_down()
    await wait_until(lambda: second.leads, within=5)
    assert (second.elector.term, store.term, lease(server).lease_transitions) == (2, 2, 2)
    await second.shut_down()


@virtual_time
async def test_restarted_process_begins_new_term_at_once() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    first = Candidate(server, store, "a")
    await wait_until(lambda: first.leads, within=20)
    first.freeze()
    again = Candidate(server, store, "a")
    await wait_until(lambda: again.leads, within=20)
    assert again.elector.term == 2
    await again.shut_down()


@virtual_time
async def test_leader_of_a_deleted_lease_steps_down() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore(term=41)
    first = Candidate(server, store, "a")
    # The store has a term, so that a Lease could have been deleted just now.
    assert await wait_until(lambda: first.leads, within=20) > 15
    second = Candidate(server, store, "bb")
    await asyncio.sleep(20)
    await Client(server).delete(Lease, LEASE)
    assert await wait_until(lambda: first.lost, within=5) < 2.5
    assert not first.leads
    assert await wait_until(lambda: second.leads, within=20) > 11
    assert (lease(server).holder_identity, lease(server).lease_transitions) == ("bb", 43)
    await second.shut_down()


@virtual_time
async def test_leader_of_a_restored_lease_steps_down() -> None:
    # Between deletion and restore, another candidate may have led.
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    first = Candidate(server, store, "a")
    await wait_until(lambda: first.leads, within=20)
    backup = server.read(Lease, LEASE)
    assert backup is not None
    await Client(server).delete(Lease, LEASE)
    await Client(server).create(Lease(metadata=ObjectMeta(name="orders", namespace="default"), spec=backup.spec))
    await wait_until(lambda: first.lost, within=5)
    assert not first.leads


@virtual_time
async def test_repeatedly_deleted_lease_has_one_leader() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    candidates = [Candidate(server, store, "a"), Candidate(server, store, "bb")]
    terms: set[int] = set()
    for _ in range(500):
        with suppress(ApiError):
            await Client(server).delete(Lease, LEASE)
        await asyncio.sleep(0.3)
        leaders = [candidate for candidate in candidates if candidate.leads]
        assert len(leaders) <= 1, [candidate.identity for candidate in leaders]
        terms |= {leader.elector.term for leader in leaders}
        candidates = [c if not c.lost else Candidate(server, store, c.identity) for c in candidates]
    assert len(terms) > 3
    await wait_until(lambda: any(c.leads for c in candidates), within=20)
    for candidate in candidates:
        await candidate.shut_down()


@virtual_time
async def test_standby_does_not_count_unobserved_absence() -> None:
    """A standby is cut off while the Lease is recreated between deletions."""
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    first = Candidate(server, store, "a")
    await wait_until(lambda: first.leads, within=20)
    standby_connection = CutTransport(server)
    standby = Candidate(standby_connection, store, "bb")
    await asyncio.sleep(5)
    await Client(server).delete(Lease, LEASE)
    await asyncio.sleep(2.5)
    standby_connection.cut = True
    assert first.lost
    third = Candidate(server, store, "ccc")
    await wait_until(lambda: third.leads, within=20)
    await asyncio.sleep(5)
    await Client(server).delete(Lease, LEASE)
    standby_connection.cut = False
    for _ in range(200):
        assert not (third.leads and standby.leads)
        await asyncio.sleep(0.1)
    assert (third.lost, standby.leads, standby.elector.term) == (True, True, 3)
    await standby.shut_down()


@virtual_time
async def test_first_lease_is_created_after_its_duration() -> None:
    # The store may have been deleted together with a Lease whose leader does not know yet.
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    first = Candidate(server, store, "a")
    assert await wait_until(lambda: first.leads, within=20) >= 15
    assert first.elector.term == 1
    await first.shut_down()


@virtual_time
async def test_lease_deleted_before_it_is_observed_is_waited_out() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    candidates = [Candidate(server, store, f"c{n}") for n in range(3)]
    await wait_until(lambda: any(c.leads for c in candidates), within=20)
    await Client(server).delete(Lease, LEASE)
    leader = next(c for c in candidates if c.leads)
    for _ in range(300):
        await asyncio.sleep(0.1)
        assert len([c for c in candidates if c.leads]) <= 1
    assert leader.lost
    assert lease(server).lease_transitions == 2
    for candidate in candidates:
        await candidate.shut_down()


@virtual_time
async def test_deleted_lease_of_frozen_leader_is_waited_out() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    first = Candidate(server, store, "a")
    await wait_until(lambda: first.leads, within=20)
    second = Candidate(server, store, "bb")
    await asyncio.sleep(5)
    first.freeze()
    await Client(server).delete(Lease, LEASE)
    assert await wait_until(lambda: second.leads, within=20) >= 15
    assert not first.leads
    assert second.elector.term == 2
    await second.shut_down()


@virtual_time
async def test_edited_lease_does_not_lower_the_term() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    first = Candidate(server, store, "a")
    await wait_until(lambda: first.leads, within=20)
    await first.shut_down()
    store.term = 7
    await Client(server).patch(Lease, LEASE, MergePatch({"spec": {"leaseTransitions": 0}}))
    second = Candidate(server, store, "bb")
    await wait_until(lambda: second.leads, within=5)
    assert second.elector.term == 8
    await second.shut_down()


@virtual_time
async def test_candidate_does_not_lead_before_term_is_recorded() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore(failure=ConnectionFailed("refused"))
    first = Candidate(server, store, "a")
    await asyncio.sleep(30)
    assert lease(server).holder_identity == "a"
    assert not first.leads
    store.failure = None
    await wait_until(lambda: first.leads, within=5)
    await first.shut_down()


@virtual_time
async def test_slow_record_begins_with_a_whole_deadline() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore(delay=6)
    first = Candidate(server, store, "a")
    await wait_until(lambda: first.leads, within=30)
    assert first.elector.deadline - now() > 9
    assert first.elector.term == 1
    await first.shut_down()


@virtual_time
async def test_long_retry_period_leaves_time_for_the_record() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore(delay=4)
    first = Candidate(server, store, "a", retry_period=8)
    await wait_until(lambda: first.leads, within=30)
    await first.shut_down()


@virtual_time
async def test_term_of_another_candidate_is_waited_out() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    first = Candidate(server, store, "a")
    await wait_until(lambda: lease(server).holder_identity == "a" if server.read(Lease, LEASE) else False, within=20)
    store.term = 1
    assert not first.leads
    assert await wait_until(lambda: first.leads, within=20) >= 15
    assert first.elector.term == 2
    await first.shut_down()


@virtual_time
async def test_each_term_has_one_leader_under_random_faults() -> None:
    server, store = InMemoryApiServer(virtual_runtime()), MemoryTermStore()
    random = virtual_runtime(3).random
    candidates = [Candidate(server, store, f"c{n}") for n in range(3)]
    all_candidates = list(candidates)
    leader_of_term: dict[int, str] = {}
    for _ in range(3000):
        await asyncio.sleep(0.25)
        leaders = [c for c in all_candidates if c.leads]
        assert len(leaders) <= 1, [c.identity for c in leaders]
        for leader in leaders:
            assert leader_of_term.setdefault(leader.elector.term, leader.identity) == leader.identity
            assert leader.elector.term == max(leader_of_term)
        match random.randrange(150):
            case 0:
                server.fail_next(matching(path="/leases"), 503, times=random.randrange(8))
            case 1:
                server.fail_next(matching("PATCH", "/leases"), ConnectionFailed("lost"), when="after", times=3)
            case 2 | 3:
                candidates.remove(crashed := random.choice(candidates))
                crashed.freeze()
            case 4 | 5:
                with suppress(ApiError):
                    await Client(server).delete(Lease, LEASE)
            case _:
                pass
        candidates = [c for c in candidates if not c.lost]
        while len(candidates) < 3:
            candidates.append(Candidate(server, store, f"c{len(all_candidates)}"))
            all_candidates.append(candidates[-1])
    assert len(leader_of_term) > 10
    for candidate in candidates:
        await candidate.shut_down()
