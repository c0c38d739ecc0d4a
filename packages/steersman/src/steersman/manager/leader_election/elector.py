"""Acquires and renews a Lease.

The algorithm and the fields of the Lease are those of client-go, with these differences:

- Leadership starts at the time when the last successful renewal was *sent*, and ``Fence`` rejects writes after it.
- No renewal is sent while the event loop of the manager is blocked, so that a hanging replica loses the Lease.
- Replicas on standby watch the Lease, besides reading it every two seconds, and notice a release at once.
- A leader that reads another holder (or none) in the Lease steps down at once instead of waiting for its deadline.
- With a ``TermStore``, each leadership has a term that is higher than all before, also if the Lease is deleted.

Clocks of different machines are never compared: a standby measures by its own clock for how long the Lease has not
changed. Source: "Leases"; k8s.io/client-go/tools/leaderelection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.client import Client, MergePatch, Transport
from steersman.errors import Conflict, LeadershipLost, NotFound, SteersmanError
from steersman.manager.leader_election.fence import Fence, FencedTransport, MonotonicClock, suspend_aware_clock
from steersman.manager.leader_election.terms import TermStore, next_term
from steersman.meta import ObjectKey, ObjectMeta, OwnerReference
from steersman.meta.go_json import MicroTime
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

log = get_logger("leader election")

_JITTER = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """Settings of leader election. The defaults are those of client-go.

    Attributes:
        name: name of the Lease: the same in all replicas, and used by no other operator.
        namespace: namespace of the Lease, usually that of the pods.
        identity: identity of this replica, unique per process. Defaults to the name of the pod and a random suffix.
        lease_duration: seconds without a renewal after which another replica may acquire the Lease.
        renew_deadline: seconds without a successful renewal after which the leader steps down.
        retry_period: seconds between renewals, and between attempts to acquire the Lease.

    Raises:
        ValueError: ``lease_duration > renew_deadline > 1.2 * retry_period > 0`` is false, ``lease_duration`` is not
            an int, or name or namespace is empty.
    """

    name: str
    namespace: str
    identity: str = ""
    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.name or not self.namespace:
            raise ValueError("leader election needs the name and the namespace of its Lease")
        if not isinstance(self.lease_duration, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"lease_duration must be an int, not {self.lease_duration!r}: Leases have whole seconds")
        if not self.lease_duration > self.renew_deadline > self.retry_period * (1 + _JITTER) > 0:
            raise ValueError(
                "leader election needs lease_duration > renew_deadline > 1.2 * retry_period > 0, "
                f"not {self.lease_duration:g}, {self.renew_deadline:g} and {self.retry_period:g}"
            )

    @property
    def clock_drift_margin(self) -> float:
        """Seconds by which writes stop before the Lease expires.

        The margin allows for clocks that differ in speed.
        """
        return (self.lease_duration - self.renew_deadline) / 5

    @property
    def heartbeat_timeout(self) -> float:
        """Maximum age in seconds of the event loop's heartbeat.

        The Lease is not renewed while the heartbeat is older. The value is half of ``renew_deadline``. The leader
        survives a pause of that length, and is replaced if its event loop hangs.
        """
        return self.renew_deadline / 2


class LeaderElector:
    """Leader election of one process.

    Call ``acquire``, then ``renew`` until it raises, and ``release`` at shutdown.

    Args:
        transport: transport to the API server, without a fence.
        fence: is opened and closed according to the leadership.
        clock: clock of ``fence``.
        is_alive: the Lease is neither acquired nor renewed while it returns False.
        terms: gives each leadership a term. A term is recorded before ``acquire`` returns. A missing Lease is
            created only after ``lease_duration``, and its leader steps down. Defaults to no terms.
        owner_references: owners of a Lease that the elector creates.

    Attributes:
        identity: the holder that the Lease names.
        term: term of the leadership, or of the last one. 0 before the first one and without ``terms``.
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
        terms: TermStore | None = None,
        owner_references: Sequence[OwnerReference] = (),
    ) -> None:
        self.term = 0
        self.identity = options.identity or default_identity(runtime)
        self._client = Client(FencedTransport(transport, self._check_before_write), field_manager="leader-election")
        self._options = options
        self._key = ObjectKey(options.namespace, options.name)
        self._fence = fence
        self._runtime = runtime
        self._clock = clock
        self._is_alive = is_alive
        self._terms = terms
        self._owner_references = tuple(owner_references)
        self._observed_record = LeaseSpec()
        self._uid = self._resource_version = ""
        self._observed_at = float("-inf")
        self._absent_since: float | None = None
        self._absent_term = 0
        self._not_before = float("-inf")
        self._renewed_at = float("-inf")
        self._leading = False
        # A write whose response was lost may have succeeded.
        self._may_hold_lease = False
        self._released = asyncio.Event()
        self._log = log.bind(lease=str(self._key), identity=self.identity)
        self._master_status = metrics.leader_election_master_status.labels(options.name)
        self._master_status.set(0)
        self._slow_path = metrics.leader_election_slowpath.labels(options.name)

    @property
    def observed(self) -> LeaseSpec:
        """The Lease as last read or written. Empty before that, and after a term that a deletion ended."""
        return self._observed_record

    @property
    def deadline(self) -> float:
        """Time of the clock until which the leader may lead."""
        return self._renewed_at + self._options.renew_deadline

    async def acquire(self) -> None:
        """Wait until this process is the leader."""
        self._log.info("attempting to acquire leader lease")
        watch_task = self._runtime.spawn(self._watch_for_release(), "lease watch")
        try:
            while not await self._run_attempt(self._try_acquire, self._acquire_timeout):
                await self._wait_for_release(self._jittered_period())
        finally:
            watch_task.cancel()
            await asyncio.gather(watch_task, return_exceptions=True)
        self._leading = True
        self._master_status.set(1)
        self._log.info("successfully acquired lease", transitions=self._observed_record.lease_transitions)

    async def renew(self) -> None:
        """Renew the Lease until leadership is lost.

        Raises:
            LeadershipLost: no renewal succeeded within ``renew_deadline``, or another process holds the Lease. The
                fence is closed.
        """
        while self._is_holder and self._seconds_left() > 0:
            await asyncio.sleep(min(self._jittered_period(), self._seconds_left()))
            if self._seconds_left() > 0:
                await self._run_attempt(self._try_renew)
        self._stop_leading()
        if self._is_holder:
            raise LeadershipLost(
                f"Lease {self._key} could not be renewed within {self._options.renew_deadline:g} s; "
                "another replica may acquire it"
            )
        holder = self._observed_record.holder_identity
        raise LeadershipLost(
            f"Lease {self._key} is held by {holder!r}" if holder else f"Lease {self._key} was released or deleted"
        )

    async def release(self) -> None:
        """Release the Lease for other replicas. Errors are logged, since the Lease expires anyway."""
        self._fence.close()
        if (self._leading or self._may_hold_lease) and await self._run_attempt(self._try_release):
            self._log.info("released lease")
        self._stop_leading()

    # Single attempts

    async def _try_acquire(self) -> bool:
        if self._clock() < self._not_before:
            return False
        highest = 0 if self._terms is None else await self._terms.highest()
        try:
            self._observe(await self._client.get(Lease, self._key))
        except NotFound:
            self._observe_absence(highest)
            # A deleted Lease may have a leader that does not know yet. The store may have been deleted with it.
            if self._terms is not None and self._clock() < self._absent_until:
                return False
            return await self._create(self._next_transitions(highest)) and await self._begin_term()
        if not self._is_holder and self._is_lease_valid:
            return False
        return await self._write(self._acquire_spec(highest)) and await self._begin_term()

    async def _try_renew(self) -> bool:
        try:
            return await self._write(self._renew_spec())
        except (Conflict, NotFound):
            # Another process wrote it, or an earlier renewal succeeded and its response was lost.
            self._slow_path.inc()
        uid = self._uid
        try:
            self._observe(await self._client.get(Lease, self._key))
        except NotFound:
            if self._terms is None:
                return await self._create(self._observed_record.lease_transitions or 0)
            self._uid = ""
        if self._terms is not None and self._uid != uid:
            # Candidates count from the deletion, and would not notice a Lease that is created with the same term.
            self._observed_record = LeaseSpec()
        return self._is_holder and await self._write(self._renew_spec())

    async def _try_release(self) -> bool:
        if self._leading:
            try:
                await self._patch(self._release_spec())
                return True
            except Conflict:
                # It may be our own renewal, whose response was lost: read the Lease to find out.
                pass
        self._observe(await self._client.get(Lease, self._key))
        if self._is_holder:
            await self._patch(self._release_spec())
        return self._is_holder

    @property
    def _acquire_timeout(self) -> float:
        """Seconds for an attempt to acquire the Lease. With terms, it needs more requests."""
        deadline = self._options.renew_deadline
        return deadline / 2 if self._terms is None else max(deadline / 2, deadline - self._options.retry_period)

    async def _run_attempt(self, attempt: Callable[[], Awaitable[bool]], timeout: float = 0.0) -> bool:
        """Return True if the attempt succeeded.

        Errors are logged, since another attempt follows. ``timeout`` defaults to half of the renew deadline.
        """
        timeout = timeout or self._options.renew_deadline / 2
        try:
            async with asyncio.timeout(min(timeout, self._seconds_left()) if self._leading else timeout):
                return await attempt()
        except Conflict:
            self._log.debug("another replica wrote the lease first")
        except TimeoutError:
            self._log.warning("lease request timed out", leading=self._leading)
        except SteersmanError as error:
            self._log.warning("failed to acquire or renew lease", leading=self._leading, error=str(error))
        return False

    # Observed state of the Lease

    @property
    def _is_holder(self) -> bool:
        return self._observed_record.holder_identity == self.identity

    @property
    def _is_lease_valid(self) -> bool:
        # The duration is the holder's, the clock is ours: it starts when the record was seen to change.
        duration = self._observed_record.lease_duration_seconds or 0
        return bool(self._observed_record.holder_identity) and self._clock() < self._observed_at + duration

    @property
    def _absent_until(self) -> float:
        """Time at which the leader of a deleted Lease has stepped down."""
        assert self._absent_since is not None
        duration = self._observed_record.lease_duration_seconds or 0
        return self._absent_since + max(duration, self._options.lease_duration)

    def _seconds_left(self) -> float:
        """Seconds until the leader has to step down."""
        return self.deadline - self._clock()

    def _observe_absence(self, highest: int) -> None:
        # With a higher term, another candidate has led meanwhile.
        if self._absent_since is None or highest != self._absent_term:
            self._absent_since, self._absent_term = self._clock(), highest

    def _observe(self, lease: Lease) -> None:
        self._absent_since = None
        self._uid, self._resource_version = lease.metadata.uid, lease.metadata.resource_version
        if lease.spec != self._observed_record:
            self._observed_record, self._observed_at = lease.spec, self._clock()

    def _check_before_write(self) -> None:
        """Raise LeadershipLost if the Lease must not be written.

        The check runs right before a write, since the process may have been suspended.
        """
        if not self._is_alive():
            raise LeadershipLost("the event loop of this process is blocked; the lease is not renewed")
        if self._leading and self._seconds_left() <= 0:
            raise LeadershipLost("this process was suspended for longer than the renew deadline")

    def _stop_leading(self) -> None:
        self._fence.close()
        self._leading = self._may_hold_lease = False
        self._master_status.set(0)

    # Writes of the Lease

    async def _create(self, transitions: int) -> bool:
        self._may_hold_lease = True
        sent_at = self._clock()
        metadata = ObjectMeta(
            name=self._options.name, namespace=self._options.namespace, owner_references=self._owner_references
        )
        now = self._runtime.clock.now()
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._options.lease_duration,
            acquire_time=now,
            renew_time=now,
            lease_transitions=transitions,
        )
        return self._record_success(await self._client.create(Lease(metadata=metadata, spec=spec)), sent_at)

    async def _write(self, spec: dict[str, Any]) -> bool:
        self._may_hold_lease = True
        sent_at = self._clock()
        return self._record_success(await self._patch(spec), sent_at)

    async def _patch(self, spec: dict[str, Any]) -> Lease:
        # A merge patch keeps unknown fields. The resourceVersion makes it a compare-and-swap.
        body = {"metadata": {"resourceVersion": self._resource_version}, "spec": spec}
        return await self._client.patch(Lease, self._key, MergePatch(body))

    def _record_success(self, lease: Lease, sent_at: float) -> bool:
        self._observe(lease)
        self._renewed_at = sent_at
        # Before its term is recorded, another candidate could use the same one.
        if self._terms is None or self._leading:
            self._open_fence()
        return True

    async def _begin_term(self) -> bool:
        """Record the term of the acquired Lease. Return False if it must not be used."""
        if self._terms is None:
            return True
        term = self._observed_record.lease_transitions or 0
        if not await self._terms.record(term):
            # The Lease was deleted between its creation and the record of another leader, which may still lead.
            self._not_before = self._clock() + self._options.lease_duration
            return False
        self.term = term
        # After slow requests, the term would end soon after it begins.
        is_late = self._seconds_left() < self._options.renew_deadline - self._options.retry_period
        if is_late and not await self._try_renew():
            return False
        self._open_fence()
        return True

    def _open_fence(self) -> None:
        duration = self._options.lease_duration - self._options.clock_drift_margin
        self._fence.open_until(self._renewed_at + duration)

    def _renew_spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._options.lease_duration,
            "renewTime": self._now(),
        }

    def _acquire_spec(self, highest: int) -> dict[str, Any]:
        # An earlier process with the same identity is another leadership, and needs another term.
        if self._is_holder and self._terms is None:
            return self._renew_spec()
        transitions = next_term(self._observed_record.lease_transitions or 0, highest)
        return self._renew_spec() | {"acquireTime": self._now(), "leaseTransitions": transitions}

    def _next_transitions(self, highest: int) -> int:
        """``leaseTransitions`` of a Lease that is created. client-go starts at 0."""
        known = self._observed_record.lease_transitions or 0
        return known if self._terms is None else next_term(known, highest)

    def _release_spec(self) -> dict[str, Any]:
        now = self._now()
        return {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}

    def _now(self) -> str:
        return str(MicroTime.combine((now := self._runtime.clock.now()).date(), now.timetz()))

    # Waits and watches

    def _jittered_period(self) -> float:
        return self._options.retry_period * (1 + _JITTER * self._runtime.random.random())

    async def _wait_for_release(self, seconds: float) -> None:
        """Wait until the Lease is released, at most ``seconds``."""
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
                # Polling still notices the release, only later.
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
    """The name of the pod and a random UUID.

    The name is ``$POD_NAME``, or else the host name.
    """
    unique = uuid.UUID(int=runtime.random.getrandbits(128), version=4)
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{unique}"
