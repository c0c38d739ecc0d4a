"""Backups of clusters for ``kubectl steersman``: request one, wait for it, list them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Table

from steersman.client import Client, MergePatch
from steersman.meta import FrozenStruct, ObjectKey, ObjectMeta, find_condition
from steersman_databases.api import Backup, BackupSpec, Cluster, Database
from steersman_databases.api.backups.backup import BackupClusterReference, BackupDatabaseReference
from steersman_databases.api.backups.backup_common import BackupType
from steersman_databases.core.sizes import format_bytes
from steersman_databases.features.verification.model import VERIFIED, VERIFY_ANNOTATION
from steersman_databases.kubectl.command import OperationRejected
from steersman_databases.kubectl.lookup import find_cluster
from steersman_databases.kubectl.tables import plain_table
from steersman_databases.kubectl.waiting import wait_until_done


class BackupReport(FrozenStruct):
    """A backup as the commands show it. Sizes are in bytes."""

    name: str
    cluster: str
    type: str
    phase: str
    trigger: str | None = None
    backup_id: str | None = None
    stop_time: datetime | None = None
    size_bytes: int | None = None
    stored_bytes: int | None = None
    verified: str | None = None
    message: str | None = None


async def request(client: Client, key: ObjectKey, type_: BackupType) -> Backup:
    """Create a ``Backup`` of a cluster.

    Raises:
        OperationRejected: the cluster has no ``spec.backup``.
    """
    cluster = await find_cluster(client, key)
    return await _create(client, cluster, BackupSpec(cluster_ref=_reference(cluster), type=type_))


async def request_dump(client: Client, key: ObjectKey) -> Backup:
    """Create a ``Backup`` of a ``Database`` on a server of ``serverRef``.

    Raises:
        OperationRejected: the database has no ``spec.backup``, or is in a cluster, which is backed up instead.
    """
    database = await client.get(Database, key)
    if database.spec.server_ref is None:
        cluster = key.name if database.spec.cluster_ref is None else database.spec.cluster_ref.name
        raise OperationRejected(f"Database {key.name} has no serverRef: back up its cluster {cluster} instead")
    reference = BackupDatabaseReference(name=key.name)
    return await _create(client, database, BackupSpec(database_ref=reference))


async def _create(client: Client, source: Cluster | Database, spec: BackupSpec) -> Backup:
    key = source.key
    if source.spec.backup is None:
        raise OperationRejected(
            f"{type(source).api_resource.kind} {key.name} has no spec.backup. Declare an object store there"
        )
    metadata = ObjectMeta(name=f"{key.name}-{datetime.now(UTC):%Y%m%d%H%M%S}", namespace=key.namespace)
    return await client.create(Backup(metadata=metadata, spec=spec))


async def verify(client: Client, key: ObjectKey) -> Backup:
    """Request the verification of a completed ``Backup``.

    Raises:
        OperationRejected: the backup has not completed.
    """
    backup = await client.get(Backup, key)
    if backup.status.phase != "Completed":
        raise OperationRejected(
            f"Backup {key.name} is not completed: {backup.status.message or 'it has not started'}"
        )
    value = datetime.now(UTC).isoformat()
    patch = MergePatch({"metadata": {"annotations": {VERIFY_ANNOTATION: value}}})
    return await client.patch(Backup, key, patch)


async def wait_for_verification(client: Client, requested: Backup, seconds: float) -> Backup:
    """Wait for the verification that was requested, and print its progress.

    Raises:
        OperationRejected: it was not verified, or not in time.
    """
    request, name = requested.metadata.annotations[VERIFY_ANNOTATION], requested.metadata.name

    def progress(backup: Backup) -> tuple[str, str] | None:
        condition, found = find_condition(backup.status.conditions, VERIFIED), backup.status.verification
        message = "" if condition is None else condition.message
        if condition is None or found is None or found.request != request:
            return "", message
        if condition.status != "True":
            raise OperationRejected(f"backup {name} is not verified: {condition.reason}: {message}")
        return None

    unfinished = f"backup {name} has no result within {seconds:.0f} s; the verification continues"
    return await wait_until_done(client, requested, progress, seconds, unfinished)


async def load(client: Client, namespace: str, cluster: str) -> tuple[BackupReport, ...]:
    """Backups of a cluster, the newest first. An empty name means all clusters of the namespace."""
    found = (await client.list(Backup, namespace=namespace)).items
    own = [backup for backup in found if cluster in ("", backup.source_name)]
    return tuple(report(b) for b in sorted(own, key=_time, reverse=True))


def report(backup: Backup) -> BackupReport:
    """A backup as it is shown."""
    status = backup.status
    condition = find_condition(status.conditions, "Complete")
    verified = find_condition(status.conditions, VERIFIED)
    return BackupReport(
        name=backup.metadata.name,
        cluster=backup.source_name,
        type=backup.spec.type,
        phase=status.phase or "Pending",
        trigger=status.trigger,
        backup_id=status.backup_id,
        stop_time=status.stop_time,
        size_bytes=status.size_bytes,
        stored_bytes=status.stored_bytes,
        verified=None if verified is None else verified.reason,
        message=None if condition is not None and condition.status == "True" else status.message,
    )


def table(reports: Sequence[BackupReport]) -> Table:
    """A table of backups."""
    columns = ("NAME", "CLUSTER", "TYPE", "PHASE", "TRIGGER", "STOPPED", "SIZE", "STORED", "VERIFIED", "MESSAGE")
    return plain_table(columns, (_row(each) for each in reports))


def _row(each: BackupReport) -> tuple[str, ...]:
    stopped = "" if each.stop_time is None else f"{each.stop_time:%Y-%m-%d %H:%M:%S}"
    sizes = ("" if size is None else format_bytes(size) for size in (each.size_bytes, each.stored_bytes))
    row = (each.name, each.cluster, each.type, each.phase, each.trigger or "", stopped, *sizes)
    return (*row, each.verified or "", each.message or "")


def _reference(cluster: Cluster) -> BackupClusterReference:
    is_mysql = cluster.api_resource.kind == "MySQLCluster"
    return BackupClusterReference(
        name=cluster.metadata.name, kind="MySQLCluster" if is_mysql else "PostgreSQLCluster"
    )


def _time(backup: Backup) -> tuple[datetime, str]:
    created = backup.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
    return backup.status.stop_time or created, backup.metadata.name
