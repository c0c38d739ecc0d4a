"""Reconciles ``PostgreSQLCluster``: what surrounds the instances, their shared settings, then one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from steersman.controller import Context, Reconciler, Request, Result, add_finalizer
from steersman.errors import BadRequest, Conflict, Forbidden, Invalid
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterStatus
from steersman_databases.api.postgresql_cluster import ClusterPhase
from steersman_databases.clusters.keyring import Keyring, KeysWish
from steersman_databases.clusters.observed import Observed
from steersman_databases.clusters.plan import next_step
from steersman_databases.clusters.steps import ChooseSwitchover, EndSwitchover, RestartServer, Step, SwitchOver, Wait
from steersman_databases.clusters.trouble import trouble_of
from steersman_databases.clusters.view import view_of
from steersman_databases.controllers import cluster_status, requests
from steersman_databases.controllers.cluster_deletion import FINALIZER, ClusterDeletion
from steersman_databases.controllers.cluster_status import Findings
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.instances import Instances, Seen
from steersman_databases.controllers.keys import ClusterKeys, DataOfCluster
from steersman_databases.controllers.outcome import RECHECK_SECONDS, Blocked
from steersman_databases.controllers.poolers import Console, Poolers, no_console
from steersman_databases.controllers.routing import route
from steersman_databases.controllers.serving import Ask, Serving, Shower
from steersman_databases.controllers.settings import AskSettings, Settings
from steersman_databases.controllers.surroundings import Surroundings
from steersman_databases.controllers.volumes import Volumes
from steersman_databases.engines.cluster import ClusterEngine
from steersman_databases.engines.errors import EngineError, UnsupportedVersion
from steersman_databases.engines.topology import Topology
from steersman_databases.engines.versions import image
from steersman_databases.resources.cluster_services import declared_services

# While something is going on, the next look comes soon: not every change that matters is one of an object.
_BUSY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """What the controller needs of an engine.

    Attributes:
        shown: asks a server for its certificate; None where nobody does.
        console: has a pooler do something, likewise.
        settings: asks a server for its parameters, likewise.
    """

    engine: ClusterEngine
    topology: Topology
    shown: Ask | None = None
    console: Console | None = None
    settings: AskSettings | None = None


class PostgreSQLClusterReconciler(Reconciler[PostgreSQLCluster]):
    """Keeps the instances of each ``PostgreSQLCluster``.

    Args:
        context: from the controller.
        parts: from the context, the engine's part and its members.
    """

    def __init__(self, context: Context, parts: Callable[[Context], ClusterParts]) -> None:
        super().__init__(context)
        self._parts = parts(context)
        clock, ask, console = context.runtime.clock, self._parts.shown, self._parts.console
        self._serving = None if ask is None else Serving(self._parts.engine.port, clock, ask)
        self._settings = Settings(self._parts.engine, self._parts.topology, clock, self._parts.settings)
        self._poolers = Poolers(clock, console or no_console)

    async def reconcile(self, request: Request) -> Result:
        cluster = await self.client.get(PostgreSQLCluster, request)
        if cluster.metadata.deletion_timestamp is not None:
            return await self._delete(cluster)
        try:
            available = image("postgresql", cluster.spec.version)
        except UnsupportedVersion as error:
            findings = Findings()
            findings.tell("Ready", False, "UnsupportedVersion", f"spec.version: {error}")
            await self._report(cluster, _Report(findings))
            return Result()
        charge = self._charge(cluster, available)
        if charge.view.requests.paused:
            return await self._pause(charge, cluster)
        cluster = await add_finalizer(self.client, cluster, FINALIZER)
        report = await self._advance(self._charge(cluster, available), cluster, available)
        if report is None:
            return Result()
        await self._report(cluster, report)
        return Result(requeue_after=self._jittered(report.retry_after))

    def _charge(self, cluster: PostgreSQLCluster, available: str) -> Charge:
        return Charge(
            cluster=cluster,
            view=view_of(cluster, available),
            client=self.client,
            events=self.events,
            clock=self.runtime.clock,
        )

    async def _advance(self, charge: Charge, cluster: PostgreSQLCluster, available: str) -> _Report | None:
        """Everything up to and including one step. None where nothing can be told any more."""
        instances = Instances(charge, self._parts.engine, self._parts.topology)
        seen = await instances.look()
        report = _Report(Findings(), charge, seen.observed, available)
        self._judge(charge, seen.observed, report)
        try:
            step = await self._step(charge, cluster, instances, seen, report)
        except Blocked as blocked:
            report.findings.tell("Ready", False, blocked.outcome.reason, blocked.outcome.message)
        except Conflict:
            # Somebody was faster; what there is now is looked at at once.
            raise
        except (Forbidden, Invalid, BadRequest) as error:
            if isinstance(error, Forbidden) and error.namespace_terminating:
                return None
            # Quota, admission policies, our own RBAC: the API server's words are the best advice there is.
            report.findings.tell("Ready", False, type(error).__name__, str(error))
        except EngineError as error:
            report.findings.tell("Ready", False, "InstanceNotReady", str(error))
        else:
            self._describe(charge, cluster, step, report)
        return report

    async def _step(
        self, charge: Charge, cluster: PostgreSQLCluster, instances: Instances, seen: Seen, report: _Report
    ) -> Step | Wait | None:
        observed, view, spec, findings = seen.observed, charge.view, cluster.spec, report.findings
        volumes = Volumes(charge)
        volumes.check_adopted(seen.in_use)
        surroundings = Surroundings(charge, self._parts.engine)
        wish = KeysWish(
            services=[s.name for s in spec.services.additional],
            given=None if spec.tls.server_secret is None else spec.tls.server_secret.name,
            pooler=spec.pooler is not None,
            application=spec.bootstrap is not None,
        )
        data = DataOfCluster(claims=seen.in_use, initialized=observed.members.initialized)
        keys = await ClusterKeys(charge, self._parts.engine).ensure(wish, data)
        finding = keys.ring.finding
        findings.tell("CertificatesValid", finding.valid, finding.reason, finding.message)
        numbers = [i.number for i in observed.instances]
        await surroundings.ensure_access([*numbers, observed.next_number])
        await surroundings.ensure_services(declared_services(view, spec.services))
        budget = spec.pod_disruption_budget
        await surroundings.ensure_policies(
            max_unavailable=budget.max_unavailable if budget.enabled and spec.instances > 1 else None,
            network=spec.network_policy == "Managed",
        )
        await self._poolers.ensure(charge, spec.pooler)
        await self._follow(charge, observed, keys.ring)
        if seen.in_use:
            await surroundings.ensure_store(seen.in_use)
            # Before there is a member: it reads them as it makes the data.
            report.settles = not await self._settings.ensure(charge, observed, keys.ring, findings)
        storage = await volumes.grow(observed.instances)
        findings.tell("StorageAsDeclared", storage.reason == "Sized", storage.reason, storage.message)
        await volumes.clean_up(seen.claims, observed)
        await instances.ensure(observed)
        await route(charge, self._parts.topology, observed)
        step = next_step(view, observed)
        if report.settles and isinstance(step, RestartServer | SwitchOver):
            step = Wait("RollingOut", "waiting for the servers to read their parameters")
        if spec.pooler is not None:
            await self._pause_poolers(charge, observed, step, keys.ring)
        match step:
            case None | Wait():
                pass
            case ChooseSwitchover():
                await requests.choose(charge, step)
            case EndSwitchover():
                await requests.end(charge, cluster, step)
            case _:
                await instances.carry_out(step, observed)
        return step

    async def _follow(self, charge: Charge, observed: Observed, ring: Keyring) -> None:
        """Has servers and poolers show the certificate that they should."""
        if self._serving is None:
            return
        topology, members = self._parts.topology, observed.members
        showers = [
            Shower(i.pod, partial(topology.reload, members, i.member))
            for i in observed.instances
            if i.pod is not None and i.member is not None and i.pod_ready
        ]
        poolers = self._poolers.showers(await self._poolers.pods(charge), ring)
        await self._serving.follow(charge, [*showers, *poolers], ring)

    async def _pause_poolers(
        self, charge: Charge, observed: Observed, step: Step | Wait | None, ring: Keyring
    ) -> None:
        if self._parts.console is None:
            return
        pods = await self._poolers.pods(charge)
        if isinstance(step, SwitchOver):
            await self._poolers.hold(charge, pods, ring)
            return
        members = observed.members
        handing_over = members.switchover is not None or members.primary is None
        await self._poolers.release(charge, pods, ring, handing_over=handing_over)

    def _judge(self, charge: Charge, observed: Observed, report: _Report) -> None:
        """What is seen without doing anything."""
        cluster_status.judge_available(charge.view, observed, report.findings)
        cluster_status.judge_synchronous(charge.view, observed, report.findings)
        cluster_status.judge_upgraded(charge.view, observed, report.available, report.findings)

    def _describe(
        self, charge: Charge, cluster: PostgreSQLCluster, step: Step | Wait | None, report: _Report
    ) -> None:
        observed, findings = report.observed, report.findings
        assert observed is not None
        cluster_status.describe(cluster, charge.view, step, findings)
        if isinstance(step, Wait) and (trouble := trouble_of(observed.instances)):
            findings.tell("Ready", False, trouble.reason, trouble.message)
        if isinstance(step, SwitchOver):
            report.switches_to = charge.view.names.instance(step.to)
        report.busy = step is not None and not (isinstance(step, Wait) and step.reason in ("Hibernated", "Fenced"))

    async def _delete(self, cluster: PostgreSQLCluster) -> Result:
        charge = self._charge(cluster, "")
        seen = await Instances(charge, self._parts.engine, self._parts.topology).look()
        outcome = await ClusterDeletion(charge).advance(seen.observed, seen.claims)
        if outcome is None:
            self._poolers.forget(cluster.key)
            self._settings.forget(cluster.key)
            if self._serving is not None:
                self._serving.forget(cluster.key)
            return Result()
        findings = Findings()
        findings.tell("Ready", False, outcome.reason, outcome.message)
        await self._report(cluster, _Report(findings, charge, seen.observed, phase="Deleting"))
        return Result(requeue_after=self._jittered(_BUSY_SECONDS))

    async def _pause(self, charge: Charge, cluster: PostgreSQLCluster) -> Result:
        """Looks and tells, and writes nothing but the status."""
        seen = await Instances(charge, self._parts.engine, self._parts.topology).look()
        report = _Report(Findings(), charge, seen.observed)
        cluster_status.judge_available(charge.view, seen.observed, report.findings)
        report.findings.tell("Paused", True, "ByAnnotation", "nothing is written for this cluster")
        await self._report(cluster, report)
        return Result(requeue_after=self._jittered(RECHECK_SECONDS))

    async def _report(self, cluster: PostgreSQLCluster, report: _Report) -> None:
        if not (report.charge is not None and report.charge.view.requests.paused):
            report.findings.drop("Paused")
        if self._status(cluster, cluster.status, report) == cluster.status:
            return
        # The cache may not hold our last status yet, and nobody should read the same news twice.
        former = (await self.client.live.get(PostgreSQLCluster, cluster.key)).status or PostgreSQLClusterStatus()
        status = self._status(cluster, former, report)
        await self.client.apply_status(cluster, status)
        for condition in cluster_status.news(former.conditions, status.conditions):
            emit = self.events.warning if condition.reason in cluster_status.ALARMING else self.events.normal
            emit(cluster, condition.reason, condition.message)
        self._tell_failover(cluster, former, status)

    def _status(
        self, cluster: PostgreSQLCluster, former: PostgreSQLClusterStatus | None, report: _Report
    ) -> PostgreSQLClusterStatus:
        former, now = former or PostgreSQLClusterStatus(), self.runtime.clock.now()
        seen = None
        if report.charge is not None and report.observed is not None:
            seen = report.charge.view, report.observed
        phase = report.phase or cluster_status.phase_of(cluster, report.findings)
        status = cluster_status.status_of(former, cluster.metadata.generation, phase, seen)
        other = None if report.available in ("", status.image) else report.available
        conditions = cluster_status.conditions_of(cluster, former.conditions, report.findings, now)
        status = msgspec.structs.replace(status, available_image=other, conditions=conditions)
        last, to = status.last_switchover, report.switches_to
        if to and (last is None or last.to != to or last.outcome != "Requested"):
            status = cluster_status.switched(status, "Requested", to=to, former=former.primary, now=now)
        return status

    def _tell_failover(
        self, cluster: PostgreSQLCluster, former: PostgreSQLClusterStatus, status: PostgreSQLClusterStatus
    ) -> None:
        if not status.primary or former.timeline in (None, status.timeline):
            return
        asked = former.last_switchover is not None and former.last_switchover.to == status.primary
        if not asked:
            message = f"{status.primary} took over: timeline {status.timeline} follows {former.timeline}"
            self.events.warning(cluster, "Failover", message)

    def _jittered(self, seconds: float) -> float:
        return seconds * (0.9 + 0.2 * self.runtime.random.random())


@dataclass(slots=True)
class _Report:
    """What a reconcile has to tell."""

    findings: Findings
    charge: Charge | None = None
    observed: Observed | None = None
    available: str = ""
    phase: ClusterPhase | None = None
    switches_to: str = ""
    busy: bool = True
    settles: bool = False

    @property
    def retry_after(self) -> float:
        return _BUSY_SECONDS if self.busy or self.settles else RECHECK_SECONDS
