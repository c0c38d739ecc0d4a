"""Stages of a reconcile: supporting objects, settings, one planner action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

from steersman.api.core_v1 import Pod
from steersman.controller import (
    ReconcilerContext,
)
from steersman.meta import ObjectKey
from steersman_databases.cluster import switchover_record
from steersman_databases.cluster.actions import (
    Action,
    FinishReplacement,
    FinishSwitchover,
    ResolveTarget,
    RestartServer,
    SwitchOver,
    Wait,
)
from steersman_databases.cluster.data_loss import DataRecord
from steersman_databases.cluster.declared import pooler_of
from steersman_databases.cluster.executor import InstanceExecutor, Snapshot
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.cluster.parts.kind_adapter import C, KindAdapter
from steersman_databases.cluster.planner import next_action
from steersman_databases.cluster.result import ReconcileResult, data_state_of, was_provisioned
from steersman_databases.cluster.rules import image_contract
from steersman_databases.cluster.rules.wal_gap import WalGapDetector
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status import conditions as status_conditions
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.cluster.status.poolers import evaluate_poolers
from steersman_databases.cluster.status.storage import evaluate_storage
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.outcome import ReconcileBlocked
from steersman_databases.features.access.stage import SupportingObjects
from steersman_databases.features.backup.metrics import BackupMetrics
from steersman_databases.features.backup.stage import BackupServices, BackupStage
from steersman_databases.features.backup_store.secret_reader import SecretReader
from steersman_databases.features.bootstrap.stage import BootstrapReconciler
from steersman_databases.features.certificates.model import CertificateSet
from steersman_databases.features.certificates.reload import CertificateHolder, CertificateReloader
from steersman_databases.features.certificates.stage import (
    ClusterCredentials,
    SecretsReconciler,
    certificate_request,
)
from steersman_databases.features.healing import crash_stage
from steersman_databases.features.healing.slots_stage import InactiveSlots
from steersman_databases.features.healing.stuck_stage import StuckReplicas
from steersman_databases.features.healing.wraparound_stage import WraparoundPrevention
from steersman_databases.features.in_place_resize.stage import PodResizer
from steersman_databases.features.major_upgrade.stage import MajorUpgrade
from steersman_databases.features.monitoring.queries_stage import ensure_queries
from steersman_databases.features.monitoring.stage import ensure_pod_monitor
from steersman_databases.features.parameters.stage import ParameterReconciler
from steersman_databases.features.pooler.stage import (
    PoolerReconciler,
    interrupts_clients,
    no_admin_console,
    primary_identity,
    primary_is_starting,
)
from steersman_databases.features.read_replicas.stage import ReadReplicaStage
from steersman_databases.features.recovery.stage import RecoveryStage
from steersman_databases.features.restore_in_place.stage import RestoreInPlace
from steersman_databases.features.services.rw_endpoints import points_to_leader, reconcile
from steersman_databases.features.services.specs import declared_services, reserved_conflicts
from steersman_databases.features.storage.growth_stage import StorageClasses, VolumeGrowth
from steersman_databases.features.storage.stage import VolumeReconciler
from steersman_databases.features.system_accounts.stage import SystemAccounts
from steersman_databases.features.tuning.stage import TuningReconciler
from steersman_databases.features.vertical_scaling.stage import VerticalScaling
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.object_marks import ObjectMarks
from steersman_databases.sql.server_resolver import ServerResolver, SqlEngineFactory

_STOPPED = ("Restoring", "RestoreFailed", "Upgrading")
"""Reasons of Available while the operator keeps all servers stopped."""


@dataclass(frozen=True, slots=True)
class Executors:
    """Components of one reconcile that change instances."""

    executor: InstanceExecutor
    major_upgrade: MajorUpgrade
    restore: RestoreInPlace
    vertical_scaling: VerticalScaling


class ClusterStages(Generic[C]):
    """Runs the stages of every capability, then one action of the planner.

    Args:
        context: from the controller.
        adapter: what differs between the kinds of clusters.
        engine_parts: the engine, its members and its optional capabilities.
        sql_engine_for: SQL engine of a server, by the engine's name.
        inspector: shared with the controllers of databases and users.
        backup_metrics: shared with the controllers of other kinds of clusters.
    """

    def __init__(
        self,
        context: ReconcilerContext,
        adapter: KindAdapter[C],
        engine_parts: EngineParts,
        sql_engine_for: SqlEngineFactory,
        inspector: ServerInspector,
        backup_metrics: BackupMetrics,
    ) -> None:
        self._adapter, self._engine_parts = adapter, engine_parts
        client = context.client
        self.store_secrets = SecretReader(client)
        clock = context.runtime.clock
        get_fingerprint, admin_console = (
            self._engine_parts.served_fingerprint,
            self._engine_parts.pgbouncer_admin,
        )
        self._certificate_reloader = (
            None
            if get_fingerprint is None
            else CertificateReloader(self._engine_parts.engine.port, clock, get_fingerprint)
        )
        with_backoff = (
            self._engine_parts.list_settings,
            self._engine_parts.reset_alter_system,
            self._engine_parts.validate_settings,
        )
        self._parameters = ParameterReconciler(
            self._engine_parts.engine, self._engine_parts.ha_backend, clock, *with_backoff
        )
        self._pooler_reconciler = PoolerReconciler(clock, admin_console or no_admin_console)
        ensure_accounts, resolver = (
            self._engine_parts.ensure_system_accounts,
            ServerResolver(client, sql_engine_for, clock),
        )
        marks = ObjectMarks(client)
        self._system_accounts = (
            None
            if ensure_accounts is None
            else SystemAccounts(self._engine_parts.engine, clock, ensure_accounts, marks, resolver, inspector)
        )
        is_wal_missing = self._engine_parts.is_wal_missing
        self._wal_gaps = (
            None if is_wal_missing is None else WalGapDetector(self._engine_parts.engine, clock, is_wal_missing)
        )
        healing, limit = engine_parts.healing, engine_parts.automation
        self._inactive_slots = None if healing is None else InactiveSlots(engine_parts.engine, healing, limit)
        self._stuck_replicas = (
            None if healing is None else StuckReplicas(engine_parts.engine, engine_parts.ha_backend, healing, limit)
        )
        self._wraparound = (
            None if healing is None else WraparoundPrevention(engine_parts.engine, clock, healing, limit)
        )
        self._storage_classes = StorageClasses(client, clock)
        self.tuning = TuningReconciler(
            self._engine_parts.engine, clock, self._engine_parts.get_metrics, self._engine_parts.automation
        )
        self._backup = BackupServices(self.store_secrets, engine_parts.claim_path, backup_metrics)
        self._bootstrap = BootstrapReconciler(client, adapter.kind, self._engine_parts.engine, resolver, inspector)

    async def run(
        self, context: ClusterContext, cluster: C, executors: Executors, snapshot: Snapshot, report: ReconcileResult
    ) -> Action | Wait | None:
        state, conditions = snapshot.state, report.conditions
        read_replicas = ReadReplicaStage(context, cluster, self._engine_parts.get_read_replica_report)
        context = replace(
            context, declared=replace(context.declared, read_replicas=await read_replicas.slot_numbers())
        )
        volumes, provisioned = VolumeReconciler(context), was_provisioned(cluster)
        record = DataRecord(context, cluster)
        await record.require_data(snapshot)
        volumes.check_adoptable(snapshot.pvcs_in_use, was_provisioned=provisioned)
        # First: whatever fails below, a full volume must grow.
        growth = VolumeGrowth(context, cluster, self._storage_classes, self._engine_parts.automation)
        outcome = await growth.ensure(state, conditions)
        report.automation.record(("Storage", "WalStorage"), outcome.automation)
        report.growth_announced = outcome.announced
        resources = await executors.vertical_scaling.ensure(state, report.maintenance.schedule, conditions)
        report.automation.record(["Resources"], resources)
        storage = await volumes.resize(state.instances)
        conditions.set("VolumesResized", storage.reason == "SizeMatches", storage.reason, storage.message)
        cluster_credentials = await self._ensure_credentials(context, cluster, snapshot, conditions)
        supporting = await self._ensure_supporting_objects(context, cluster, state, conditions)
        network_managed = cluster.spec.network_policy == "Managed"
        deployments = await self._pooler_reconciler.ensure(
            context, pooler_of(cluster), state, network=network_managed, pending=report.maintenance.pending
        )
        poolers = await self._pooler_reconciler.pods(context)
        evaluate_poolers(deployments, poolers, conditions)
        distrusting = await self._reload_certificates(
            context, state, cluster_credentials.certificates, poolers, conditions
        )
        status_conditions.evaluate_ca_trust(context.declared, state, distrusting, conditions)
        state = state.with_distrusting({uid for uid, waits_for_user in distrusting.items() if waits_for_user})
        # The configuration of members is a part of the contract with their image.
        if snapshot.pvcs_in_use and not image_contract.unsupported(state):
            await supporting.ensure_dcs(snapshot, partial(self._recreated_state, record))
            # Before the first member exists: it reads them when it initializes the data.
            mode = crash_stage.crash_loop_mode(cluster, self._engine_parts.automation)
            crash_loop = crash_stage.report_crash_loop(context, mode, state, conditions)
            report.automation.record(["CrashLoops"], [] if crash_loop is None else [crash_loop])
            sync = await self._parameters.ensure(
                context,
                state,
                cluster_credentials.certificates,
                conditions,
                was_provisioned=provisioned,
                reverts_crashes=mode == "Automatic",
            )
            report.awaiting_reload, state = not sync.done, replace(state, config_unreadable=sync.config_unreadable)
            report.maintenance.report(conditions)
        if self._inactive_slots is not None:
            certificates = cluster_credentials.certificates
            slots = await self._inactive_slots.ensure(context, cluster, state, certificates, conditions)
            report.automation.record(["InactiveSlots"], [] if slots is None else [slots])
        if self._stuck_replicas is not None:
            certificates = cluster_credentials.certificates
            stuck = await self._stuck_replicas.ensure(context, cluster, state, certificates, conditions)
            report.automation.record(["StuckReplicas"], [] if stuck is None else [stuck])
        if self._wal_gaps is not None:
            state = await self._wal_gaps.detect(context.declared.key, state, cluster_credentials.certificates)
        await volumes.delete_retired(snapshot.pvcs, state)
        with context.deferred:
            # Problems of backups must not delay the instances.
            backup = BackupStage(context, cluster, snapshot.pvcs_in_use, self._backup)
            report.backup, report.backup_observed = await backup.ensure(state, conditions), True
        # First: a StatefulSet may be rejected, and clients must reach the primary nevertheless.
        await reconcile(context, self._engine_parts.ha_backend, state)
        await executors.executor.ensure(state)
        resizer = PodResizer(context)
        state = await resizer.refresh(state)
        await resizer.ensure(state)
        step = await executors.major_upgrade.resume(state, conditions, awaiting_reload=report.awaiting_reload)
        if step is None:
            step = await executors.restore.resume(state, snapshot.pvcs, conditions)
        if step is None:
            step = await executors.major_upgrade.start(
                state, cluster_credentials.certificates, conditions, next_action(context.declared, state)
            )
        recovery = RecoveryStage(context, cluster, self._engine_parts.engine, self.store_secrets)
        step = await recovery.ensure(state, conditions, step)
        if report.awaiting_reload and isinstance(step, RestartServer | SwitchOver):
            step = Wait("RollingOut", "waiting for the servers to reload their configuration")
        if isinstance(step, SwitchOver):
            await switchover_record.record_intent(context, cluster, step, state)
        if pooler_of(cluster) is not None:
            stopped = any(conditions.has_reason("Available", reason) for reason in _STOPPED)
            clients_wait = interrupts_clients(step, state) or stopped
            await self._pause_or_resume_poolers(
                context, state, cluster_credentials.certificates, poolers, hold=clients_wait
            )
        match step:
            case None | Wait():
                pass
            case ResolveTarget():
                await switchover_record.record_target(context, step)
            case FinishSwitchover():
                await switchover_record.finish(context, cluster, step, state)
            case FinishReplacement():
                await switchover_record.finish_replacement(context, step)
            case _:
                await executors.executor.execute(step, state)
        with context.deferred:
            # After the instances, since a read replica that does not respond takes seconds.
            authorities, pending = cluster_credentials.certificates.bundle, report.maintenance.pending
            report.read_replicas = await read_replicas.ensure(state, authorities, pending)
            report.maintenance.report(conditions)
            report.read_replicas_observed = True
            # Requests of metrics may take seconds, too.
            report.tuning, entry = await self.tuning.observe(context, cluster, state, authorities)
            report.automation.record(("Tuning",), () if entry is None else (entry,))
            report.tuning_observed = True
        requested = context.declared.requests.switchover or state.members.switchover_request is not None
        primary = state.primary
        if not requested and (step is None or isinstance(step, Wait)) and primary is not None and primary.pod_ready:
            # A server that is about to stop may not respond for long, and poolers would wait for it as well.
            await self._reconcile_sql(context, cluster, state, cluster_credentials, conditions)
            if self._wraparound is not None:
                certificates = cluster_credentials.certificates
                entries = await self._wraparound.ensure(context, cluster, state, certificates, conditions)
                if entries is not None:
                    report.automation.record(["Wraparound"], entries)
        return step

    async def _recreated_state(
        self, record: DataRecord, snapshot: Snapshot
    ) -> tuple[ObjectKey, Mapping[str, str]] | None:
        """Return the annotations to recreate the members' lost state with. None before data were served."""
        identity = await record.identity_on_volumes(snapshot)
        return self._engine_parts.ha_backend.recreated_state(record.cluster.key, identity) if identity else None

    async def _reconcile_sql(
        self,
        context: ClusterContext,
        cluster: C,
        state: ClusterState,
        cluster_credentials: ClusterCredentials,
        conditions: ConditionSet,
    ) -> None:
        """Reconcile system accounts and the bootstrap database by SQL."""
        if self._system_accounts is not None:
            await self._system_accounts.ensure(context, cluster, state, cluster_credentials)
        if cluster_credentials.application is not None:
            await self._bootstrap.ensure(context, cluster, cluster_credentials.application, conditions)
            if cluster_credentials.owner_secret_error and conditions.has_reason(
                "BootstrapDatabaseReady", "DatabaseReady"
            ):
                conditions.set(
                    "BootstrapDatabaseReady", False, "OwnerSecretInvalid", cluster_credentials.owner_secret_error
                )

    async def _ensure_credentials(
        self, context: ClusterContext, cluster: C, snapshot: Snapshot, conditions: ConditionSet
    ) -> ClusterCredentials:
        cluster_credentials = await SecretsReconciler(context, self._engine_parts.engine).ensure(
            certificate_request(context.declared, cluster), data_state_of(cluster, snapshot)
        )
        update = cluster_credentials.certificates.condition
        conditions.set("CertificatesValid", update.valid, update.reason, update.message)
        return cluster_credentials

    async def _ensure_supporting_objects(
        self, context: ClusterContext, cluster: C, state: ClusterState, conditions: ConditionSet
    ) -> SupportingObjects:
        supporting, spec = SupportingObjects(context, self._engine_parts.engine), cluster.spec
        ordinals = [i.ordinal for i in state.instances]
        await supporting.ensure_access([*ordinals, state.next_ordinal])
        for reserved in reserved_conflicts(context.declared, spec.services):
            raise ReconcileBlocked(
                "Failed", "NameConflict", f"spec.services.additional: the name {reserved} is reserved"
            )
        await supporting.ensure_services(
            declared_services(context.declared, spec.services), was_provisioned=was_provisioned(cluster)
        )
        budget = spec.pod_disruption_budget
        await supporting.ensure_policies(
            max_unavailable=budget.max_unavailable if budget.enabled and spec.instances > 1 else None,
            network=spec.network_policy == "Managed",
            operator=self._engine_parts.operator_namespace,
        )
        await ensure_pod_monitor(context, spec.monitoring)
        await ensure_queries(context, spec.monitoring.queries, conditions)
        return supporting

    async def _reload_certificates(
        self,
        context: ClusterContext,
        state: ClusterState,
        certificates: CertificateSet,
        poolers: Sequence[Pod],
        conditions: ConditionSet,
    ) -> Mapping[str, bool]:
        """Let servers and poolers present the current certificate. Returns the pods that cannot, by UID.

        Such poolers are recreated at once: they only lose connections to servers that no longer trust them.
        """
        if self._certificate_reloader is None:
            return {}
        topology, members = self._engine_parts.ha_backend, state.members
        holders = [
            CertificateHolder(i.pod, partial(topology.reload, members, i.member))
            for i in state.instances
            # It need not be Ready: a replica may not follow because it lacks these certificates.
            if i.pod is not None and i.member is not None and i.member.state in ("Running", "Streaming")
        ]
        holders += self._pooler_reconciler.certificate_holders(poolers, certificates)
        distrusting = await self._certificate_reloader.reconcile(context, holders, certificates, conditions)
        for pod in poolers:
            if distrusting.get(pod.metadata.uid):
                await context.delete(Pod, pod)
        return distrusting

    async def _pause_or_resume_poolers(
        self,
        context: ClusterContext,
        state: ClusterState,
        certificates: CertificateSet,
        pods: Sequence[Pod],
        *,
        hold: bool,
    ) -> None:
        """Pause the poolers' clients, or resume them with the current primary."""
        if self._engine_parts.pgbouncer_admin is None:
            return
        if hold:
            await self._pooler_reconciler.pause(context, pods, certificates)
            return
        members, attempt = state.members, state.attempt
        # The request may disappear before the new leader is observed.
        in_flight = attempt is not None and not attempt.has_ended and members.leader != attempt.to
        interrupts = in_flight or primary_is_starting(state)
        switching_over = (
            members.switchover_request is not None or interrupts or not await points_to_leader(context, state)
        )
        identity = primary_identity(state)
        await self._pooler_reconciler.resume(
            context, pods, certificates, primary=identity, switching_over=switching_over
        )

    def evaluate_conditions(self, context: ClusterContext, state: ClusterState, report: ReconcileResult) -> None:
        """Set the conditions that follow from the observed state alone."""
        status_conditions.evaluate_available(context.declared, state, report.conditions)
        evaluate_storage(context.declared, state, report.conditions)
        status_conditions.evaluate_upgraded(context.declared, state, report.operator_image, report.conditions)
        report.maintenance.report(report.conditions)
        self._adapter.evaluate(context.declared, state, report.conditions)
        if self._system_accounts is not None:
            self._system_accounts.update_synchronous_condition(context.declared.key, report.conditions)

    def forget(self, cluster: ObjectKey) -> None:
        """Drop what is remembered about a deleted cluster."""
        self._pooler_reconciler.forget(cluster)
        self._parameters.forget(cluster)
        self._bootstrap.forget(cluster)
        self.tuning.forget(cluster)
        self._backup.metrics.forget(cluster)
        for each in (
            *(self._certificate_reloader, self._system_accounts, self._wal_gaps),
            *(self._stuck_replicas, self._wraparound),
        ):
            if each is not None:
                each.forget(cluster)

    async def resume_poolers(self, context: ClusterContext, cluster: C, snapshot: Snapshot) -> None:
        """Resume the poolers of a paused cluster.

        Their clients would wait otherwise.
        """
        self._bootstrap.forget(cluster.key)
        if pooler_of(cluster) is None or self._engine_parts.pgbouncer_admin is None:
            return
        with suppress(ReconcileBlocked):
            secrets = SecretsReconciler(context, self._engine_parts.engine)
            certificates = await secrets.load_certificates(
                certificate_request(context.declared, cluster), data_state_of(cluster, snapshot)
            )
            pods = await self._pooler_reconciler.pods(context)
            await self._pooler_reconciler.resume(context, pods, certificates, primary=None, switching_over=False)
