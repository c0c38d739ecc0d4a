"""The loop of the sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from msgspec import ValidationError
from steersman.client import Client, Transport
from steersman.errors import LeadershipLost, SteersmanError
from steersman.manager.leader_election import Fence, LeaderElection, LeaderElector
from steersman.meta import OwnerReference
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

from leader_operator.api.v1.leaderservice import LeaderService
from leader_operator.sidecar.health import FAILURE_THRESHOLD, HEALTH_TIMEOUT_SECONDS, HealthCheck
from leader_operator.sidecar.settings import SidecarSettings, pod_of
from leader_operator.sidecar.terms import LeaderServiceChanged, LeaderServiceTerms

log = get_logger("sidecar")

FIELD_MANAGER = "leader-sidecar"
LEASE_SUFFIX = "-leader"
_CHECK_INTERVAL_SECONDS = 0.5


class Application(Protocol):
    """The processes that the sidecar ends."""

    def containers(self) -> Mapping[str, frozenset[int]]:
        """Return the running processes of each container."""
        ...

    def problem(self) -> str:
        """Return why the processes could not be ended; empty if they can."""
        ...

    async def stop(self, containers: Iterable[str], kill_at: float) -> None:
        """End all processes of ``containers``; return when none is left."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderReport:
    """Response of ``GET /leader``.

    Attributes:
        leader: name of the leading pod. Empty if there is none.
        leading: True if this pod leads.
        term: term of the leader.
        valid_seconds: seconds for which ``leading`` is certain without another renewal. 0 if it does not lead.
    """

    leader: str = ""
    leading: bool = False
    term: int = 0
    valid_seconds: float = 0.0


class Sidecar:
    """Leads for one pod.

    Args:
        transport: transport to the API server, without retries.
        application: the processes to end.
        check_health: False while the application must not lead.
        runtime: its clock must include suspended time.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        transport: Transport,
        application: Application,
        check_health: HealthCheck,
        runtime: Runtime,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._client = Client(transport, field_manager=FIELD_MANAGER)
        self._application = application
        self._check_health = check_health
        self._runtime = runtime
        self._elector: LeaderElector | None = None
        self._leading = False
        self._problem = ""
        self._stopping = asyncio.Event()

    def report(self) -> LeaderReport:
        """Report the leader as far as this pod knows."""
        if self._elector is None:
            return LeaderReport()
        observed = self._elector.observed
        valid_seconds = self._elector.deadline - self._now()
        # The clock decides, and not the state: the loop may not have run since the deadline.
        if self._leading and valid_seconds > 0:
            term = self._elector.term
            return LeaderReport(leader=self._settings.pod, leading=True, term=term, valid_seconds=valid_seconds)
        holder, uid = pod_of(observed.holder_identity or "")
        other = holder if uid != self._settings.pod_uid else ""
        return LeaderReport(leader=other, term=observed.lease_transitions or 0)

    def stop(self) -> None:
        """End the term, if there is one, and let ``run`` return."""
        self._stopping.set()

    async def run(self) -> None:
        """Lead whenever this pod is elected, until ``stop``."""
        while not self._stopping.is_set():
            try:
                await self._run_election()
            except LeaderServiceChanged as change:
                log.info("election begins again", service=str(self._settings.service), reason=str(change))
            except (SteersmanError, OSError, ValidationError) as error:
                # A crash of the sidecar would end the application, also that of a follower.
                log.warning("election failed", service=str(self._settings.service), error=repr(error))
                await self._sleep(self._settings.retry_period)

    async def _run_election(self) -> None:
        """Wait for the leadership, lead once, and release the Lease."""
        async with asyncio.timeout(self._settings.renew_deadline):
            service = await self._client.get(LeaderService, self._settings.service)
        if service.spec.fencing != "Sidecar":
            return await self._wait_for_fencing(service)
        elector = self._elector = self._new_elector(service)
        try:
            if await self._acquire(elector):
                await self._lead(elector, service.spec.termination_seconds)
        finally:
            # After the application has ended: the release lets another pod lead at once.
            await elector.release()

    async def _acquire(self, elector: LeaderElector) -> bool:
        """Compete for the Lease while the application may lead. Return True if this pod leads."""
        while not await self._may_lead():
            if await self._sleep(self._settings.retry_period):
                return False
        acquisition = self._runtime.spawn(elector.acquire(), "acquire")
        try:
            while not acquisition.done():
                if self._stopping.is_set() or not await self._may_lead():
                    return False
                await asyncio.wait([acquisition], timeout=_CHECK_INTERVAL_SECONDS)
            acquisition.result()
            return True
        finally:
            acquisition.cancel()
            await asyncio.gather(acquisition, return_exceptions=True)

    async def _lead(self, elector: LeaderElector, termination_seconds: float) -> None:
        """Lead until the term ends, then end the application."""
        containers = frozenset(self._application.containers())
        self._leading = True
        log.info("this pod leads", service=str(self._settings.service), term=elector.term)
        renewal = self._runtime.spawn(elector.renew(), "renew")
        exclusion = self._runtime.spawn(self._wait_for_exclusion(elector.term), "exclusion")
        reason = "an error of the sidecar"
        try:
            reason = await self._wait_for_end(elector, renewal, exclusion, containers)
        finally:
            exclusion.cancel()
            self._leading = False
            log.warning("the term ends", service=str(self._settings.service), term=elector.term, reason=reason)
            # The renewal continues, so that no other pod leads while the application ends.
            await self._end_application(elector, termination_seconds)
            renewal.cancel()
            await asyncio.gather(renewal, exclusion, return_exceptions=True)

    async def _end_application(self, elector: LeaderElector, termination_seconds: float) -> None:
        began = self._now()
        while True:
            try:
                # Containers that start from now on receive no response that this pod leads.
                containers = self._application.containers()
                await self._application.stop(containers, self._kill_at(elector, began, termination_seconds))
                break
            except Exception:
                # The Lease must not be released while a process may run.
                log.exception("the application has not ended, and the sidecar tries again")
                await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
        log.info("the application has ended", containers=len(containers), seconds=round(self._now() - began, 1))

    def _kill_at(self, elector: LeaderElector, now: float, termination_seconds: float) -> float:
        """Time of SIGKILL. It leaves the kill margin before the Lease passes."""
        if elector.observed.holder_identity != elector.identity:
            # Another pod may lead already.
            return now
        return min(now, elector.deadline) + termination_seconds

    async def _wait_for_end(
        self,
        elector: LeaderElector,
        renewal: asyncio.Task[None],
        exclusion: asyncio.Task[None],
        containers: frozenset[str],
    ) -> str:
        """Return why the term ends."""
        failures = 0
        while not renewal.done():
            if self._stopping.is_set():
                return "the pod ends"
            if self._now() >= elector.deadline:
                return "the renew deadline has passed"
            if exclusion.done():
                return "spec.minTerm requires a higher term"
            # A container that starts later may be the one that writes.
            running = frozenset(self._application.containers())
            if not containers or not containers <= running:
                return "a container of the application has ended"
            containers = running
            failures = 0 if await self._is_healthy() else failures + 1
            if failures >= FAILURE_THRESHOLD:
                return f"the health check failed {failures} times"
            await asyncio.wait([renewal], timeout=_CHECK_INTERVAL_SECONDS)
        error = renewal.exception()
        if error is not None and not isinstance(error, LeadershipLost):
            raise error
        return str(error)

    async def _wait_for_exclusion(self, term: int) -> None:
        """Wait until ``spec.minTerm`` excludes ``term``.

        After a restore of etcd, stores refuse such a term.
        """
        while True:
            await asyncio.sleep(self._settings.renew_deadline)
            try:
                async with asyncio.timeout(self._settings.renew_deadline):
                    service = await self._client.get(LeaderService, self._settings.service)
            except (SteersmanError, TimeoutError, ValidationError):
                # The renewal decides whether the API server is unreachable for too long.
                continue
            if service.spec.min_term >= term:
                return

    async def _may_lead(self) -> bool:
        problem = self._application.problem()
        if problem != self._problem and problem:
            log.error("this pod cannot lead", problem=problem)
        self._problem = problem
        return not problem and bool(self._application.containers()) and await self._is_healthy()

    async def _is_healthy(self) -> bool:
        """Return the health of the application. The time limit keeps the deadline of the term."""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
                return await self._check_health()
        except TimeoutError:
            return False

    async def _wait_for_fencing(self, service: LeaderService) -> None:
        log.warning("the LeaderService has no fencing by sidecar: set fencing: Sidecar", service=str(service.key))
        await self._sleep(10 * self._settings.retry_period)

    def _new_elector(self, service: LeaderService) -> LeaderElector:
        settings, resource = self._settings, LeaderService.api_resource
        options = LeaderElection(
            name=lease_name(service.metadata.name),
            namespace=service.metadata.namespace,
            identity=settings.identity,
            lease_duration=ceil(settings.renew_deadline + service.spec.termination_seconds + settings.kill_margin),
            renew_deadline=settings.renew_deadline,
            retry_period=settings.retry_period,
        )
        owner = OwnerReference(
            api_version=f"{resource.group}/{resource.version}",
            kind=resource.kind,
            name=service.metadata.name,
            uid=service.metadata.uid,
            controller=True,
        )
        return LeaderElector(
            self._transport,
            options,
            Fence(self._runtime.clock.monotonic),
            runtime=self._runtime,
            clock=self._runtime.clock.monotonic,
            terms=LeaderServiceTerms(self._client, service),
            owner_references=[owner],
        )

    def _now(self) -> float:
        return self._runtime.clock.monotonic()

    async def _sleep(self, seconds: float) -> bool:
        """Sleep. Return True at once if the sidecar stops."""
        waiting = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()
        return self._stopping.is_set()


def lease_name(service: str) -> str:
    """Return the name of the Lease of a LeaderService."""
    return f"{service}{LEASE_SUFFIX}"
