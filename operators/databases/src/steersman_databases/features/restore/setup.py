"""Watches and rights of the controller of ``Restore``."""

from __future__ import annotations

from collections.abc import Mapping

from steersman.api.apps_v1 import StatefulSet
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Event, Namespace, PersistentVolumeClaim, Pod, Secret
from steersman.controller import ReconcilerContext, annotations_changed, any_of, generation_changed
from steersman.manager import Manager
from steersman_databases.api import Backup, MySQLCluster, PostgreSQLCluster, Restore
from steersman_databases.core.outcome import MAX_CONCURRENT_RECONCILES
from steersman_databases.engines.mysql.sql.restore_account import COPIES as MYSQL
from steersman_databases.engines.postgresql.sql.accounts.restore_account import COPIES as POSTGRESQL
from steersman_databases.engines.sql.restore_account import CopyServer
from steersman_databases.features.restore.controller import RestoreReconciler
from steersman_databases.sql.server_resolver import ServerResolver, SqlEngineFactory

COPY_SERVERS: Mapping[str, CopyServer] = {"postgresql": POSTGRESQL, "mysql": MYSQL}


def setup_restores(
    manager: Manager,
    sql_engine_for: SqlEngineFactory,
    cluster_domain: str,
    servers: Mapping[str, CopyServer] = COPY_SERVERS,
) -> None:
    """Add the controller of ``Restore`` to ``manager``.

    Args:
        cluster_domain: DNS domain of the Kubernetes cluster.
        servers: operations on primaries, by engine.
    """

    def reconciler(context: ReconcilerContext) -> RestoreReconciler:
        resolver = ServerResolver(context.client, sql_engine_for, context.runtime.clock)
        return RestoreReconciler(context, resolver, servers, cluster_domain)

    (
        manager.controller(Restore)
        .with_predicate(any_of(generation_changed, annotations_changed))
        .owns(Job)
        .needs(Job, "create", "delete")
        .needs(ConfigMap, "get", "list", "watch", "create", "patch", "delete")
        .needs(Secret, "get", "list", "watch", "create", "patch", "delete")
        .needs(Pod, "get", "list", "watch")
        .needs(StatefulSet, "get", "list", "watch")
        .needs(PersistentVolumeClaim, "get", "list", "watch")
        .needs(Namespace, "get")
        .needs(Backup, "get", "list", "watch")
        .needs(PostgreSQLCluster, "get", "list", "watch")
        .needs(MySQLCluster, "get", "list", "watch")
        .needs(Event, "list")
        .max_concurrent_reconciles(MAX_CONCURRENT_RECONCILES)
        .max_retry_delay(30.0)
        .complete(reconciler)
    )
