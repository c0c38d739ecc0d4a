"""What the controller of clusters watches and may do, and the parts of its engine."""

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
from steersman.controller import ReconcilerContext, annotations_changed, any_of, generation_changed
from steersman.manager import Manager
from steersman.meta import Object, ObjectKey
from steersman_databases.api import CLUSTERS
from steersman_databases.clusters.view import engine_of
from steersman_databases.controllers import initial, keys, poolers, upgrades
from steersman_databases.controllers.cluster import ClusterReconciler
from steersman_databases.controllers.instances import CLUSTER_INDEX
from steersman_databases.controllers.kinds import C, OwnOf
from steersman_databases.controllers.outcome import RECHECK_SECONDS, WORKERS
from steersman_databases.controllers.parts import ClusterParts
from steersman_databases.controllers.relevance import matters
from steersman_databases.controllers.servers import ContentsOf
from steersman_databases.controllers.surveys import Surveys
from steersman_databases.engines.mysql.catalog import catalog as mysql_catalog
from steersman_databases.engines.mysql.cluster import MySQLCluster as MySQLServers
from steersman_databases.engines.mysql.furnishing import furnish as mysql_furnishing
from steersman_databases.engines.mysql.topology import GroupTopology
from steersman_databases.engines.postgresql.accounts import furnish
from steersman_databases.engines.postgresql.altered import take_back
from steersman_databases.engines.postgresql.catalog import catalog
from steersman_databases.engines.postgresql.cluster import PostgreSQLCluster as PostgreSQLServers
from steersman_databases.engines.postgresql.console import command
from steersman_databases.engines.postgresql.outpaced import log_is_gone
from steersman_databases.engines.postgresql.shown import shown_certificate
from steersman_databases.engines.postgresql.topology import PatroniTopology
from steersman_databases.engines.postgresql.trying import try_out
from steersman_databases.engines.postgresql.upgrading import in_use
from steersman_databases.resources import access, instance_of

CLUSTER_KINDS = (
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
"""What is made for clusters only, and cached by our labels."""
PartsOf = Callable[[ReconcilerContext], ClusterParts]


def postgresql_parts(context: ReconcilerContext) -> ClusterParts:
    """PostgreSQL's part, with Patroni."""
    topology = PatroniTopology(context.client)
    asked = (shown_certificate, command, catalog, furnish, in_use, take_back, log_is_gone, try_out)
    return ClusterParts(PostgreSQLServers(), topology, *asked)


def mysql_parts(context: ReconcilerContext) -> ClusterParts:
    """MySQL's part, with its groups. Certificates are followed by the agents themselves."""
    return ClusterParts(
        MySQLServers(), GroupTopology(context.client), settings=mysql_catalog, furnish=mysql_furnishing
    )


def setup_clusters(manager: Manager, own: OwnOf[C], parts: PartsOf, contents: ContentsOf, surveys: Surveys) -> None:
    """Adds the controller of a kind of clusters to ``manager``.

    Args:
        own: what is this kind's own.
        parts: an engine's part in clusters.
        contents: finds what is inside servers of an engine.
        surveys: shared with the controllers of databases and users.
    """
    mapped = _of_engine(engine_of(own.kind))
    builder = (
        manager.controller(own.kind)
        .with_predicate(any_of(generation_changed, annotations_changed))
        .owns(StatefulSet)
        .owns(Service)
        .owns(EndpointSlice)
        .owns(ServiceAccount)
        .owns(Role)
        .owns(RoleBinding)
        .owns(PodDisruptionBudget)
        .owns(NetworkPolicy)
        .owns(Job)
        .watches(PersistentVolumeClaim, mapped)
        .watches(Secret, mapped)
        .watches(Pod, mapped, matters)
        .watches(ConfigMap, mapped, matters)
        .source(surveys.tells(own.kind.api_resource.kind))
        .needs(StatefulSet, "delete")
        .needs(Service, "delete")
        .needs(EndpointSlice, "delete")
        .needs(PersistentVolumeClaim, "create", "patch", "delete")
        .needs(Secret, "create", "patch", "delete")
        .needs(ConfigMap, "create", "delete")
        .needs(Pod, "delete")
        .needs(PodDisruptionBudget, "delete")
        .needs(NetworkPolicy, "delete")
        .needs(PersistentVolume, "get")
        .needs(Node, "list")
        .needs(Event, "list")
        .max_concurrent_reconciles(WORKERS)
        .max_retry_delay(RECHECK_SECONDS)
    )
    # One index serves all kinds of clusters: none shares its name with another.
    for kind in (StatefulSet, Pod, PersistentVolumeClaim, ConfigMap) if own.kind is CLUSTERS[0] else ():
        builder.index(kind, CLUSTER_INDEX, _cluster_of)
    for permit in (access.permit, keys.permit, poolers.permit, initial.permit, upgrades.permit):
        permit(builder)
    builder.complete(lambda context: ClusterReconciler(context, own, parts, contents, surveys))


def _of_engine(engine: str) -> Callable[[Object], tuple[ObjectKey, ...]]:
    """The cluster that an object belongs to by its labels, where it is one of this engine."""

    def mapped(obj: Object) -> tuple[ObjectKey, ...]:
        of_mysql = obj.metadata.labels.get("app.kubernetes.io/name", "").startswith("mysql")
        return instance_of(obj) if of_mysql is (engine == "mysql") else ()

    return mapped


def _cluster_of(obj: Object) -> Iterable[str]:
    return map(str, instance_of(obj))
