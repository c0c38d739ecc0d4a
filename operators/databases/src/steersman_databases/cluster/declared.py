"""Declared state of a cluster, independent of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from msgspec import structs

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import FrozenDict, Object
from steersman_databases.api import CLUSTER_KINDS, Cluster, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.backups.backup_common import RecoverySettings
from steersman_databases.api.cluster_common import ClusterSpec, PoolerSettings, SqlReferences
from steersman_databases.api.group import GROUP, EngineName, is_deletion_forced, is_paused
from steersman_databases.api.postgresql_cluster import MAX_REPLICATION_SLOTS, ReplicationSlot
from steersman_databases.engines.cluster_engine import (
    CLUSTER_DOMAIN,
    BootstrapDatabase,
    DataLossConsent,
    DeclaredCluster,
    DeclaredSlot,
    PodTemplateSettings,
    RequestedOperations,
    SqlSource,
    SynchronousReplication,
)
from steersman_databases.engines.naming import ClusterNames

FENCED_INSTANCES_ANNOTATION = f"{GROUP}/fenced-instances"
SWITCHOVER_ANNOTATION = f"{GROUP}/switchover"
REPLACE_ANNOTATION = f"{GROUP}/replace-instance"
RESTARTED_AT_ANNOTATION = f"{GROUP}/restarted-at"

DEFAULT_SLOTS = 10
"""Replication slots and WAL senders without a declared slot.

Source: Patroni 4.1, "Dynamic Configuration Settings".
"""

_RESOURCES = ResourceRequirements(
    requests=FrozenDict[str, int | str]({"cpu": "100m", "memory": "384Mi"}),
    limits=FrozenDict[str, int | str]({"memory": "768Mi"}),
)


def declare(cluster: Cluster, operator_image: str, *, cluster_domain: str = CLUSTER_DOMAIN) -> DeclaredCluster:
    """Declared state with defaults. `operator_image` is the operator's image for the version."""
    spec, names = cluster.spec, ClusterNames(cluster.key)
    additional = [s.name for s in spec.services.additional if s.role == "rw" and s.enabled]
    name, slow = cluster.metadata.name, spec.monitoring.slow_statement_threshold
    declared = DeclaredCluster(
        key=cluster.key,
        uid=cluster.metadata.uid,
        kind=type(cluster).api_resource.kind,
        engine=engine_of(type(cluster)),
        version=spec.version,
        image=spec.image or operator_image,
        has_explicit_image=spec.image is not None,
        automatic_minor_upgrades=spec.maintenance.minor_upgrades == "Automatic",
        instances=spec.instances,
        storage_size=spec.storage.size,
        storage_class=spec.storage.storage_class,
        wal_size=None,
        pod_settings=_pods(spec),
        synchronous=SynchronousReplication(),
        bootstrap=bootstrap_database_of(cluster) or BootstrapDatabase(database=name, owner=name),
        writable_services=(names.service("rw").name, *additional),
        tls_required=spec.tls.required,
        has_bootstrap_database=bootstrap_database_of(cluster) is not None,
        hibernated=spec.hibernated,
        automatic_replacement=spec.replace_failed_instances == "Automatic",
        delete_data=spec.deletion_policy == "Delete",
        needs_recovery=recovery_of(cluster) is not None and not cluster.status.version,
        generation=cluster.metadata.generation or 0,
        requests=_requests(names, cluster),
        cluster_domain=cluster_domain,
        archive_interval_seconds=(
            None if spec.backup is None else spec.backup.archive.interval_seconds(engine_of(type(cluster)))
        ),
        slow_statement_seconds=None if slow is None else slow.seconds,
        backup_processes=1 if spec.backup is None else spec.backup.jobs.processes,
    )
    return _of_mysql(declared, cluster) if isinstance(cluster, MySQLCluster) else _of_postgresql(declared, cluster)


def engine_of(kind: type[Cluster]) -> EngineName:
    """Engine of a kind of clusters."""
    return "mysql" if kind is MySQLCluster else "postgresql"


def kind_of(engine: str) -> type[Cluster]:
    """Kind of an engine's clusters."""
    return next(kind for kind in CLUSTER_KINDS if engine_of(kind) == engine)


def bootstrap_database_of(cluster: Cluster) -> BootstrapDatabase | None:
    """First database and its owner, with defaults. None if it is not declared."""
    declared = None if cluster.spec.bootstrap is None else cluster.spec.bootstrap.initdb
    if declared is None:
        return None
    database = declared.database or cluster.metadata.name
    return BootstrapDatabase(database=database, owner=declared.owner or database)


def recovery_of(cluster: Cluster) -> RecoverySettings | None:
    """Return the declared recovery, from which the first data come."""
    return None if cluster.spec.bootstrap is None else cluster.spec.bootstrap.recovery


def pooler_of(cluster: Cluster) -> PoolerSettings | None:
    """Declared pooler. PgBouncer supports PostgreSQL only.

    A pooler for replicas needs the Service `ro`: without it, it would look ready and lead nowhere. Such a
    declaration
    is rejected, and a stored one has no pooler.
    """
    pooler = cluster.spec.pooler if isinstance(cluster, PostgreSQLCluster) else None
    if pooler is None or cluster.spec.services.ro.enabled:
        return pooler
    return structs.replace(pooler, read_only=False)


def _of_postgresql(declared: DeclaredCluster, cluster: PostgreSQLCluster) -> DeclaredCluster:
    spec = cluster.spec
    settings = spec.postgresql
    return replace(
        declared,
        wal_size=None if spec.wal_storage is None else spec.wal_storage.size,
        wal_class=None if spec.wal_storage is None else spec.wal_storage.storage_class,
        pod_settings=replace(declared.pod_settings, shm_size=spec.shm_size),
        synchronous=SynchronousReplication(
            mode=cluster.synchronous_mode,
            number=settings.synchronous.standbys,
            required=settings.synchronous.required,
        ),
        bootstrap=_initdb_of_postgresql(declared.bootstrap, cluster),
        parameters={**_slot_parameters(settings.replication_slots), **settings.parameters},
        replication_slots=[
            DeclaredSlot(slot.name, slot.plugin or "", slot.database or "") for slot in settings.replication_slots
        ],
        preload_libraries=settings.shared_preload_libraries,
        hba_rules=settings.pg_hba,
        superuser_access=settings.enable_superuser_access,
        upgrade_image=spec.upgrade_image or "",
    )


def _slot_parameters(slots: Sequence[ReplicationSlot]) -> dict[str, str]:
    """Return the parameters that declared slots need.

    The numbers are the same for each number of slots, so that only the first slot restarts the servers.
    """
    if not slots:
        return {}
    number = str(DEFAULT_SLOTS + MAX_REPLICATION_SLOTS)
    limits = {"max_replication_slots": number, "max_wal_senders": number}
    return {**limits, "wal_level": "logical"} if any(slot.plugin for slot in slots) else limits


def _of_mysql(declared_cluster: DeclaredCluster, cluster: MySQLCluster) -> DeclaredCluster:
    spec = cluster.spec
    initial, declared = declared_cluster.bootstrap, None if spec.bootstrap is None else spec.bootstrap.initdb
    if declared is not None:
        initial = replace(
            initial,
            secret=None if declared.secret is None else declared.secret.name,
            sql=_sql_sources(declared.post_init_application_sql_refs),
            collation=declared.collation,
        )
    recovery = None
    if (consented := spec.force_recovery) is not None:
        loss = consented.loss
        recovery = DataLossConsent(
            epoch=consented.epoch,
            instance=consented.instance,
            transactions=loss.transactions,
            instances=frozenset(loss.instances),
        )
    character_set = "utf8mb4" if declared is None else declared.character_set
    return replace(
        declared_cluster,
        bootstrap=replace(initial, encoding=character_set),
        parameters=spec.mysql.parameters,
        force_recovery=recovery,
    )


def _pods(spec: ClusterSpec) -> PodTemplateSettings:
    return PodTemplateSettings(
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


def _initdb_of_postgresql(initial: BootstrapDatabase, cluster: PostgreSQLCluster) -> BootstrapDatabase:
    declared = None if cluster.spec.bootstrap is None else cluster.spec.bootstrap.initdb
    provider = "builtin" if int(cluster.spec.version) >= 17 else "libc"
    if declared is None:
        return replace(initial, locale_provider=provider)
    return replace(
        initial,
        secret=None if declared.secret is None else declared.secret.name,
        sql=_sql_sources(declared.post_init_application_sql_refs),
        encoding=declared.encoding,
        locale_provider=declared.locale_provider or provider,
        locale=declared.locale,
        wal_segment_size=declared.wal_segment_size,
    )


def _sql_sources(declared: SqlReferences | None) -> tuple[SqlSource, ...]:
    if declared is None:
        return ()
    listed = (
        *(SqlSource("Secret", ref.name, ref.key) for ref in declared.secret_refs),
        *(SqlSource("ConfigMap", ref.name, ref.key) for ref in declared.config_map_refs),
    )
    return tuple(dict.fromkeys(listed))


def _requests(names: ClusterNames, cluster: Cluster) -> RequestedOperations:
    annotations = cluster.metadata.annotations
    return RequestedOperations(
        paused=is_paused(cluster),
        force_delete=is_deletion_forced(cluster),
        fenced=_fenced(names, requested_fences(cluster)),
        switchover=resolve_instance_name(names, annotations.get(SWITCHOVER_ANNOTATION, "").strip()),
        replace=resolve_instance_name(names, annotations.get(REPLACE_ANNOTATION, "").strip()),
        restarted_at=annotations.get(RESTARTED_AT_ANNOTATION, ""),
    )


def resolve_instance_name(names: ClusterNames, name: str) -> str:
    """Name of an instance; a value that names none is returned unchanged."""
    ordinal = names.ordinal_of_instance(name)
    return name if ordinal is None else names.instance(ordinal)


def requested_fences(cluster: Object) -> list[str]:
    """Instances to fence, as written in the annotation."""
    names = (name.strip() for name in cluster.metadata.annotations.get(FENCED_INSTANCES_ANNOTATION, "").split(","))
    return [name for name in names if name]


def _fenced(names: ClusterNames, names_given: Sequence[str]) -> frozenset[int] | Literal["*"]:
    if "*" in names_given:
        return "*"
    return frozenset(ordinal for name in names_given if (ordinal := names.ordinal_of_instance(name)) is not None)
