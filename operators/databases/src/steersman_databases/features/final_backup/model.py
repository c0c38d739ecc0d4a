"""Decisions about the final backup of a cluster that is being deleted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import FrozenDict, ObjectMeta, find_condition
from steersman_databases.api import Backup, BackupSpec, Cluster
from steersman_databases.api.backups.backup import BackupClusterReference
from steersman_databases.api.backups.backup_common import BackupSettings, period
from steersman_databases.api.references import ClusterKind
from steersman_databases.cluster.state import AWAITING_RECOVERY, OVERWRITING, ClusterState, is_retired, ordinal_of
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_databases.features.backup.model import CLUSTER_UID_LABEL, TRIGGER_LABEL

Decision = Literal["NotNeeded", "Due", "Completed", "Skipped", "NamespaceDeleted"]
"""``Skipped``: it was not possible, and the volumes stay."""

IF_POSSIBLE_TIMEOUT = timedelta(minutes=10)
"""Time from the deletion until ``finalBackup: IfPossible`` gives up."""
_RETRY_AFTER = timedelta(minutes=1)


def is_enabled(cluster: Cluster) -> bool:
    """Return True if the cluster declares a final backup, default included."""
    settings = cluster.spec.backup
    return settings is not None and settings.final_backup_policy(cluster.spec.deletion_policy) != "Disabled"


def has_timed_out(cluster: Cluster, now: datetime) -> bool:
    """Return True if ``IfPossible`` has waited long enough."""
    settings, since = cluster.spec.backup, cluster.metadata.deletion_timestamp
    if settings is None or settings.final_backup_policy(cluster.spec.deletion_policy) != "IfPossible":
        return False
    return since is not None and now - since > IF_POSSIBLE_TIMEOUT


def has_data(pvcs: Sequence[PersistentVolumeClaim], *, served: bool, retained: Sequence[str]) -> bool:
    """Return True if only these volumes have the data.

    No other volume or archive has them.

    Args:
        served: a server of this cluster has run.
        retained: names of PVCs that a previous cluster left.
    """
    if any(OVERWRITING in pvc.metadata.annotations for pvc in data_pvcs(pvcs)):
        # The data of the cluster are in the archive alone.
        return False
    data = [pvc for pvc in data_pvcs(pvcs) if AWAITING_RECOVERY not in pvc.metadata.labels]
    return bool(data) and (served or any(pvc.metadata.name in retained for pvc in data))


def data_pvcs(pvcs: Sequence[PersistentVolumeClaim]) -> Sequence[PersistentVolumeClaim]:
    """Return the PVCs of data in use, by ordinal."""
    found = [p for p in pvcs if p.metadata.name.startswith("data-") and not is_retired(p)]
    return sorted(found, key=lambda pvc: ordinal_of(pvc) or 0)


def last_primary(state: ClusterState, recorded: int | None, pvcs: Sequence[PersistentVolumeClaim]) -> int | None:
    """Return the instance whose volume has all committed transactions. None if there is no volume.

    Args:
        recorded: the primary that was observed before the servers stopped.
        pvcs: of the cluster.
    """
    if state.members.last_leader is not None:
        return state.members.last_leader
    if recorded is not None:
        return recorded
    # Without any record of a promotion the primary is the instance that created the data.
    return next((ordinal_of(pvc) for pvc in data_pvcs(pvcs)), None)


def is_due_again(job: Job, now: datetime) -> bool:
    """Return True if a failed Job is to be replaced."""
    failed = find_condition(job.status.conditions, "Failed")
    since = None if failed is None else failed.last_transition_time
    since = since or job.metadata.creation_timestamp
    return since is not None and now - since > _RETRY_AFTER


def backup_name(cluster: Cluster) -> str:
    """Return the name of the ``Backup``. Each cluster has its own, also one that is created again."""
    return f"{cluster.metadata.name}-final-{cluster.metadata.uid[:8]}"


def final_backup(cluster: Cluster, kind: ClusterKind, settings: BackupSettings, now: datetime) -> Backup:
    """Return the ``Backup`` to create. It has no owner: it outlives the cluster."""
    labels: Mapping[str, str] = {
        "app.kubernetes.io/managed-by": MANAGED_BY,
        CLUSTER_LABEL: cluster.metadata.name,
        TRIGGER_LABEL: "Final",
        CLUSTER_UID_LABEL: cluster.metadata.uid,
    }
    retention = period(settings.retention_after_deletion)
    return Backup(
        metadata=ObjectMeta(
            name=backup_name(cluster), namespace=cluster.metadata.namespace, labels=FrozenDict[str, str](labels)
        ),
        spec=BackupSpec(
            cluster_ref=BackupClusterReference(name=cluster.metadata.name, kind=kind),
            # The restic snapshots of MySQL are always complete.
            type="Full" if kind == "MySQLCluster" else "Incremental",
            retain_until=None if retention is None else now + retention,
        ),
    )
