"""``Backup`` objects that the operator creates. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime

from steersman.meta import FrozenDict, ObjectMeta
from steersman_databases.api import Backup, BackupSpec, Cluster, Database
from steersman_databases.api.backups.backup import BackupClusterReference, BackupDatabaseReference, BackupTrigger
from steersman_databases.api.backups.backup_common import BackupType
from steersman_databases.api.references import ClusterKind
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.features.backup.catalog import CatalogBackup
from steersman_databases.features.backup.model import (
    BACKUP_ID_ANNOTATION,
    CLUSTER_UID_LABEL,
    SCHEDULE_LABEL,
    SCHEDULED_AT_ANNOTATION,
    TRIGGER_LABEL,
    UPGRADE_TO_LABEL,
)
from steersman_databases.features.backup.queries import store_of
from steersman_databases.features.backup.schedules import DueBackup

_TIME = "%Y%m%d%H%M"


def scheduled_backup(cluster: Cluster | Database, due: DueBackup) -> Backup:
    """A backup of a schedule. Its name has the scheduled time: two creations of one backup conflict."""
    return _backup(
        cluster,
        f"{_prefix(cluster)}-{due.schedule.name}-{due.time:{_TIME}}",
        "Schedule",
        due.schedule.type,
        labels={SCHEDULE_LABEL: due.schedule.name},
        annotations={SCHEDULED_AT_ANNOTATION: due.time.isoformat()},
    )


def initial_backup(cluster: Cluster | Database) -> Backup:
    """The first full backup of a cluster or dump of a Database.

    Without one nothing can be recovered.
    """
    name = f"{cluster.metadata.name}-initial-{cluster.metadata.uid[:8]}"
    return _backup(cluster, name, "Schedule", "Full")


def final_dump(database: Database) -> Backup:
    """The dump before the database is dropped. Each Database has its own."""
    return _backup(database, f"{database.metadata.name}-final-{database.metadata.uid[:8]}", "Final", "Full")


def backup_after_gap(cluster: Cluster, since: datetime) -> Backup:
    """A full backup after a gap in the archive.

    Recovery across the gap is impossible.

    Args:
        since: when the gap was found.
    """
    return _backup(cluster, f"{cluster.metadata.name}-gap-{since:{_TIME}%S}", "Schedule", "Full")


def backup_before_upgrade(cluster: Cluster, version: str, now: datetime) -> Backup:
    """A backup before a major upgrade. Two creations within a day conflict.

    Args:
        version: the version after the upgrade.
    """
    store = store_of(cluster)
    text = "" if store is None else f"{store.namespace}/{store.name}"
    suffix = f"{cluster.metadata.uid[:8]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    name = f"{cluster.metadata.name}-before-{version}-{now:%Y%m%d}-{suffix}"
    type_: BackupType = "Full" if cluster_kind(cluster) == "MySQLCluster" else "Incremental"
    return _backup(cluster, name, "BeforeUpgrade", type_, labels={UPGRADE_TO_LABEL: version})


def backup_after_upgrade(cluster: Cluster, version: str) -> Backup:
    """The first full backup of upgraded data.

    WAL of a new version continues no backup of the previous one.
    """
    name = f"{cluster.metadata.name}-after-{version}-{cluster.metadata.uid[:8]}"
    return _backup(cluster, name, "AfterUpgrade", "Full", labels={UPGRADE_TO_LABEL: version})


def discovered_backup(cluster: Cluster, found: CatalogBackup) -> Backup:
    """A backup that is in the store and has no object."""
    # IDs of pgBackRest have upper case and underscores, which names of objects do not permit.
    suffix = re.sub("[^a-z0-9]+", "-", found.id.lower()).strip("-")
    return _backup(
        cluster,
        f"{cluster.metadata.name}-{suffix}",
        "Discovered",
        found.type,
        annotations={BACKUP_ID_ANNOTATION: found.id},
    )


def _backup(
    cluster: Cluster | Database,
    name: str,
    trigger: BackupTrigger,
    type_: BackupType,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Backup:
    metadata = ObjectMeta(
        name=name,
        namespace=cluster.metadata.namespace,
        labels=FrozenDict(
            {
                "app.kubernetes.io/managed-by": MANAGED_BY,
                TRIGGER_LABEL: trigger,
                CLUSTER_UID_LABEL: cluster.metadata.uid,
                **(labels or {}),
            }
        ),
        annotations=FrozenDict(annotations or {}),
    )
    if isinstance(cluster, Database):
        spec = BackupSpec(database_ref=BackupDatabaseReference(name=cluster.metadata.name), type=type_)
    else:
        reference = BackupClusterReference(name=cluster.metadata.name, kind=cluster_kind(cluster))
        spec = BackupSpec(cluster_ref=reference, type=type_)
    return Backup(metadata=metadata, spec=spec)


def _prefix(cluster: Cluster | Database) -> str:
    """Start of the names of scheduled backups. A cluster may have the name of a Database."""
    return f"{cluster.metadata.name}-dump" if isinstance(cluster, Database) else cluster.metadata.name


def cluster_kind(cluster: Cluster) -> ClusterKind:
    """The kind of a cluster, as references name it."""
    return "MySQLCluster" if cluster.api_resource.kind == "MySQLCluster" else "PostgreSQLCluster"
