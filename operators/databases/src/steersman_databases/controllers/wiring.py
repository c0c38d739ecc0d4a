"""What the controllers of databases and users watch, and what they have in common."""

from __future__ import annotations

from typing import TypeVar

from steersman.api.core_v1 import ConfigMap, Namespace, PersistentVolumeClaim, Secret, Service
from steersman.controller import (
    Builder,
    field_changed,
    generation_changed,
    not_own_write,
    on_delete,
    referenced_by,
)
from steersman.manager import Manager
from steersman.meta import metadata_only
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.clusters import claims
from steersman_databases.controllers.database import DatabaseReconciler
from steersman_databases.controllers.outcome import WORKERS
from steersman_databases.controllers.rivals import CLAIMS
from steersman_databases.controllers.servers import (
    ContentsOf,
    certificates_of,
    config_maps_of,
    mysql_clusters_of,
    postgresql_clusters_of,
    secrets_of,
    services_of,
)
from steersman_databases.controllers.surveys import Surveys
from steersman_databases.controllers.users import KIND, TargetFilter, UserReconciler
from steersman_databases.resources import instance_of

C = TypeVar("C", Database, DatabaseUser)


def setup_databases(manager: Manager, contents: ContentsOf, surveys: Surveys, target: str | None = None) -> None:
    """Adds the controllers of ``Database`` and ``DatabaseUser`` to ``manager``.

    Args:
        contents: finds what is inside servers of an engine.
        surveys: shared with the controller of clusters.
        target: a value of the label ``target``: only users who bear it; all for None.
    """
    targeted = TargetFilter(target)
    (
        _placed(manager.controller(Database), Database)
        .with_predicate(generation_changed | not_own_write)
        .owns(PostgreSQLCluster)
        .owns(MySQLCluster)
        .index(PostgreSQLCluster, CLAIMS, claims.keys)
        .index(MySQLCluster, CLAIMS, claims.keys)
        .watches(PersistentVolumeClaim, instance_of)
        .watches(Secret, instance_of)
        .needs(PostgreSQLCluster, "delete")
        .needs(MySQLCluster, "delete")
        .needs(Secret, "create", "patch", "delete")
        .source(surveys)
        .source(surveys.tells(Database.api_resource.kind))
        .complete(lambda context: DatabaseReconciler(context, contents, surveys))
    )
    (
        _placed(manager.controller(DatabaseUser), DatabaseUser)
        .with_predicate(generation_changed | not_own_write)
        .with_predicate(targeted)
        .owns(Secret)
        .needs(Secret, "get", "list", "watch", "create", "patch", "delete")
        .source(surveys.tells(KIND))
        .complete(lambda context: UserReconciler(context, contents, surveys, targeted))
    )


def _placed(builder: Builder[C], kind: type[C]) -> Builder[C]:
    """What lives on a server: whose, what it refers to, and how often it is tried again."""
    # A cluster's certificates that are deleted come back at once: until then the former ones do.
    return (
        builder.index(kind, CLAIMS, claims.keys)
        .watches(metadata_only(Secret), referenced_by(kind, secrets_of))
        .watches(metadata_only(Service), referenced_by(kind, services_of))
        .watches(metadata_only(ConfigMap), referenced_by(kind, config_maps_of))
        .watches(Secret, referenced_by(kind, certificates_of), field_changed(_data) & ~on_delete)
        .watches(PostgreSQLCluster, referenced_by(kind, postgresql_clusters_of), field_changed(_reachable))
        .watches(MySQLCluster, referenced_by(kind, mysql_clusters_of), field_changed(_reachable))
        .needs(ConfigMap, "get")
        .needs(Namespace, "get")
        .max_concurrent_reconciles(WORKERS)
        .base_retry_delay(2.0)
        .max_retry_delay(30.0)
    )


def _reachable(cluster: PostgreSQLCluster | MySQLCluster) -> object:
    """What of a cluster matters to those who are on it."""
    spec = cluster.spec
    serves = bool(cluster.status.primary)
    return (serves, spec.allowed_namespaces, spec.hibernated, cluster.metadata.deletion_timestamp)


def _data(secret: Secret) -> object:
    return secret.data
