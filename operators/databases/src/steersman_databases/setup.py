"""The controllers of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, Service
from steersman.cache import InformerOptions
from steersman.manager import Manager
from steersman.meta import metadata_only
from steersman_databases.api.autopilot.automation import AutomationMode
from steersman_databases.cluster.controller import ClusterReconciler
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.cluster.setup import (
    DEPENDENT_KINDS,
    EngineFactory,
    mysql_engine,
    postgresql_engine,
    setup_clusters,
)
from steersman_databases.cluster.status.mysql import MySQLAdapter
from steersman_databases.cluster.status.postgresql import PostgreSQLAdapter
from steersman_databases.core.cached_reads import without_unowned_data
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.cluster_engine import CLUSTER_DOMAIN
from steersman_databases.engines.connection.networks import Network
from steersman_databases.engines.registry import sql_engine_named
from steersman_databases.engines.sql.restore_account import CopyServer
from steersman_databases.features.backup.setup import setup_backups
from steersman_databases.features.backup_store.controller import setup_backup_stores
from steersman_databases.features.backup_store.probe_process import ProbeProcess, StoreProbe
from steersman_databases.features.monitoring.specs import PodMonitor
from steersman_databases.features.restore.setup import COPY_SERVERS, setup_restores
from steersman_databases.sql.database.controller import DatabaseReconciler
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.server_resolver import SqlEngineFactory
from steersman_databases.sql.setup import setup_databases

_OWN_OBJECTS = InformerOptions(label_selector=f"app.kubernetes.io/managed-by={MANAGED_BY}")
_OWN_DATA = replace(_OWN_OBJECTS, transform=without_unowned_data)
# Members write to ours every two seconds.
_FOREIGN_OBJECTS = InformerOptions(label_selector=f"app.kubernetes.io/managed-by!={MANAGED_BY}")


def setup(
    manager: Manager,
    sql_engine_for: SqlEngineFactory = sql_engine_named,
    target: str | None = None,
    postgresql_factory: EngineFactory = postgresql_engine,
    mysql_factory: EngineFactory = mysql_engine,
    cluster_domain: str = CLUSTER_DOMAIN,
    operator_namespace: str = "",
    minor_upgrades_at_once: int = 1,
    store_probe: StoreProbe | None = None,
    automation: AutomationMode = "Automatic",
    copy_servers: Mapping[str, CopyServer] = COPY_SERVERS,
    server_networks: tuple[Network, ...] = (),
) -> None:
    """Adds the operator's controllers to ``manager``.

    Args:
        contents: finds what is inside servers of an engine, by its name; tests put models in their place.
        target: a value of the label ``target``: only users who bear it; all for None.
        parts: PostgreSQL's part in clusters; likewise.
        mysql: MySQL's.
        cluster_domain: the DNS domain of Kubernetes' own names.
        operator_namespace: namespace of this process, "" if unknown.
        minor_upgrades_at_once: clusters in a minor upgrade, or not Ready after it, at the same time.
        automation: most that automatic functions may do.
        store_probe: verifies object stores. Defaults to one process for each probe.
        copy_servers: operations of restores on primaries, by engine.
        server_networks: networks that the servers of `serverRef` must be in. Empty permits all.
    """

    probe = store_probe or ProbeProcess()

    def with_settings(factory: EngineFactory) -> EngineFactory:
        return lambda context: replace(
            factory(context),
            claim_path=probe.claim,
            cluster_domain=cluster_domain,
            operator_namespace=operator_namespace,
            minor_upgrades_at_once=minor_upgrades_at_once,
            automation=automation,
            serves_webhooks=manager.options.serve_webhooks,
        )

    for kind in (StatefulSet, Service, Secret, PersistentVolumeClaim, Pod, PodMonitor, *DEPENDENT_KINDS):
        with_data = kind in (ConfigMap, Secret)
        manager.cache.configure(kind, _OWN_DATA if with_data else _OWN_OBJECTS)
    manager.cache.configure(metadata_only(ConfigMap), _FOREIGN_OBJECTS)
    surveys = ServerInspector(manager.runtime)
    setup_databases(manager, sql_engine_for, surveys, target, probe.claim, server_networks)
    setup_backup_stores(manager, probe)
    setup_clusters(manager, PostgreSQLAdapter(), with_settings(postgresql_factory), sql_engine_for, surveys)
    setup_backups(manager, cluster_domain)
    setup_restores(manager, sql_engine_for, cluster_domain, copy_servers)
    setup_clusters(manager, MySQLAdapter(), with_settings(mysql_factory), sql_engine_for, surveys)


__all__ = ["ClusterReconciler", "DatabaseReconciler", "EngineParts", "setup"]
