"""Reconciles clusters of any engine: what surrounds the instances, their shared settings, then one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from steersman.api.core_v1 import Pod
from steersman.controller import (
    ReconcileOutcome,
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
    add_finalizer,
)
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman_databases.api import Cluster, ClusterStatus
from steersman_databases.api.cluster_parts import ClusterPhase
from steersman_databases.clusters.keyring import Keyring
from steersman_databases.clusters.observed import Observed
from steersman_databases.clusters.plan import next_step
from steersman_databases.clusters.steps import (
    ChooseSwitchover,
    EndReplacement,
    EndSwitchover,
    RestartServer,
    Step,
    SwitchOver,
    Wait,
)
from steersman_databases.clusters.trouble import trouble_of
from steersman_databases.clusters.view import declared_pooler, view_of
from steersman_databases.controllers import cluster_status, switchovers
from steersman_databases.controllers.accounts import Accounts
from steersman_databases.controllers.annotations import Annotations
from steersman_databases.controllers.cluster_deletion import FINALIZER, ClusterDeletion
from steersman_databases.controllers.cluster_status import Findings
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.failures import Failures, is_of_its_end, is_refusal
from steersman_databases.controllers.initial import Initial
from steersman_databases.controllers.instances import Instances, Seen
from steersman_databases.controllers.keys import ClusterKeys, DataOfCluster, Keys, wish_of
from steersman_databases.controllers.kinds import C, OwnOf
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.controllers.namesakes import older_namesake
from steersman_databases.controllers.outcome import RECHECK_SECONDS, Blocked, jittered
from steersman_databases.controllers.outpaced import Outpaced
from steersman_databases.controllers.parts import ClusterParts
from steersman_databases.controllers.patience import Patience
from steersman_databases.controllers.poolers import Poolers, is_away_after, is_starting, no_console, serving_in
from steersman_databases.controllers.refused import Refused
from steersman_databases.controllers.restarts import Restarts
from steersman_databases.controllers.routing import is_routed, route
from steersman_databases.controllers.servers import ContentsOf, Servers
from steersman_databases.controllers.serving import Serving, Shower
from steersman_databases.controllers.settings import Settings
from steersman_databases.controllers.surroundings import Surroundings
from steersman_databases.controllers.surveys import Surveys
from steersman_databases.controllers.upgrades import Upgrades, as_it_runs, due_of
from steersman_databases.controllers.volumes import Volumes
from steersman_databases.engines.errors import EngineError, UnsupportedVersion
from steersman_databases.engines.versions import image
from steersman_databases.resources.cluster_services import declared_services, names_taken

# While something is going on, the next look comes soon: not every change that matters is one of an object.
_BUSY_SECONDS = 2.0
# What ends by somebody's hand only.
_LASTING = frozenset({"DiskFull", "Hibernated", "Fenced", "SwitchoverRefused"})


class ClusterReconciler(RequestReconciler[C]):
    """Keeps the instances of each cluster of one kind.

    Args:
        context: from the controller.
        own: what is this kind's own.
        parts: from the context, the engine's part and its members.
        contents: finds what is inside servers of an engine.
        surveys: shared with the controllers of databases and users.
    """

    def __init__(
        self,
        context: ReconcilerContext,
        own: OwnOf[C],
        parts: Callable[[ReconcilerContext], ClusterParts],
        contents: ContentsOf,
        surveys: Surveys,
    ) -> None:
        super().__init__(context)
        self._own = own
        self._parts = parts(context).asked_with(Patience(context.runtime.clock))
        clock, ask, console = context.runtime.clock, self._parts.shown, self._parts.console
        self._serving = None if ask is None else Serving(self._parts.engine.port, clock, ask)
        asked = (self._parts.settings, self._parts.take_back, self._parts.try_out)
        self._settings = Settings(self._parts.engine, self._parts.topology, clock, *asked)
        self._poolers = Poolers(clock, console or no_console)
        self._refused = Refused(self.client.live, clock)
        self._failures = Failures(clock)
        self._annotations, self._restarts = Annotations(self.events), Restarts(clock)
        furnish, servers = self._parts.furnish, Servers(self.client, contents, clock)
        mark = ClusterMark(self.client)
        self._accounts = (
            None if furnish is None else Accounts(self._parts.engine, clock, furnish, mark, servers, surveys)
        )
        log_is_gone = self._parts.log_is_gone
        self._outpaced = None if log_is_gone is None else Outpaced(self._parts.engine, clock, log_is_gone)
        self._initial = Initial(self.client, own.kind, self._parts.engine, servers, surveys)

    async def reconcile(self, request: Request) -> Result:
        cluster = await self.client.get_or_none(self._own.kind, request)
        if cluster is None:
            self._forget(request)
            return Result()
        report = _Report(Findings())
        try:
            await self._attend(cluster, report)
        except ApiError as error:
            if is_of_its_end(error):
                return Result()
            if not (reason := self._failures.reason(request, error)):
                raise
            report.findings.tell_beside(reason, str(error))
            await self._report(cluster, report)
            if not is_refusal(error):
                raise
        else:
            if report.over:
                return Result()
            await self._report(cluster, report)
        return Result(requeue_after=jittered(report.retry_after, self.runtime.random))

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Keeps in mind how a reconcile ended; what is to be told of that, the next one tells."""
        self._failures.note(request, outcome.error)

    async def _attend(self, cluster: C, report: _Report) -> None:
        """All of a reconcile but for telling what it found."""
        self._annotations.look(cluster)
        if cluster.metadata.deletion_timestamp is not None:
            await self._delete(cluster, report)
            return
        if (problem := await self._problem(cluster)) is not None:
            report.findings.tell("Ready", False, *problem)
            return
        report.available = image(self._parts.engine.name, cluster.spec.version)
        report.charge = charge = self._charge(cluster, report.available)
        if charge.view.requests.paused:
            await self._pause(charge, cluster, report)
            return
        cluster = await add_finalizer(self.client, cluster, FINALIZER)
        await self._advance(self._charge(cluster, report.available), cluster, report)

    async def _problem(self, cluster: C) -> tuple[str, str] | None:
        """Why nothing at all may be done for it: a reason and its words."""
        try:
            image(self._parts.engine.name, cluster.spec.version)
        except UnsupportedVersion as error:
            return "UnsupportedVersion", f"spec.version: {error}"
        if words := self._own.refuses(cluster):
            return "UnsupportedVersion", words
        namesake = await older_namesake(self.client, cluster)
        if namesake is None:
            return None
        kind = type(namesake).api_resource.kind
        return "NameTaken", f"{kind} {namesake.metadata.name} is older, and its objects are called the same"

    def _charge(self, cluster: C, available: str) -> Charge:
        return Charge(
            cluster=cluster,
            view=view_of(cluster, available, cluster_domain=self._parts.cluster_domain),
            client=self.client,
            events=self.events,
            clock=self.runtime.clock,
        )

    async def _advance(self, charge: Charge, cluster: C, report: _Report) -> None:
        """Everything up to and including one step."""
        seen = await Instances(charge, self._parts.engine, self._parts.topology).regain()
        told = cluster.status.version or ""
        due = due_of(charge.view, told, seen.observed)
        if due is not None:
            charge = replace(charge, view=as_it_runs(charge.view, due))
            report.available = charge.view.image
        instances = Instances(charge, self._parts.engine, self._parts.topology, self._restarts)
        attempt = switchovers.attempt_of(charge.view, cluster.status, seen.observed.members)
        seen = replace(seen, observed=replace(seen.observed, attempt=attempt))
        upgrades = Upgrades(
            charge, self._parts.engine, self._parts.topology, self._parts.in_use, due, cluster.spec.image
        )
        report.charge, report.observed = charge, seen.observed
        self._annotations.look_at_fences(cluster, charge.view, seen.observed)
        self._judge(charge, seen.observed, report)
        try:
            step = await self._step(charge, cluster, _Hands(instances, upgrades), seen, report)
            await self._describe(charge, cluster, step, report)
            charge.aside.tell()
        except Blocked as blocked:
            report.findings.tell_beside(blocked.outcome.reason, blocked.outcome.message)
        except EngineError as error:
            report.findings.tell("Ready", False, "InstanceNotReady", str(error))
            report.busy = True

    async def _step(
        self, charge: Charge, cluster: C, hands: _Hands, seen: Seen, report: _Report
    ) -> Step | Wait | None:
        observed, findings = seen.observed, report.findings
        volumes, served = Volumes(charge), _has_served(cluster)
        volumes.check_adopted(seen.in_use, served=served)
        keys = await self._ensure_keys(charge, cluster, seen, findings)
        surroundings = await self._ensure_surroundings(charge, cluster, observed)
        managed = cluster.spec.network_policy == "Managed"
        deployments = await self._poolers.ensure(charge, declared_pooler(cluster), observed, network=managed)
        poolers = await self._poolers.pods(charge)
        cluster_status.judge_poolers(deployments, poolers, findings)
        strangers = await self._follow(charge, observed, keys.ring, poolers, findings)
        cluster_status.judge_trust(charge.view, observed, strangers, findings)
        observed = observed.with_estranged({uid for uid, lasting in strangers.items() if lasting})
        if seen.in_use:
            await surroundings.ensure_store(seen)
            # Before there is a member: it reads them as it makes the data.
            settled = await self._settings.ensure(charge, observed, keys.ring, findings, served=served)
            report.settles, observed = not settled.done, replace(observed, misread=settled.misread)
        if self._outpaced is not None:
            observed = await self._outpaced.look(charge.view.key, observed, keys.ring)
        storage = await volumes.grow(observed.instances)
        findings.tell("StorageAsDeclared", storage.reason == "Sized", storage.reason, storage.message)
        await volumes.clean_up(seen.claims, observed)
        # First: a StatefulSet may be refused, and clients are led all the same.
        await route(charge, self._parts.topology, observed)
        await hands.instances.ensure(observed)
        step = await hands.upgrades.go_on(observed, findings, settles=report.settles)
        if step is None:
            step = await hands.upgrades.begin(observed, keys.ring, findings, next_step(charge.view, observed))
        if report.settles and isinstance(step, RestartServer | SwitchOver):
            step = Wait("RollingOut", "waiting for the servers to read their parameters")
        if isinstance(step, SwitchOver):
            await switchovers.intend(charge, cluster, step, observed)
        if declared_pooler(cluster) is not None:
            waits = is_away_after(step, observed) or findings.says("Available", "Upgrading")
            await self._steer_poolers(charge, observed, keys.ring, poolers, waits=waits)
        match step:
            case None | Wait():
                pass
            case ChooseSwitchover():
                await switchovers.choose(charge, step)
            case EndSwitchover():
                await switchovers.end(charge, cluster, step, observed)
            case EndReplacement():
                await switchovers.end_replacement(charge, step)
            case _:
                await hands.instances.carry_out(step, observed)
        asked = charge.view.requests.switchover or observed.members.switchover is not None
        primary = observed.primary
        if not asked and (step is None or isinstance(step, Wait)) and primary is not None and primary.pod_ready:
            # A server that is about to stop may not answer for long, and poolers would wait for us with it.
            await self._look_inside(charge, cluster, observed, keys, findings)
        return step

    async def _look_inside(
        self, charge: Charge, cluster: C, observed: Observed, keys: Keys, findings: Findings
    ) -> None:
        """What is done by SQL at the primary."""
        if self._accounts is not None:
            await self._accounts.ensure(charge, cluster, observed, keys)
        if keys.application is not None:
            await self._initial.ensure(charge, cluster, keys.application, findings)
            if keys.owner_fault and findings.says("InitialDatabase", "DatabaseReady"):
                findings.tell("InitialDatabase", False, "OwnerSecretInvalid", keys.owner_fault)

    async def _ensure_keys(self, charge: Charge, cluster: C, seen: Seen, findings: Findings) -> Keys:
        keys = await ClusterKeys(charge, self._parts.engine).ensure(
            wish_of(charge.view, cluster), _data(cluster, seen)
        )
        finding = keys.ring.finding
        findings.tell("CertificatesValid", finding.valid, finding.reason, finding.message)
        return keys

    async def _ensure_surroundings(self, charge: Charge, cluster: C, observed: Observed) -> Surroundings:
        surroundings, spec = Surroundings(charge, self._parts.engine), cluster.spec
        numbers = [i.number for i in observed.instances]
        await surroundings.ensure_access([*numbers, observed.next_number])
        for taken in names_taken(charge.view, spec.services):
            raise Blocked("Failed", "NameTaken", f"spec.services.additional: {taken} is a Service of the operator's")
        await surroundings.ensure_services(declared_services(charge.view, spec.services), served=_has_served(cluster))
        budget = spec.pod_disruption_budget
        await surroundings.ensure_policies(
            max_unavailable=budget.max_unavailable if budget.enabled and spec.instances > 1 else None,
            network=spec.network_policy == "Managed",
            operator=self._parts.operator_namespace,
        )
        return surroundings

    async def _follow(
        self, charge: Charge, observed: Observed, ring: Keyring, poolers: Sequence[Pod], findings: Findings
    ) -> Mapping[str, bool]:
        """Has servers and poolers show the certificate that they should; gives the pods that cannot, see `Serving`.

        Of poolers nothing is lost but connections to servers that know them no more: they are made anew at once.
        """
        if self._serving is None:
            return {}
        topology, members = self._parts.topology, observed.members
        showers = [
            Shower(i.pod, partial(topology.reload, members, i.member))
            for i in observed.instances
            # Ready it need not be: who follows nobody may do so for want of these certificates.
            if i.pod is not None and i.member is not None and i.member.state in ("Running", "Streaming")
        ]
        showers += self._poolers.showers(poolers, ring)
        refusing = await self._serving.follow(charge, showers, ring, findings)
        for pod in poolers:
            if refusing.get(pod.metadata.uid):
                await charge.delete(Pod, pod)
        return refusing

    async def _steer_poolers(
        self, charge: Charge, observed: Observed, ring: Keyring, pods: Sequence[Pod], *, waits: bool
    ) -> None:
        """Has their clients wait, or go on with who serves now."""
        if self._parts.console is None:
            return
        if waits:
            await self._poolers.hold(charge, pods, ring)
            return
        members, attempt = observed.members, observed.attempt
        # The request may be seen to be gone before the new leader is seen.
        under_way = attempt is not None and not attempt.ended and members.leader != attempt.to
        away = under_way or is_starting(observed)
        handing_over = members.switchover is not None or away or not await is_routed(charge, observed)
        serving = serving_in(observed)
        await self._poolers.release(charge, pods, ring, serving=serving, handing_over=handing_over)

    def _judge(self, charge: Charge, observed: Observed, report: _Report) -> None:
        """What is seen without doing anything."""
        cluster_status.judge_available(charge.view, observed, report.findings)
        cluster_status.judge_storage(charge.view, observed, report.findings)
        cluster_status.judge_upgraded(charge.view, observed, report.available, report.findings)
        self._own.judge(charge.view, observed, report.findings)
        if self._accounts is not None:
            self._accounts.judge(charge.view.key, report.findings)

    async def _describe(self, charge: Charge, cluster: C, step: Step | Wait | None, report: _Report) -> None:
        observed, findings = report.observed, report.findings
        assert observed is not None
        cluster_status.describe(cluster, charge.view, step, findings)
        trouble = None
        if isinstance(step, Wait):
            trouble = trouble_of(observed.instances) or await self._refused.look(cluster.key, observed)
        if trouble is not None:
            findings.tell("Ready", False, trouble.reason, trouble.message)
        elif isinstance(step, Wait) and (
            broken := next((m for m in observed.members.members if m.state == "StartFailed" and m.because), None)
        ):
            name = charge.view.names.instance(broken.instance)
            findings.tell(
                "Ready", False, "InstanceCrashing", f"the server of {name} does not start: {broken.because}"
            )
        cluster_status.explain(charge.view, observed, findings)
        if isinstance(step, Wait) and step.reason == "SwitchoverRefused":
            report.refused = step.message
        report.busy = step is not None and not (isinstance(step, Wait) and step.reason in _LASTING)

    async def _delete(self, cluster: C, report: _Report) -> None:
        report.phase = "Deleting"
        report.charge = charge = self._charge(cluster, "")
        seen = await Instances(charge, self._parts.engine, self._parts.topology).regain()
        report.observed = seen.observed
        cluster_status.judge_ending(charge.view, seen.observed, report.findings)
        deletion = ClusterDeletion(charge, served=_has_served(cluster))
        outcome = await deletion.advance(seen.observed, seen.claims)
        if outcome is None:
            self._forget(cluster.key)
            report.over = True
            return
        report.findings.tell("Ready", False, outcome.reason, outcome.message)
        report.busy = True

    def _forget(self, cluster: ObjectKey) -> None:
        self._poolers.forget(cluster)
        self._settings.forget(cluster)
        self._initial.forget(cluster)
        self._annotations.forget(cluster)
        for each in (self._serving, self._accounts, self._outpaced, self._refused):
            if each is not None:
                each.forget(cluster)

    async def _pause(self, charge: Charge, cluster: C, report: _Report) -> None:
        """Looks and tells, and writes nothing but the status. Poolers that wait would do so until it is over."""
        self._initial.forget(cluster.key)
        report.findings.tell("Paused", True, "ByAnnotation", "nothing is written until it is deleted")
        seen = await Instances(charge, self._parts.engine, self._parts.topology).look()
        if declared_pooler(cluster) is not None and self._parts.console is not None:
            with suppress(Blocked):
                keys = ClusterKeys(charge, self._parts.engine)
                ring = await keys.present(wish_of(charge.view, cluster), _data(cluster, seen))
                pods = await self._poolers.pods(charge)
                await self._poolers.release(charge, pods, ring, serving=None, handing_over=False)
        report.observed = seen.observed
        cluster_status.judge_available(charge.view, seen.observed, report.findings)

    async def _report(self, cluster: C, report: _Report) -> None:
        if not (report.charge is not None and report.charge.view.requests.paused):
            report.findings.drop("Paused")
        if self._status(cluster, cluster.status, report) == cluster.status:
            return
        # The cache may not hold our last status yet, and nobody should read the same news twice.
        former = self._own.status_of(await self.client.live.get(self._own.kind, cluster.key))
        status = self._status(cluster, former, report)
        await self.client.apply_status(cluster, status)
        told = cluster_status.news(former.conditions, status.conditions)
        for reason, words in (*told, *self._own.news(former, status)):
            emit = self.events.warning if reason in cluster_status.ALARMING else self.events.normal
            emit(cluster, reason, words)

    def _status(self, cluster: C, former: ClusterStatus | None, report: _Report) -> ClusterStatus:
        former, now = former or self._own.status_of(cluster), self.runtime.clock.now()
        seen = None
        if report.charge is not None and report.observed is not None:
            seen = report.charge.view, report.observed
        phase = report.phase or cluster_status.phase_of(cluster, report.findings)
        # Who waits for what is declared while it is paused waits until it goes on.
        paused = report.findings.says("Paused", "ByAnnotation")
        generation = former.observed_generation if paused else cluster.metadata.generation
        status = cluster_status.advanced(former, generation, phase, seen)
        if seen is not None:
            status = self._own.completed(status, *seen)
        other = None if report.available in ("", status.image) else report.available
        conditions = cluster_status.conditions_of(cluster, former.conditions, report.findings, now)
        status = msgspec.structs.replace(status, available_image=other, conditions=conditions)
        return switchovers.ended(status, now, report.refused)


def _has_served(cluster: Cluster) -> bool:
    return bool(cluster.status.version)


def _data(cluster: Cluster, seen: Seen) -> DataOfCluster:
    # Between a major upgrade and the new server's first start no member has written down whose data they are.
    initialized = seen.observed.members.initialized or _has_served(cluster)
    return DataOfCluster(claims=seen.in_use, present=seen.claims, initialized=initialized)


@dataclass(frozen=True, slots=True)
class _Hands:
    """What a step is done with."""

    instances: Instances
    upgrades: Upgrades


@dataclass(slots=True)
class _Report:
    """What a reconcile has to tell. ``over``: nothing, since the object has been let go."""

    findings: Findings
    charge: Charge | None = None
    observed: Observed | None = None
    available: str = ""
    phase: ClusterPhase | None = None
    refused: str = ""
    busy: bool = False
    settles: bool = False
    over: bool = False

    @property
    def retry_after(self) -> float:
        return _BUSY_SECONDS if self.busy or self.settles else RECHECK_SECONDS
