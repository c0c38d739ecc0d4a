"""A cluster as every engine and every controller sees it, read off its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from msgspec import structs

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import FrozenDict, Object
from steersman_databases.api import CLUSTERS, Cluster, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.cluster_parts import ClusterSpec, Pooler, SqlReferences
from steersman_databases.api.group import GROUP, EngineName, is_forced, is_paused
from steersman_databases.engines.cluster import (
    CLUSTER_DOMAIN,
    ClusterView,
    Consent,
    InitialDatabase,
    PodSettings,
    Requests,
    SqlSource,
    Synchronous,
)
from steersman_databases.engines.cluster_names import ClusterNames

FENCED_INSTANCES = f"{GROUP}/fenced"
SWITCHOVER = f"{GROUP}/switchover"
REPLACE = f"{GROUP}/replace"
RESTART = f"{GROUP}/restart"

_RESOURCES = ResourceRequirements(
    requests=FrozenDict[str, int | str]({"cpu": "100m", "memory": "384Mi"}),
    limits=FrozenDict[str, int | str]({"memory": "768Mi"}),
)


def view_of(cluster: Cluster, available: str, *, cluster_domain: str = CLUSTER_DOMAIN) -> ClusterView:
    """What the cluster declares, defaults put in; ``available`` is the operator's image for its version."""
    spec, names = cluster.spec, ClusterNames(cluster.key)
    additional = [s.name for s in spec.services.additional if s.role == "rw" and s.enabled]
    name = cluster.metadata.name
    view = ClusterView(
        key=cluster.key,
        uid=cluster.metadata.uid,
        kind=type(cluster).api_resource.kind,
        engine=engine_of(type(cluster)),
        version=spec.version,
        image=spec.image or available,
        image_given=spec.image is not None,
        upgrades_minor=spec.minor_upgrades == "Automatic",
        instances=spec.instances,
        storage_size=spec.storage.size,
        storage_class=spec.storage.storage_class,
        wal_size=None,
        pods=_pods(spec),
        synchronous=Synchronous(),
        initial=declared_database(cluster) or InitialDatabase(database=name, owner=name),
        writable_services=(names.service("rw").name, *additional),
        tls_required=spec.tls.required,
        has_database=spec.bootstrap is not None,
        hibernated=spec.hibernated,
        replaces_failed=spec.replace_failed_instances == "Automatic",
        deletes_data=spec.deletion_policy == "Delete",
        generation=cluster.metadata.generation or 0,
        requests=_requests(names, cluster),
        cluster_domain=cluster_domain,
    )
    return _of_mysql(view, cluster) if isinstance(cluster, MySQLCluster) else _of_postgresql(view, cluster)


def engine_of(kind: type[Cluster]) -> EngineName:
    """The engine of clusters of this kind."""
    return "mysql" if kind is MySQLCluster else "postgresql"


def kind_of(engine: str) -> type[Cluster]:
    """The kind of this engine's clusters."""
    return next(kind for kind in CLUSTERS if engine_of(kind) == engine)


def declared_database(cluster: Cluster) -> InitialDatabase | None:
    """The first database and its owner, defaults put in; None where none is declared."""
    if cluster.spec.bootstrap is None:
        return None
    declared = cluster.spec.bootstrap.initdb
    database = declared.database or cluster.metadata.name
    return InitialDatabase(database=database, owner=declared.owner or database)


def declared_pooler(cluster: Cluster) -> Pooler | None:
    """PgBouncer knows PostgreSQL alone. Without the Service ro, one for replicas would lead nowhere and look ready:
    that is refused, and who was stored with it before has none."""
    pooler = cluster.spec.pooler if isinstance(cluster, PostgreSQLCluster) else None
    if pooler is None or cluster.spec.services.ro.enabled:
        return pooler
    return structs.replace(pooler, read_only=False)


def _of_postgresql(view: ClusterView, cluster: PostgreSQLCluster) -> ClusterView:
    spec = cluster.spec
    settings = spec.postgresql
    return replace(
        view,
        wal_size=None if spec.wal_storage is None else spec.wal_storage.size,
        wal_class=None if spec.wal_storage is None else spec.wal_storage.storage_class,
        pods=replace(view.pods, shm_size=spec.shm_size),
        synchronous=Synchronous(
            mode=cluster.synchronous_mode,
            standbys=settings.synchronous.standbys,
            required=settings.synchronous.required,
        ),
        initial=_initial_of_postgresql(view.initial, cluster),
        parameters=settings.parameters,
        preload_libraries=settings.shared_preload_libraries,
        access_rules=settings.pg_hba,
        superuser_access=settings.enable_superuser_access,
        upgrade_image=spec.upgrade_image or "",
    )


def _of_mysql(view: ClusterView, cluster: MySQLCluster) -> ClusterView:
    spec = cluster.spec
    initial, declared = view.initial, None if spec.bootstrap is None else spec.bootstrap.initdb
    if declared is not None:
        initial = replace(
            initial,
            secret=None if declared.secret is None else declared.secret.name,
            sql=_sql(declared.post_init_application_sql_refs),
            collation=declared.collation,
        )
    recovery = None
    if (said := spec.recovery) is not None:
        loss = said.loss
        recovery = Consent(
            epoch=said.epoch,
            instance=said.instance,
            transactions=loss.transactions,
            instances=frozenset(loss.instances),
        )
    character_set = "utf8mb4" if declared is None else declared.character_set
    return replace(
        view,
        initial=replace(initial, encoding=character_set),
        parameters=spec.mysql.parameters,
        recovery=recovery,
    )


def _pods(spec: ClusterSpec) -> PodSettings:
    return PodSettings(
        resources=spec.resources or _RESOURCES,
        image_pull_policy=spec.image_pull_policy,
        image_pull_secrets=spec.image_pull_secrets,
        affinity=spec.affinity,
        node_selector=spec.node_selector,
        tolerations=spec.tolerations,
        topology_spread_constraints=spec.topology_spread_constraints,
        priority_class=spec.priority_class_name or "",
        labels=spec.pod_metadata.labels,
        annotations=spec.pod_metadata.annotations,
    )


def _initial_of_postgresql(initial: InitialDatabase, cluster: PostgreSQLCluster) -> InitialDatabase:
    declared = None if cluster.spec.bootstrap is None else cluster.spec.bootstrap.initdb
    provider = "builtin" if int(cluster.spec.version) >= 17 else "libc"
    if declared is None:
        return replace(initial, locale_provider=provider)
    return replace(
        initial,
        secret=None if declared.secret is None else declared.secret.name,
        sql=_sql(declared.post_init_application_sql_refs),
        encoding=declared.encoding,
        locale_provider=declared.locale_provider or provider,
        locale=declared.locale,
        wal_segment_size=declared.wal_segment_size,
    )


def _sql(declared: SqlReferences | None) -> tuple[SqlSource, ...]:
    if declared is None:
        return ()
    listed = (
        *(SqlSource("Secret", ref.name, ref.key) for ref in declared.secret_refs),
        *(SqlSource("ConfigMap", ref.name, ref.key) for ref in declared.config_map_refs),
    )
    return tuple(dict.fromkeys(listed))


def _requests(names: ClusterNames, cluster: Cluster) -> Requests:
    annotations = cluster.metadata.annotations
    return Requests(
        paused=is_paused(cluster),
        force_delete=is_forced(cluster),
        fenced=_fenced(names, fenced_names(cluster)),
        switchover=called_instance(names, annotations.get(SWITCHOVER, "").strip()),
        replace=called_instance(names, annotations.get(REPLACE, "").strip()),
        restart=annotations.get(RESTART, ""),
    )


def called_instance(names: ClusterNames, name: str) -> str:
    """The instance that is meant; what means none, as it stands."""
    number = names.called(name)
    return name if number is None else names.instance(number)


def fenced_names(cluster: Object) -> list[str]:
    """Who is to be fenced, as it was written."""
    names = (name.strip() for name in cluster.metadata.annotations.get(FENCED_INSTANCES, "").split(","))
    return [name for name in names if name]


def _fenced(names: ClusterNames, called: Sequence[str]) -> frozenset[int] | Literal["*"]:
    if "*" in called:
        return "*"
    return frozenset(number for name in called if (number := names.called(name)) is not None)
