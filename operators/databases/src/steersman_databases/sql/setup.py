"""Watches of the controllers of `Database` and `DatabaseUser`."""

from __future__ import annotations

from typing import TypeVar

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import (
    ConfigMap,
    Event,
    Namespace,
    PersistentVolumeClaim,
    Pod,
    Secret,
    Service,
    ServiceAccount,
)
from steersman.controller import (
    Builder,
    field_changed,
    generation_changed,
    not_own_write,
    on_delete,
    referenced_by,
)
from steersman.manager import Manager
from steersman.meta import ObjectKey, metadata_only
from steersman_databases.api import Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.core.database_naming import database_of
from steersman_databases.core.outcome import MAX_CONCURRENT_RECONCILES
from steersman_databases.engines.connection.networks import Network
from steersman_databases.features.backup.metrics import backup_metrics
from steersman_databases.features.backup.stage import ClaimPath
from steersman_databases.sql import name_conflicts
from steersman_databases.sql.database.controller import DatabaseReconciler
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.name_ownership import NAME_INDEX
from steersman_databases.sql.server_resolver import (
    SqlEngineFactory,
    certificates_of,
    config_maps_of,
    mysql_clusters_of,
    postgresql_clusters_of,
    secrets_of,
    services_of,
)
from steersman_databases.sql.settings import SqlSettings
from steersman_databases.sql.user.controller import KIND, TargetFilter, UserReconciler

C = TypeVar("C", Database, DatabaseUser)


def setup_databases(
    manager: Manager,
    sql_engine_for: SqlEngineFactory,
    inspector: ServerInspector,
    target: str | None = None,
    claim_path: ClaimPath | None = None,
    server_networks: tuple[Network, ...] = (),
) -> None:
    """Add the controllers of `Database` and `DatabaseUser` to the manager.

    Args:
        manager: the operator's manager.
        sql_engine_for: returns the SQL engine of a name.
        inspector: shared with the controller of clusters.
        target: value of the label `target` of the users to reconcile; all users for None.
        claim_path: creates the identity of dumps in an object store.
        server_networks: networks that the servers of `serverRef` must be in. Empty permits all.
    """
    target_filter, metrics = TargetFilter(target), backup_metrics(manager.metrics_registry)
    settings = SqlSettings(manager.options.serve_webhooks, server_networks)
    (
        _with_server_refs(manager.controller(Database), Database)
        .with_predicate(generation_changed | not_own_write)
        .owns(PostgreSQLCluster)
        .owns(MySQLCluster)
        .owns(Job)
        .watches(Backup, _database_of_backup)
        .index(PostgreSQLCluster, NAME_INDEX, name_conflicts.index_keys)
        .index(MySQLCluster, NAME_INDEX, name_conflicts.index_keys)
        .watches(PersistentVolumeClaim, database_of)
        .watches(Secret, database_of)
        .needs(PostgreSQLCluster, "delete")
        .needs(MySQLCluster, "delete")
        .needs(Secret, "get", "create", "patch", "delete")
        .needs(Job, "create", "delete")
        .needs(ServiceAccount, "get", "create", "patch")
        .needs(ConfigMap, "create", "patch", "delete")
        .needs(Backup, "get", "create", "delete")
        .needs(BackupStore, "get", "list", "watch")
        .needs(Pod, "list", "watch")
        .needs(Event, "list")
        .source(inspector)
        .source(inspector.events_for(Database.api_resource.kind))
        .complete(
            lambda context: DatabaseReconciler(context, sql_engine_for, inspector, metrics, claim_path, settings)
        )
    )
    (
        _with_server_refs(manager.controller(DatabaseUser), DatabaseUser)
        .with_predicate(generation_changed | not_own_write)
        .with_predicate(target_filter)
        .owns(Secret)
        .needs(Secret, "get", "list", "watch", "create", "patch", "delete")
        .source(inspector.events_for(KIND))
        .complete(lambda context: UserReconciler(context, sql_engine_for, inspector, target_filter, settings))
    )


def _database_of_backup(backup: Backup) -> tuple[ObjectKey, ...]:
    """Database of a dump."""
    reference = backup.spec.database_ref
    return () if reference is None else (ObjectKey(backup.metadata.namespace, reference.name),)


def _with_server_refs(builder: Builder[C], kind: type[C]) -> Builder[C]:
    """Watches of kinds that live on a server, and their retries."""
    # Deleted certificates of a cluster are recreated at once; the previous ones stay valid until then.
    return (
        builder.index(kind, NAME_INDEX, name_conflicts.index_keys)
        .watches(metadata_only(Secret), referenced_by(kind, secrets_of))
        .watches(metadata_only(Service), referenced_by(kind, services_of))
        .watches(metadata_only(ConfigMap), referenced_by(kind, config_maps_of))
        .watches(Secret, referenced_by(kind, certificates_of), field_changed(_data_of) & ~on_delete)
        .watches(PostgreSQLCluster, referenced_by(kind, postgresql_clusters_of), field_changed(_connectivity))
        .watches(MySQLCluster, referenced_by(kind, mysql_clusters_of), field_changed(_connectivity))
        .needs(ConfigMap, "get")
        .needs(Namespace, "get")
        .max_concurrent_reconciles(MAX_CONCURRENT_RECONCILES)
        .base_retry_delay(2.0)
        .max_retry_delay(30.0)
    )


def _connectivity(cluster: PostgreSQLCluster | MySQLCluster) -> object:
    """Fields of a cluster that matter to objects on its server."""
    spec = cluster.spec
    serves = bool(cluster.status.primary)
    return (serves, spec.allowed_namespaces, spec.hibernated, cluster.metadata.deletion_timestamp)


def _data_of(secret: Secret) -> object:
    return secret.data
