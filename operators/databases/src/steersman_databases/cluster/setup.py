"""Watches, rights and engines of the controllers of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import (
    ConfigMap,
    Event,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Secret,
    Service,
    ServiceAccount,
)
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.api.rbac_v1 import Role, RoleBinding
from steersman.api.storage_v1 import StorageClass
from steersman.controller import ReconcilerContext, annotations_changed, any_of, generation_changed
from steersman.manager import Manager
from steersman.meta import Object, ObjectKey
from steersman_databases.api import CLUSTER_KINDS, Backup, Cluster, Restore
from steersman_databases.cluster.controller import ClusterReconciler
from steersman_databases.cluster.declared import engine_of
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.cluster.parts.kind_adapter import C, KindAdapter
from steersman_databases.cluster.parts.metrics import ControllerMetrics
from steersman_databases.cluster.parts.predicates import is_significant
from steersman_databases.core.database_naming import database_of
from steersman_databases.core.outcome import MAX_CONCURRENT_RECONCILES, RESYNC_SECONDS
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine as MySQLServers
from steersman_databases.engines.mysql.config.variables_catalog import variables as mysql_catalog
from steersman_databases.engines.mysql.ha.backend import GroupReplicationBackend
from steersman_databases.engines.mysql.sql.system_accounts import ensure_accounts as mysql_furnishing
from steersman_databases.engines.naming import READ_REPLICA_SUFFIX
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine as PostgreSQLServers
from steersman_databases.engines.postgresql.config.alter_system import reset
from steersman_databases.engines.postgresql.config.setting_validation import validate
from steersman_databases.engines.postgresql.config.settings_catalog import catalog
from steersman_databases.engines.postgresql.ha.backend import PatroniBackend
from steersman_databases.engines.postgresql.ha.tls_probe import served_fingerprint
from steersman_databases.engines.postgresql.ha.wal_retention import is_wal_missing
from steersman_databases.engines.postgresql.sql.accounts.system_accounts import ensure_accounts
from steersman_databases.engines.postgresql.sql.health.inactive_slots import drop_inactive_slot
from steersman_databases.engines.postgresql.sql.health.wal_receiver import end_wal_receiver, received_wal
from steersman_databases.engines.postgresql.sql.health.wraparound import (
    end_transaction,
    inspect_transaction_ids,
    vacuum_oldest_tables,
)
from steersman_databases.engines.postgresql.sql.upgrade_inventory import upgrade_inventory
from steersman_databases.features.access import rbac
from steersman_databases.features.backup import stage as backup_stage
from steersman_databases.features.backup.queries import cluster_key
from steersman_databases.features.bootstrap import stage as bootstrap_stage
from steersman_databases.features.certificates import stage as certificates_stage
from steersman_databases.features.final_backup import stage as final_backup_stage
from steersman_databases.features.healing.servers import HealingQueries
from steersman_databases.features.major_upgrade import stage as major_upgrade_stage
from steersman_databases.features.monitoring.specs import PodMonitor
from steersman_databases.features.pooler import stage as pooler_stage
from steersman_databases.features.pooler.admin_console import run_command
from steersman_databases.features.read_replicas.reports import get_report
from steersman_databases.features.recovery import stage as recovery_stage
from steersman_databases.features.restore_in_place import stage as restore_in_place_stage
from steersman_databases.features.tuning.figures import get_metrics
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.server_resolver import SqlEngineFactory

DEPENDENT_KINDS = (
    Deployment,
    Job,
    ConfigMap,
    EndpointSlice,
    ServiceAccount,
    Role,
    RoleBinding,
    PodDisruptionBudget,
    NetworkPolicy,
)
"""Kinds that are created for clusters only, and cached by their labels."""
EngineFactory = Callable[[ReconcilerContext], EngineParts]


def postgresql_engine(context: ReconcilerContext) -> EngineParts:
    """PostgreSQL with Patroni."""
    topology = PatroniBackend(context.client)
    queries = (
        served_fingerprint,
        run_command,
        catalog,
        ensure_accounts,
        upgrade_inventory,
        reset,
        is_wal_missing,
        validate,
    )
    healing = HealingQueries(
        drop_inactive_slot=drop_inactive_slot,
        inspect_transaction_ids=inspect_transaction_ids,
        vacuum_oldest_tables=vacuum_oldest_tables,
        end_transaction=end_transaction,
        received_wal=received_wal,
        end_wal_receiver=end_wal_receiver,
    )
    return EngineParts(
        PostgreSQLServers(),
        topology,
        *queries,
        get_read_replica_report=get_report,
        get_metrics=get_metrics,
        healing=healing,
    )


def mysql_engine(context: ReconcilerContext) -> EngineParts:
    """MySQL with Group Replication. The agents reload certificates themselves."""
    return EngineParts(
        MySQLServers(),
        GroupReplicationBackend(context.client),
        list_settings=mysql_catalog,
        ensure_system_accounts=mysql_furnishing,
        get_metrics=get_metrics,
    )


def setup_clusters(
    manager: Manager,
    adapter: KindAdapter[C],
    engine_factory: EngineFactory,
    sql_engine_for: SqlEngineFactory,
    inspector: ServerInspector,
) -> None:
    """Add the controller of a kind of clusters to the manager.

    Args:
        manager: the operator's manager.
        adapter: what differs between the kinds of clusters.
        engine_factory: from the context, the engine and its members.
        sql_engine_for: SQL engine of a server, by the engine's name.
        inspector: shared with the controllers of databases and users.
    """
    mapped = _mapper_for_engine(engine_of(adapter.kind))
    builder = (
        manager.controller(adapter.kind)
        .with_predicate(any_of(generation_changed, annotations_changed))
        .owns(StatefulSet)
        .owns(Service)
        .owns(EndpointSlice)
        .owns(ServiceAccount)
        .owns(Role)
        .owns(RoleBinding)
        .owns(PodDisruptionBudget)
        .owns(NetworkPolicy)
        .owns(PodMonitor, optional=True)
        .owns(Job)
        .watches(PersistentVolumeClaim, mapped)
        .watches(Secret, mapped)
        .watches(Pod, mapped, is_significant)
        .watches(ConfigMap, mapped, is_significant)
        .watches(Backup, _mapper_of_backups(adapter.kind))
        .watches(Restore, _mapper_of_restores(adapter.kind))
        .source(inspector.events_for(adapter.kind.api_resource.kind))
        .needs(StatefulSet, "delete")
        .needs(Service, "delete")
        .needs(EndpointSlice, "delete")
        .needs(PersistentVolumeClaim, "create", "patch", "delete")
        .needs(Secret, "create", "patch", "delete")
        .needs(ConfigMap, "create", "delete")
        .needs(Pod, "patch", "delete")
        .needs(Pod, "patch", subresource="resize")
        .needs(PodDisruptionBudget, "delete")
        .needs(NetworkPolicy, "delete")
        .needs(PodMonitor, "delete")
        .needs(PersistentVolume, "get")
        .needs(StorageClass, "get")
        .needs(Node, "list")
        .needs(Event, "list")
        .max_concurrent_reconciles(MAX_CONCURRENT_RECONCILES)
        .max_retry_delay(RESYNC_SECONDS)
    )
    # One index serves all kinds of clusters, since their names are unique.
    for kind in (StatefulSet, Pod, PersistentVolumeClaim, ConfigMap) if adapter.kind is CLUSTER_KINDS[0] else ():
        builder.index(kind, CLUSTER_INDEX, _cluster_names_of)
    for permit in (
        rbac.permit,
        certificates_stage.permit,
        pooler_stage.permit,
        bootstrap_stage.permit,
        major_upgrade_stage.permit,
        recovery_stage.permit,
        restore_in_place_stage.permit,
        final_backup_stage.permit,
        backup_stage.permit,
    ):
        permit(builder)
    metrics = ControllerMetrics.of(manager.metrics_registry)
    builder.complete(
        lambda context: ClusterReconciler(context, adapter, engine_factory, sql_engine_for, inspector, metrics)
    )


def _mapper_of_backups(kind: type[Cluster]) -> Callable[[Backup], tuple[ObjectKey, ...]]:
    """Map a `Backup` to its cluster of this kind."""
    return lambda backup: (cluster_key(backup),) if backup.source_kind == kind.api_resource.kind else ()


def _mapper_of_restores(kind: type[Cluster]) -> Callable[[Restore], tuple[ObjectKey, ...]]:
    """Map a `Restore` to its cluster of this kind."""

    def mapped(restore: Restore) -> tuple[ObjectKey, ...]:
        reference = restore.spec.cluster_ref
        own = reference.kind == kind.api_resource.kind
        return (ObjectKey(restore.metadata.namespace, reference.name),) if own else ()

    return mapped


def _mapper_for_engine(engine: str) -> Callable[[Object], tuple[ObjectKey, ...]]:
    """Map an object to its cluster of this engine, by labels."""

    def mapped(obj: Object) -> tuple[ObjectKey, ...]:
        is_mysql = obj.metadata.labels.get("app.kubernetes.io/name", "").startswith("mysql")
        # Objects of read replicas have a name of their own in the label of the cluster.
        clusters = (ObjectKey(key.namespace, key.name.removesuffix(READ_REPLICA_SUFFIX)) for key in database_of(obj))
        return tuple(clusters) if is_mysql is (engine == "mysql") else ()

    return mapped


def _cluster_names_of(obj: Object) -> Iterable[str]:
    return map(str, database_of(obj))
