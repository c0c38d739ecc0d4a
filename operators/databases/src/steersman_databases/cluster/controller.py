"""Controller of clusters: load, gate, observe, run the stages, write the status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

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
from steersman_databases.api import ClusterStatus, PostgreSQLClusterStatus
from steersman_databases.cluster import switchover_record
from steersman_databases.cluster.actions import (
    Action,
    Wait,
)
from steersman_databases.cluster.declared import declare
from steersman_databases.cluster.deletion import FINALIZER, ClusterDeletion
from steersman_databases.cluster.executor import InstanceExecutor
from steersman_databases.cluster.name_conflicts import older_cluster_of_same_name
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.cluster.parts.kind_adapter import C, KindAdapter
from steersman_databases.cluster.parts.metrics import ControllerMetrics
from steersman_databases.cluster.restart_cooldown import RestartCooldown
from steersman_databases.cluster.result import ReconcileResult, was_provisioned
from steersman_databases.cluster.stages import ClusterStages, Executors
from steersman_databases.cluster.status import conditions as status_conditions
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.cluster.status.pod_problems import first_problem
from steersman_databases.cluster.status.pod_rejections import PodRejections
from steersman_databases.core.annotation_warnings import AnnotationWarnings
from steersman_databases.core.api_errors import ApiErrorTracker, is_namespace_terminating, is_rejection
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.outcome import NOT_ENFORCED, NOT_SERVED, WEBHOOKS_DISABLED, ReconcileBlocked, jittered
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.errors import EngineError, UnsupportedVersion
from steersman_databases.engines.versions import image
from steersman_databases.features.backup.progress import archiving_events
from steersman_databases.features.backup_store.pod_identity import with_store_identity
from steersman_databases.features.final_backup.stage import FinalBackup
from steersman_databases.features.maintenance.fleet import turn_of
from steersman_databases.features.maintenance.model import pending_disruptions, schedule_of
from steersman_databases.features.major_upgrade.backup import BackupBeforeUpgrade
from steersman_databases.features.major_upgrade.stage import MajorUpgrade, at_current_version, pending_upgrade
from steersman_databases.features.read_replicas.stage import ReadReplicaStage
from steersman_databases.features.restore_in_place.stage import RestoreInPlace
from steersman_databases.features.sizing.model import mode_of, with_sizing
from steersman_databases.features.storage.growth_stage import with_grown_volumes
from steersman_databases.features.vertical_scaling.stage import VerticalScaling
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.server_resolver import SqlEngineFactory
from steersman_databases.sql.unresponsive import UnresponsiveServers

# Reasons that only a user can resolve.
_WAITS_FOR_USER = frozenset(
    {
        *("DiskFull", "Fenced", "Hibernated", "ImageTooOld", "OperatorTooOld"),
        *("RecoveryFailed", "SwitchoverRejected"),
    }
)


class ClusterReconciler(RequestReconciler[C]):
    """Reconciles the clusters of one kind.

    Args:
        context: from the controller.
        adapter: what differs between the kinds of clusters.
        engine_factory: from the context, the engine and its members.
        sql_engine_for: SQL engine of a server, by the engine's name.
        inspector: shared with the controllers of databases and users.
        metrics: shared with the controllers of other kinds of clusters.
    """

    def __init__(
        self,
        context: ReconcilerContext,
        adapter: KindAdapter[C],
        engine_factory: Callable[[ReconcilerContext], EngineParts],
        sql_engine_for: SqlEngineFactory,
        inspector: ServerInspector,
        metrics: ControllerMetrics,
    ) -> None:
        super().__init__(context)
        self._adapter, self._metrics = adapter, metrics
        self._engine_parts = engine_factory(context).with_backoff(UnresponsiveServers(context.runtime.clock))
        self._stages = ClusterStages(context, adapter, self._engine_parts, sql_engine_for, inspector, metrics.backups)
        clock = context.runtime.clock
        self._pod_rejections, self._api_errors = PodRejections(self.client.live, clock), ApiErrorTracker(clock)
        self._annotation_warnings, self._restart_cooldown = AnnotationWarnings(self.events), RestartCooldown(clock)

    async def reconcile(self, request: Request) -> Result:
        cluster = await self.client.get_or_none(self._adapter.kind, request)
        if cluster is None:
            self._forget(request)
            return Result()
        report = ReconcileResult(ConditionSet())
        try:
            await self._reconcile(cluster, report)
        except ApiError as error:
            if is_namespace_terminating(error):
                return Result()
            if not (reason := self._api_errors.reason(request, error)):
                raise
            report.conditions.add_not_ready(reason, str(error))
            await self._write_status(cluster, report)
            if not is_rejection(error):
                raise
        else:
            if report.finalized:
                return Result()
            await self._write_status(cluster, report)
        return Result(requeue_after=jittered(report.retry_after, self.runtime.random))

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Record the outcome of a reconcile; the next one reports it."""
        self._api_errors.record(request, outcome.error)

    async def _reconcile(self, cluster: C, report: ReconcileResult) -> None:
        """Reconcile a cluster. The caller writes the status."""
        self._annotation_warnings.check_common(cluster)
        self._annotation_warnings.check_maintenance(cluster)
        if cluster.metadata.deletion_timestamp is not None:
            await self._delete(cluster, report)
            return
        if (problem := await self._unsupported(cluster)) is not None:
            report.conditions.set("Ready", False, *problem)
            return
        report.operator_image = image(self._engine_parts.engine.name, cluster.spec.version)
        report.context = context = await self._context_for(cluster, report.operator_image)
        if context.declared.requests.paused:
            await self._reconcile_paused(context, cluster, report)
            return
        finalized = await add_finalizer(self.client, cluster, FINALIZER)
        if finalized is not cluster:
            context = await self._context_for(finalized, report.operator_image)
        await self._reconcile_active(context, finalized, report)

    async def _unsupported(self, cluster: C) -> tuple[str, str] | None:
        """Reason and message if the cluster must not be reconciled."""
        try:
            image(self._engine_parts.engine.name, cluster.spec.version)
        except UnsupportedVersion as error:
            return "UnsupportedVersion", f"spec.version: {error}"
        if message := self._adapter.unsupported(cluster):
            return "UnsupportedVersion", message
        conflicting = await older_cluster_of_same_name(self.client, cluster)
        if conflicting is None:
            return None
        kind = type(conflicting).api_resource.kind
        name = conflicting.metadata.name
        return "NameConflict", f"an older {kind} {name} exists: names must be unique across cluster kinds"

    async def _context_for(self, cluster: C, operator_image: str) -> ClusterContext:
        declared = declare(cluster, operator_image, cluster_domain=self._engine_parts.cluster_domain)
        return ClusterContext(
            cluster=cluster,
            declared=await with_store_identity(self.client, declared, cluster.spec.backup),
            client=self.client,
            events=self.events,
            clock=self.runtime.clock,
        )

    async def _reconcile_active(self, context: ClusterContext, cluster: C, report: ReconcileResult) -> None:
        """Observe the cluster and run all stages up to one action."""
        seen = await InstanceExecutor(
            context, self._engine_parts.engine, self._engine_parts.ha_backend
        ).observe_and_restore_labels()
        recorded_version = cluster.status.version or ""
        pending = pending_upgrade(context.declared, recorded_version, seen.state)
        if pending is not None:
            context = replace(context, declared=at_current_version(context.declared, pending))
            report.operator_image = context.declared.image
        context = replace(context, declared=with_grown_volumes(context.declared, cluster, seen.state))
        scaling = await VerticalScaling.load(context, cluster, self._engine_parts.automation)
        context = replace(context, declared=scaling.declared)
        mode = mode_of(cluster, was_provisioned=was_provisioned(cluster))
        replicas = await ReadReplicaStage(context, cluster).pods()
        declared, report.sizing = with_sizing(context.declared, mode, seen.state, self._engine_parts.engine, replicas)
        report.maintenance.schedule = schedule_of(cluster.spec.maintenance, cluster, self.runtime.clock.now())
        if not report.maintenance.schedule.waits:
            report.maintenance.turn = await self._minor_upgrade_turn(cluster, declared)
        declared = report.maintenance.apply_to(declared)
        declared = self._stages.tuning.with_trial(declared, cluster, seen.state)
        context = replace(context, declared=declared)
        instances = InstanceExecutor(
            context, self._engine_parts.engine, self._engine_parts.ha_backend, self._restart_cooldown
        )
        attempt = switchover_record.pending_attempt(context.declared, cluster.status, seen.state.members)
        seen = replace(seen, state=replace(seen.state, attempt=attempt))
        upgrades = MajorUpgrade(
            context,
            self._engine_parts.engine,
            self._engine_parts.ha_backend,
            self._engine_parts.upgrade_inventory,
            pending,
            cluster.spec.image,
            BackupBeforeUpgrade(context, cluster),
        )
        engine, ha_backend = self._engine_parts.engine, self._engine_parts.ha_backend
        executors = Executors(instances, upgrades, RestoreInPlace(context, cluster, engine, ha_backend), scaling)
        report.context, report.state = context, seen.state
        report.maintenance.pending = [*pending_disruptions(declared, seen.state)]
        self._annotation_warnings.check_fencing(cluster, context.declared, seen.state)
        self._stages.evaluate_conditions(context, seen.state, report)
        try:
            step = await self._stages.run(context, cluster, executors, seen, report)
            await self._set_ready(context, cluster, step, report)
            context.deferred.raise_first()
        except ReconcileBlocked as blocked:
            report.conditions.add_not_ready(blocked.outcome.reason, blocked.outcome.message)
        except EngineError as error:
            report.conditions.set("Ready", False, "InstanceNotReady", str(error))
            report.progressing = True

    async def _minor_upgrade_turn(self, cluster: C, declared: DeclaredCluster) -> str:
        """Return why an automatic minor upgrade waits for other clusters, or ""."""
        is_due = cluster.status.image not in (None, declared.image)
        if not is_due or declared.has_explicit_image or not declared.automatic_minor_upgrades:
            return ""
        fleet = await self.client.list(self._adapter.kind)
        return turn_of(cluster, fleet, declared.image, self._engine_parts.minor_upgrades_at_once)

    async def _delete(self, cluster: C, report: ReconcileResult) -> None:
        report.phase = "Deleting"
        report.context = context = await self._context_for(cluster, "")
        snapshot = await InstanceExecutor(
            context, self._engine_parts.engine, self._engine_parts.ha_backend
        ).observe_and_restore_labels()
        report.state = snapshot.state
        status_conditions.evaluate_available_while_deleting(context.declared, snapshot.state, report.conditions)
        # First: a server waits for those that stream from it before it stops.
        await ReadReplicaStage(context, cluster).remove_all()
        served = was_provisioned(cluster)
        final_backup = FinalBackup(context, cluster, self._engine_parts.engine, self._stages.store_secrets, served)
        deletion = ClusterDeletion(context, final_backup, was_provisioned=served)
        outcome = await deletion.advance(snapshot.state, snapshot.pvcs)
        if outcome is None:
            self._forget(cluster.key)
            report.finalized = True
            return
        report.conditions.set("Ready", False, outcome.reason, outcome.message)
        report.progressing = outcome.reason == "Deleting"

    def _forget(self, cluster: ObjectKey) -> None:
        self._stages.forget(cluster)
        self._annotation_warnings.forget(cluster)
        self._pod_rejections.forget(cluster)
        self._metrics.clusters.forget(self._adapter.kind.api_resource.kind, cluster)

    async def _reconcile_paused(self, context: ClusterContext, cluster: C, report: ReconcileResult) -> None:
        """Observe only: nothing but the status is written."""
        report.conditions.set(
            "Paused", True, "ByAnnotation", "the operator writes nothing until the annotation is removed"
        )
        snapshot = await InstanceExecutor(context, self._engine_parts.engine, self._engine_parts.ha_backend).observe()
        await self._stages.resume_poolers(context, cluster, snapshot)
        report.state = snapshot.state
        status_conditions.evaluate_available(context.declared, snapshot.state, report.conditions)

    async def _set_ready(
        self, context: ClusterContext, cluster: C, action: Action | Wait | None, report: ReconcileResult
    ) -> None:
        state, conditions = report.state, report.conditions
        assert state is not None
        status_conditions.set_ready(cluster, context.declared, action, conditions)
        problem = None
        if isinstance(action, Wait):
            problem = first_problem(state.instances) or await self._pod_rejections.detect(cluster.key, state)
        if problem is not None:
            conditions.set("Ready", False, problem.reason, problem.message)
        elif isinstance(action, Wait) and (
            unhealthy := next((m for m in state.members.members if m.state == "StartFailed" and m.state_reason), None)
        ):
            name = context.declared.names.instance(unhealthy.instance)
            conditions.set(
                "Ready", False, "InstanceCrashing", f"the server of {name} cannot start: {unhealthy.state_reason}"
            )
        status_conditions.add_member_error(context.declared, state, conditions)
        if isinstance(action, Wait) and action.reason == "SwitchoverRejected":
            report.switchover_refusal = action.message
        report.progressing = action is not None and not (
            isinstance(action, Wait) and action.reason in _WAITS_FOR_USER
        )

    async def _write_status(self, cluster: C, report: ReconcileResult) -> None:
        if not (report.context is not None and report.context.declared.requests.paused):
            report.conditions.remove("Paused")
        if self._engine_parts.serves_webhooks:
            report.conditions.remove(WEBHOOKS_DISABLED)
        else:
            report.conditions.set(WEBHOOKS_DISABLED, True, NOT_SERVED, NOT_ENFORCED)
        built = self._build_status(cluster, cluster.status, report)
        if built == cluster.status:
            self._metrics.clusters.observe(self._adapter.kind.api_resource.kind, cluster.key, cluster.spec, built)
            return
        # The cache may lag behind our last status, and an Event must not be emitted twice. It may also lag behind a
        # deletion, after which no metric may reappear.
        previous = self._adapter.status_of(await self.client.live.get(self._adapter.kind, cluster.key))
        status = self._build_status(cluster, previous, report)
        self._metrics.clusters.observe(self._adapter.kind.api_resource.kind, cluster.key, cluster.spec, status)
        await self.client.apply_status(cluster, status)
        reported = status_conditions.changed_conditions(previous.conditions, status.conditions)
        archiving = archiving_events(previous.conditions, status.conditions)
        for reason, message in (*reported, *archiving, *self._adapter.failover_events(previous, status)):
            emit_event = self.events.warning if reason in status_conditions.WARNING_REASONS else self.events.normal
            emit_event(cluster, reason, message)

    def _build_status(self, cluster: C, previous: ClusterStatus | None, report: ReconcileResult) -> ClusterStatus:
        previous, now = previous or self._adapter.status_of(cluster), self.runtime.clock.now()
        view_and_state = None
        if report.context is not None and report.state is not None:
            view_and_state = report.context.declared, report.state
        phase = report.phase or status_conditions.phase_of(cluster, report.conditions)
        # A client that waits for the new generation waits until the pause ends.
        paused = report.conditions.has_reason("Paused", "ByAnnotation")
        generation = previous.observed_generation if paused else cluster.metadata.generation
        status = status_conditions.with_observed_fields(previous, generation, phase, view_and_state)
        if view_and_state is not None:
            status = self._adapter.complete_status(status, *view_and_state)
        other = None if report.operator_image in ("", status.image) else report.operator_image
        conditions = status_conditions.conditions_of(cluster, previous.conditions, report.conditions, now)
        status = msgspec.structs.replace(status, available_image=other, conditions=conditions)
        if report.backup_observed:
            status = msgspec.structs.replace(status, backup=report.backup)
        if report.sizing is not None:
            status = msgspec.structs.replace(status, sizing=report.sizing, **report.maintenance.status)
        status = msgspec.structs.replace(status, automation=report.automation.merged(status.automation))
        if report.tuning_observed:
            status = msgspec.structs.replace(status, tuning=report.tuning)
        if report.read_replicas_observed and isinstance(status, PostgreSQLClusterStatus):
            status = msgspec.structs.replace(status, read_replicas=report.read_replicas)
        return switchover_record.with_result(status, now, report.switchover_refusal)
