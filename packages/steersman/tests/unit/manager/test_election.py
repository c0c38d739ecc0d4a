"""LeaderElector in virtual time: there are never two leaders."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from framework_support.leases import now, read_lease, wait_until
from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.client import Client, HttpRequest, MergePatch, Transport
from steersman.errors import ConnectionFailed, LeadershipLost
from steersman.manager.leader_election import LeaderElection, LeaderElector
from steersman.manager.leader_election.fence import Fence
from steersman.meta import ObjectKey
from steersman.observability import metrics
from steersman.observability.runtime import Runtime
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

LEASE = ObjectKey("default", "shop-operator")


class SkewedClock:
    """A machine whose wall clock is wrong."""

    def __init__(self, skew: timedelta) -> None:
        self._inner, self._skew = virtual_runtime().clock, skew

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def now(self) -> datetime:
        return self._inner.now() + self._skew

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


@dataclass
class Candidate:
    """One replica: an elector, and what became of it."""

    transport: Transport
    name: str
    skew: timedelta = timedelta()
    alive: bool = True
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        runtime = Runtime(clock=SkewedClock(self.skew), random=virtual_runtime(hash(len(self.name))).random)
        self.fence = Fence(now)
        self.lost: LeadershipLost | None = None
        self.led_at: list[float] = []
        self.elector = LeaderElector(
            self.transport,
            LeaderElection(name=LEASE.name, namespace=LEASE.namespace, identity=self.name, **self.options),
            self.fence,
            runtime=runtime,
            clock=now,
            is_alive=lambda: self.alive,
        )
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.elector.acquire()
        self.led_at.append(now())
        try:
            await self.elector.renew()
        except LeadershipLost as error:
            self.lost = error

    async def shut_down(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.elector.release()

    def freeze(self) -> None:
        """Freeze the process, like SIGSTOP. Its fence keeps its state."""
        self.task.cancel()

    @property
    def is_leader(self) -> bool:
        return self.fence.is_leader


def lease(server: InMemoryApiServer) -> LeaseSpec:
    return read_lease(server, LEASE)


@virtual_time
async def test_leader_renews_lease_like_client_go() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first, second = Candidate(server, "a"), Candidate(server, "b")
    await asyncio.sleep(60)
    assert (first.is_leader, second.is_leader) == (True, False)
    written = lease(server)
    assert (written.holder_identity, written.lease_duration_seconds, written.lease_transitions) == ("a", 15, 0)
    assert written.acquire_time is not None
    assert written.renew_time is not None
    assert 55 < (written.renew_time - written.acquire_time).total_seconds() <= 60
    assert metrics.registry.get_sample_value("leader_election_master_status", {"name": "shop-operator"}) == 1
    await first.shut_down()
    await second.shut_down()


@virtual_time
async def test_elector_renewal_sends_one_request() -> None:
    server = InMemoryApiServer(virtual_runtime())
    candidate = Candidate(server, "a")
    await asyncio.sleep(5)
    server.requests.clear()
    await asyncio.sleep(60)
    assert {request.method for request in server.requests} == {"PATCH"}
    assert 60 / 2.4 - 1 <= len(server.requests) <= 60 / 2
    await candidate.shut_down()


@virtual_time
async def test_release_lets_standby_lead_at_once() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first, second = Candidate(server, "a"), Candidate(server, "b")
    await asyncio.sleep(30)
    await first.shut_down()
    assert not first.is_leader
    released = lease(server)
    assert (released.holder_identity, released.lease_duration_seconds, released.lease_transitions) == ("", 1, 0)
    assert await wait_until(lambda: second.is_leader, within=2) < 0.1
    taken = lease(server)
    assert (taken.holder_identity, taken.lease_duration_seconds, taken.lease_transitions) == ("b", 15, 1)
    await second.shut_down()


@virtual_time
async def test_standby_without_watch_polls_for_release() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first = Candidate(server, "a")
    await asyncio.sleep(1)
    second = Candidate(_Unwatchable(server), "b")
    await asyncio.sleep(30)
    await first.shut_down()
    assert await wait_until(lambda: second.is_leader, within=2.5) > 0
    await second.shut_down()


class _Unwatchable(Transport):
    def __init__(self, inner: Transport) -> None:
        self.request = inner.request  # type: ignore[method-assign]

    def stream(self, request: HttpRequest) -> Any:
        raise ConnectionFailed("scripted")

    async def close(self) -> None:
        return


@virtual_time
async def test_standby_takes_over_only_after_lease_expiry() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first, second = Candidate(server, "a"), Candidate(server, "b")
    await asyncio.sleep(30)
    first.freeze()
    renewed = lease(server).renew_time
    taken_after = await wait_until(lambda: second.is_leader, within=25)
    acquired = lease(server).acquire_time
    assert renewed is not None
    assert acquired is not None
    assert (acquired - renewed).total_seconds() >= 15, taken_after
    assert not first.is_leader
    assert lease(server).lease_transitions == 1
    await second.shut_down()


@pytest.mark.parametrize("skew", [timedelta(hours=-3), timedelta(hours=3), timedelta(days=400)])
def test_elector_ignores_clocks_of_other_replicas(skew: timedelta) -> None:
    @virtual_time
    async def scenario() -> None:
        server = InMemoryApiServer(virtual_runtime())
        first = Candidate(server, "a")
        await asyncio.sleep(1)
        second = Candidate(server, "b", skew=skew)
        for _ in range(300):
            await asyncio.sleep(1)
            assert (first.is_leader, second.is_leader) == (True, False)
        first.freeze()
        assert await wait_until(lambda: second.is_leader, within=25) > 10
        await second.shut_down()

    scenario()


@pytest.mark.parametrize("code", [500, 503, 429])
def test_failed_renewals_lose_leadership_at_deadline(code: int) -> None:
    @virtual_time
    async def scenario() -> None:
        server = InMemoryApiServer(virtual_runtime())
        first = Candidate(server, "a")
        await asyncio.sleep(30)
        server.fail_next(matching("PATCH", "/leases/"), code, times=3)
        await asyncio.sleep(60)
        assert first.is_leader
        server.fail_next(matching("PATCH", "/leases/"), code, times=100)
        renewed = lease(server).renew_time
        assert renewed is not None
        await wait_until(lambda: first.lost is not None, within=11)
        assert "could not be renewed within 10 s" in str(first.lost)
        assert not first.is_leader
        assert lease(server).renew_time == renewed

    scenario()


@virtual_time
async def test_lost_renewal_response_is_verified_by_read() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first = Candidate(server, "a")
    await asyncio.sleep(30)
    slow = metrics.registry.get_sample_value("leader_election_slowpath_total", {"name": "shop-operator"}) or 0
    for _ in range(10):
        server.fail_next(matching("PATCH", "/leases/"), ConnectionFailed("lost"), when="after")
        await asyncio.sleep(10)
        assert first.is_leader
    assert lease(server).lease_transitions == 0
    assert metrics.registry.get_sample_value("leader_election_slowpath_total", {"name": "shop-operator"}) == slow + 10
    await first.shut_down()
    assert lease(server).holder_identity == ""


@virtual_time
async def test_lease_with_lost_acquire_response_is_released() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.fail_next(matching("POST", "/leases"), ConnectionFailed("lost"), when="after")
    first = Candidate(server, "a")
    await wait_until(lambda: server.read(Lease, LEASE) is not None, within=1)
    assert lease(server).holder_identity == "a"
    assert not first.is_leader
    await first.shut_down()
    assert lease(server).holder_identity == ""


@virtual_time
async def test_standby_shutdown_keeps_lease_of_leader() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first, second, third = (Candidate(server, name) for name in ("a", "b", "c"))
    await asyncio.sleep(30)
    await first.shut_down()
    await wait_until(lambda: second.is_leader or third.is_leader, within=2)
    leader, standby = (second, third) if second.is_leader else (third, second)
    await standby.shut_down()
    assert lease(server).holder_identity == leader.elector.identity
    await leader.shut_down()


@virtual_time
async def test_shutdown_with_unreachable_server_is_quick() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first = Candidate(server, "a")
    await asyncio.sleep(30)
    server.fail_next(matching(path="/leases/"), ConnectionFailed("gone"), times=100)
    began = now()
    await first.shut_down()
    assert now() - began < 6
    assert not first.is_leader


@virtual_time
async def test_dead_event_loop_lets_lease_expire() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first, second = Candidate(server, "a"), Candidate(server, "b")
    await asyncio.sleep(30)
    first.alive = False
    assert await wait_until(lambda: second.is_leader, within=30) >= 12
    assert isinstance(first.lost, LeadershipLost)
    await second.shut_down()


@virtual_time
async def test_leader_keeps_lease_after_short_blocked_loop() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first, second = Candidate(server, "a"), Candidate(server, "b")
    await asyncio.sleep(30)
    first.alive = False
    await asyncio.sleep(6)
    first.alive = True
    await asyncio.sleep(60)
    assert (first.is_leader, second.is_leader) == (True, False)
    await first.shut_down()
    await second.shut_down()


@virtual_time
async def test_elector_with_dead_loop_does_not_acquire() -> None:
    server = InMemoryApiServer(virtual_runtime())
    dead = Candidate(server, "a", alive=False)
    await asyncio.sleep(60)
    assert server.read(Lease, LEASE) is None
    await dead.shut_down()


@virtual_time
async def test_leader_steps_down_on_foreign_holder() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first = Candidate(server, "a")
    await asyncio.sleep(30)
    await Client(server).patch(Lease, LEASE, MergePatch({"spec": {"holderIdentity": "other-holder"}}))
    await wait_until(lambda: first.lost is not None, within=3)
    assert "is held by 'other-holder'" in str(first.lost)
    assert not first.is_leader
    assert lease(server).holder_identity == "other-holder"


@virtual_time
async def test_deleted_lease_is_recreated() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first = Candidate(server, "a")
    await asyncio.sleep(30)
    await Client(server).delete(Lease, LEASE)
    await asyncio.sleep(3)
    assert first.is_leader
    assert lease(server).holder_identity == "a"
    await first.shut_down()


@virtual_time
async def test_foreign_lease_metadata_is_kept() -> None:
    server = InMemoryApiServer(virtual_runtime())
    first = Candidate(server, "a")
    await asyncio.sleep(5)
    await Client(server).patch(Lease, LEASE, MergePatch({"metadata": {"labels": {"team": "north"}}}))
    await asyncio.sleep(30)
    found = server.read(Lease, LEASE)
    assert found is not None
    assert found.metadata.labels == {"team": "north"}
    assert first.is_leader
    await first.shut_down()


@virtual_time
async def test_election_has_one_leader_under_random_faults() -> None:
    server = InMemoryApiServer(virtual_runtime())
    random = virtual_runtime(7).random
    candidates = [Candidate(server, f"c{n}", skew=timedelta(minutes=n)) for n in range(4)]
    all_candidates = list(candidates)
    elections = 0
    holder: str | None = None
    for _ in range(4000):
        await asyncio.sleep(0.25)
        # Those that are frozen count too: whenever they thaw, their fence must be closed before another's is open.
        leaders = [c for c in all_candidates if c.is_leader]
        assert len(leaders) <= 1, [c.name for c in leaders]
        if leaders and leaders[0].name != holder:
            holder, elections = leaders[0].name, elections + 1
        match random.randrange(200):
            case 0:
                server.fail_next(matching(path="/leases"), 503, times=random.randrange(8))
            case 1:
                server.fail_next(matching("PATCH", "/leases"), ConnectionFailed("lost"), when="after", times=3)
            case 2 | 3:
                candidates.remove(crashed := random.choice(candidates))
                crashed.freeze()
            case 4:
                candidates.remove(stopped := random.choice(candidates))
                await stopped.shut_down()
            case 5:
                random.choice(candidates).alive = random.random() < 0.5
            case _:
                pass
        candidates = [c for c in candidates if c.lost is None]
        while len(candidates) < 4:
            candidates.append(Candidate(server, f"c{len(all_candidates)}"))
            all_candidates.append(candidates[-1])
    assert elections > 10
    for candidate in candidates:
        await candidate.shut_down()


def test_leader_election_invalid_times_raise() -> None:
    with pytest.raises(ValueError, match="lease_duration > renew_deadline"):
        LeaderElection(name="a", namespace="b", renew_deadline=15)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "needs the name and the namespace"),
        ({"namespace": ""}, "needs the name and the namespace"),
        ({"lease_duration": 15.0}, r"lease_duration must be an int, not 15\.0"),
    ],
)
def test_lease_that_cannot_be_written_raises(options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"name": "a", "namespace": "b", **options}
    with pytest.raises(ValueError, match=message):
        LeaderElection(**arguments)


def test_default_identity_is_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "pod-0")
    options = LeaderElection(name="a", namespace="b")
    names = {
        LeaderElector(InMemoryApiServer(), options, Fence(lambda: 0.0), runtime=Runtime()).identity for _ in range(3)
    }
    assert len(names) == 3
    assert all(name.startswith("pod-0_") for name in names)
