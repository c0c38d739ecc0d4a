"""Leader election by a Lease: of several replicas one works, and another takes over when it ends.

It follows client-go's ``leaderelection`` package, its rules and its words in the Lease, with these differences:

- Leadership is counted from the moment at which the last successful renewal was *sent*, and writes are fenced by it
  (see ``fence``).
- No renewal is sent while the heartbeat of the work is missing: a replica that hangs does not keep others from it.
- Replicas that stand by watch the Lease beside reading it every two seconds, so that a release is heard at once.
- Who finds another's name in the Lease, or none, has lost, and does not wait for the deadline to say so.

Clocks of several machines are never compared: a standby measures by its own clock how long it has seen no change of
the record. Source: "Leases"; k8s.io/client-go/tools/leaderelection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.client import Client, MergePatch, Transport
from steersman.errors import Conflict, LeadershipLost, NotFound, SteersmanError
from steersman.manager.fence import Fence, FencedTransport, MonotonicClock, suspend_aware_clock
from steersman.meta import ObjectKey, ObjectMeta
from steersman.meta.go_json import MicroTime
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

log = get_logger("leader election")

_JITTER = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """How replicas agree on who works. The defaults are client-go's.

    Attributes:
        name: of the Lease, the same in all replicas and used by nothing else.
        namespace: of the Lease; usually the one that the pods run in.
        identity: who this replica is; the pod's name and a random part unless told. Never the same in two processes.
        lease_duration: seconds without a renewal after which others may take over; whole seconds travel.
        renew_deadline: seconds without a successful renewal after which the leader gives up.
        retry_period: seconds between renewals, and between looks of those that stand by.

    Raises:
        ValueError: not ``lease_duration > renew_deadline > 1.2 * retry_period > 0``.
    """

    name: str
    namespace: str
    identity: str = ""
    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > self.retry_period * (1 + _JITTER) > 0:
            raise ValueError(
                "leader election needs lease_duration > renew_deadline > 1.2 * retry_period > 0, "
                f"not {self.lease_duration:g}, {self.renew_deadline:g} and {self.retry_period:g}"
            )

    @property
    def clock_drift_margin(self) -> float:
        """Seconds before the lease can be taken at which writes stop: for clocks that differ in speed."""
        return (self.lease_duration - self.renew_deadline) / 5

    @property
    def heartbeat_timeout(self) -> float:
        """Seconds without a heartbeat after which nothing is renewed.

        Half of the renew deadline: a pause of that length is still survived, and a work that hangs for good is
        replaced within one and a half deadlines, and what is left of the lease.
        """
        return self.renew_deadline / 2


class LeaderElector:
    """One candidate. ``acquire``, then ``renew`` until that raises; ``release`` at an orderly end.

    Args:
        transport: to the API server; not the fenced one.
        fence: opened and closed as leadership comes and goes.
        clock: must be the fence's own.
        is_alive: whether the work still runs; the lease is neither taken nor renewed while it does not.
    """

    def __init__(
        self,
        transport: Transport,
        options: LeaderElection,
        fence: Fence,
        *,
        runtime: Runtime,
        clock: MonotonicClock = suspend_aware_clock,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self.identity = options.identity or default_identity(runtime)
        self._client = Client(FencedTransport(transport, self._check_before_write), field_manager="leader-election")
        self._options = options
        self._key = ObjectKey(options.namespace, options.name)
        self._fence = fence
        self._runtime = runtime
        self._clock = clock
        self._is_alive = is_alive
        self._observed_record = LeaseSpec()
        self._resource_version = ""
        self._observed_at = float("-inf")
        self._renewed_at = float("-inf")
        self._leading = False
        # A claim whose answer was lost may have made us the holder without our knowing.
        self._may_hold_lease = False
        self._released = asyncio.Event()
        self._log = log.bind(lease=str(self._key), identity=self.identity)
        self._master_status = metrics.leader_election_master_status.labels(options.name)
        self._master_status.set(0)
        self._slow_path = metrics.leader_election_slowpath.labels(options.name)

    async def acquire(self) -> None:
        """Returns once this process leads, however long that takes."""
        self._log.info("standing for leader election")
        watch_task = self._runtime.spawn(self._watch_for_release(), "lease watch")
        try:
            while not await self._run_attempt(self._try_acquire):
                await self._wait_for_release(self._jittered_period())
        finally:
            watch_task.cancel()
            await asyncio.gather(watch_task, return_exceptions=True)
        self._leading = True
        self._master_status.set(1)
        self._log.info("became the leader", transitions=self._observed_record.lease_transitions)

    async def renew(self) -> None:
        """Keeps the lease; never returns.

        Raises:
            LeadershipLost: no renewal succeeded in time, or the lease is no longer ours. The fence is closed.
        """
        while self._is_holder and self._seconds_left() > 0:
            await asyncio.sleep(min(self._jittered_period(), self._seconds_left()))
            if self._seconds_left() > 0:
                await self._run_attempt(self._try_renew)
        self._stop_leading()
        if self._is_holder:
            reason = f"could not be renewed for {self._options.renew_deadline:g} s"
            raise LeadershipLost(f"the lease {self._key} {reason}: another replica takes over")
        raise LeadershipLost(
            f"the lease {self._key} is held by {self._observed_record.holder_identity or 'nobody'!r} now"
        )

    async def release(self) -> None:
        """Gives the lease up, so that a standby need not wait for its end. Never fails: it runs out anyway."""
        self._fence.close()
        if (self._leading or self._may_hold_lease) and await self._run_attempt(self._try_release):
            self._log.info("released the lease")
        self._stop_leading()

    # One try of each

    async def _try_acquire(self) -> bool:
        try:
            self._observe(await self._client.get(Lease, self._key))
        except NotFound:
            return await self._create()
        if not self._is_holder and self._is_lease_valid:
            return False
        return await self._write(self._acquire_spec())

    async def _try_renew(self) -> bool:
        try:
            return await self._write(self._renew_spec())
        except (Conflict, NotFound):
            # Somebody else wrote, or an earlier renewal of ours did, whose answer was lost.
            self._slow_path.inc()
        try:
            self._observe(await self._client.get(Lease, self._key))
        except NotFound:
            return await self._create()
        return self._is_holder and await self._write(self._renew_spec())

    async def _try_release(self) -> bool:
        if self._leading:
            try:
                await self._patch(self._release_spec())
                return True
            except Conflict:
                # Perhaps only a renewal of our own whose answer was lost: whose it is must be read.
                pass
        self._observe(await self._client.get(Lease, self._key))
        if self._is_holder:
            await self._patch(self._release_spec())
        return self._is_holder

    async def _run_attempt(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Whether it succeeded; what went wrong is logged, since another attempt follows."""
        timeout = self._options.renew_deadline / 2
        try:
            async with asyncio.timeout(min(timeout, self._seconds_left()) if self._leading else timeout):
                return await attempt()
        except Conflict:
            self._log.debug("another candidate was faster")
        except TimeoutError:
            self._log.warning("no answer from the API server in time", leading=self._leading)
        except SteersmanError as error:
            self._log.warning("lease neither taken nor renewed", leading=self._leading, error=str(error))
        return False

    # What is known of the Lease

    @property
    def _is_holder(self) -> bool:
        return self._observed_record.holder_identity == self.identity

    @property
    def _is_lease_valid(self) -> bool:
        # By the holder's own word, and our own clock: it counts from when we saw the record change.
        duration = self._observed_record.lease_duration_seconds or 0
        return bool(self._observed_record.holder_identity) and self._clock() < self._observed_at + duration

    def _seconds_left(self) -> float:
        """Seconds until the leader has to give up."""
        return self._renewed_at + self._options.renew_deadline - self._clock()

    def _observe(self, lease: Lease) -> None:
        self._resource_version = lease.metadata.resource_version
        if lease.spec != self._observed_record:
            self._observed_record, self._observed_at = lease.spec, self._clock()

    def _check_before_write(self) -> None:
        """At the last moment before a write of the Lease: a loop that was frozen in between must not send it."""
        if not self._is_alive():
            raise LeadershipLost("the event loop of this process is blocked, so it lets the lease run out")
        if self._leading and self._seconds_left() <= 0:
            raise LeadershipLost("this process was stopped for longer than the renew deadline")

    def _stop_leading(self) -> None:
        self._fence.close()
        self._leading = self._may_hold_lease = False
        self._master_status.set(0)

    # Writing it

    async def _create(self) -> bool:
        self._may_hold_lease = True
        sent_at = self._clock()
        metadata = ObjectMeta(name=self._options.name, namespace=self._options.namespace)
        now = self._runtime.clock.now()
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._options.lease_duration,
            acquire_time=now,
            renew_time=now,
            lease_transitions=0,
        )
        return self._record_success(await self._client.create(Lease(metadata=metadata, spec=spec)), sent_at)

    async def _write(self, spec: dict[str, Any]) -> bool:
        self._may_hold_lease = True
        sent_at = self._clock()
        return self._record_success(await self._patch(spec), sent_at)

    async def _patch(self, spec: dict[str, Any]) -> Lease:
        # A merge patch keeps what others put into the Lease; with the version it is a compare-and-swap.
        body = {"metadata": {"resourceVersion": self._resource_version}, "spec": spec}
        return await self._client.patch(Lease, self._key, MergePatch(body))

    def _record_success(self, lease: Lease, sent_at: float) -> bool:
        self._observe(lease)
        self._renewed_at = sent_at
        self._fence.open_until(sent_at + self._options.lease_duration - self._options.clock_drift_margin)
        return True

    def _renew_spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._options.lease_duration,
            "renewTime": self._now(),
        }

    def _acquire_spec(self) -> dict[str, Any]:
        if self._is_holder:
            return self._renew_spec()
        transitions = (self._observed_record.lease_transitions or 0) + 1
        return self._renew_spec() | {"acquireTime": self._now(), "leaseTransitions": transitions}

    def _release_spec(self) -> dict[str, Any]:
        now = self._now()
        return {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}

    def _now(self) -> str:
        return str(MicroTime.combine((now := self._runtime.clock.now()).date(), now.timetz()))

    # Waiting

    def _jittered_period(self) -> float:
        return self._options.retry_period * (1 + _JITTER * self._runtime.random.random())

    async def _wait_for_release(self, seconds: float) -> None:
        """Waits, at most until the lease is said to be free."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._released.wait()
        self._released.clear()

    async def _watch_for_release(self) -> None:
        while True:
            await asyncio.sleep(self._options.retry_period / 2)
            if not self._resource_version:
                continue
            try:
                await self._watch_lease()
            except SteersmanError as error:
                # The lease is read every few seconds all the same.
                self._log.debug("lease watch interrupted", error=str(error))

    async def _watch_lease(self) -> None:
        stream = self._client.watch(
            Lease,
            resource_version=self._resource_version,
            namespace=self._options.namespace,
            field_selector=f"metadata.name={self._options.name}",
        )
        async with aclosing(stream):
            async for event in stream:
                if event.type == "DELETED" or (event.object is not None and not event.object.spec.holder_identity):
                    self._released.set()


def default_identity(runtime: Runtime) -> str:
    """The pod's name (``$POD_NAME``, or else the host's), and a part that no other process has."""
    unique = uuid.UUID(int=runtime.random.getrandbits(128), version=4)
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{unique}"
