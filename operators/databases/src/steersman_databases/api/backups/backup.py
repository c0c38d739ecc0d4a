"""``Backup``: a requested, scheduled or discovered backup of a cluster or database."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from steersman.meta import (
    Field,
    FrozenStruct,
    PrinterColumn,
    Resource,
    Rule,
    Spec,
    Status,
    exactly_one_of,
    resource,
    schema,
)
from steersman_databases.api.backups.backup_common import BackupSource, BackupType, StoreReference
from steersman_databases.api.group import GROUP, VERSION, DeletionPolicy, EngineName
from steersman_databases.api.names import Name
from steersman_databases.api.references import ClusterKind

BackupPhase = Literal["Pending", "Running", "Completed", "Failed"]
BackupTrigger = Literal["Schedule", "OnDemand", "BeforeUpgrade", "AfterUpgrade", "Final", "Discovered"]


def _immutable(field: str) -> tuple[Rule, ...]:
    return (Rule(rule="self == oldSelf", message=f"{field} is immutable: create a new Backup"),)


class BackupClusterReference(FrozenStruct):
    """A cluster in the namespace of the ``Backup``."""

    name: Name
    """Name of the cluster."""
    kind: ClusterKind = "PostgreSQLCluster"
    """Kind of the cluster."""


class BackupDatabaseReference(FrozenStruct):
    """A Database with ``serverRef`` in the namespace of the ``Backup``."""

    name: Name
    """Name of the Database."""


@schema(
    rules=[
        exactly_one_of("clusterRef", "databaseRef"),
        Rule(
            rule="has(self.databaseRef) == has(oldSelf.databaseRef)",
            message="databaseRef is neither added nor removed later: create a new Backup",
            field_path=".databaseRef",
        ),
        Rule(
            rule="!has(self.databaseRef) || !has(self.type) || self.type == 'Full'",
            message="type must be Full with databaseRef: each dump is complete",
            field_path=".type",
        ),
        Rule(
            rule="!has(self.databaseRef) || !has(self.deletionPolicy) || self.deletionPolicy == 'Retain'",
            message="deletionPolicy must be Retain with databaseRef: the retention of the Database removes dumps",
            field_path=".deletionPolicy",
        ),
    ]
)
class BackupSpec(Spec):
    """The declared backup."""

    cluster_ref: Annotated[BackupClusterReference | None, Field(rules=_immutable("clusterRef"))] = None
    """The cluster that is backed up. Immutable."""
    database_ref: Annotated[BackupDatabaseReference | None, Field(rules=_immutable("databaseRef"))] = None
    """The Database on a server of serverRef that is dumped. Immutable."""
    type: Annotated[BackupType, Field(rules=_immutable("type"))] = "Full"
    """Type of the backup.

    Full, Differential (changes since the last full backup) or Incremental (changes since the last backup). MySQL
    supports Full only, and stores only the changes. Immutable.
    """
    source: Annotated[BackupSource | None, Field(immutable=True)] = None
    """Instance that is backed up: PreferReplica, Primary or Replica. Defaults to spec.backup.source of the cluster.
    Immutable."""
    deletion_policy: DeletionPolicy = "Retain"
    """Effect of deleting this object on the backup in the object store. Delete removes it and the backups that depend
    on it, except the last one and those that the retention window needs."""
    retain_until: datetime | None = None
    """Time until which retention keeps the backup, such as 2027-01-01T00:00:00Z."""


class PostgreSQLBackupStatus(FrozenStruct):
    """Position of a backup in the WAL."""

    timeline: int | None = None
    """Timeline."""
    start_lsn: str | None = msgspec.field(default=None, name="startLSN")
    """Position at the start."""
    stop_lsn: str | None = msgspec.field(default=None, name="stopLSN")
    """Position at the end. A recovery with this backup reaches it at least."""


class MySQLBackupStatus(FrozenStruct):
    """Transactions of a backup."""

    gtid_executed: str | None = None
    """Transactions in the backup, as a set of GTIDs."""


class BackupVerificationStatus(FrozenStruct):
    """The last verification of a backup that had a result. Durations are in seconds."""

    request: str | None = None
    """Last value of the annotation databases.steersman.dev/verify that was handled."""
    time: datetime | None = None
    """End of the verification."""
    recovered_to: datetime | None = None
    """Last commit that was restored."""
    data_loss_seconds: int | None = None
    """Age of the last restored commit at the start.

    It is the measured recovery point objective (RPO).
    """
    recovery_seconds: int | None = None
    """Time of restore and replay.

    It is the measured recovery time objective (RTO).
    """
    restore_seconds: int | None = None
    """Time to restore the files."""
    replay_seconds: int | None = None
    """Time to replay the archive."""
    check_seconds: int | None = None
    """Time to check all tables and to count their rows."""
    tables: int | None = None
    """Tables of users."""
    rows: int | None = None
    """Rows in these tables."""


class BackupStatus(Status):
    """The observed backup."""

    phase: BackupPhase | None = None
    """Pending, Running, Completed or Failed."""
    trigger: BackupTrigger | None = None
    """Cause of the backup.

    Schedule, OnDemand, BeforeUpgrade, AfterUpgrade, Final (deletion of the cluster) or Discovered (found in the
    object store).
    """
    backup_id: str | None = None
    """Backup ID in the object store: pgBackRest label or restic snapshot."""
    store: StoreReference | None = None
    """BackupStore with the backup. Its namespace is always set."""
    path: str | None = None
    """Path of the archive, or of the dumps, in the object store."""
    engine: EngineName | None = None
    """Engine of the cluster: postgresql or mysql."""
    version: str | None = None
    """Version of the server."""
    instance: str | None = None
    """Instance that was backed up."""
    start_time: datetime | None = None
    """Start of the backup."""
    stop_time: datetime | None = None
    """End of the backup."""
    size_bytes: int | None = None
    """Size of the data."""
    stored_bytes: int | None = None
    """Size that this backup adds to the object store."""
    depends_on: Annotated[tuple[str, ...], Field(max_items=1024, list_type="set")] = ()
    """Backup IDs that this backup needs."""
    postgresql: PostgreSQLBackupStatus | None = None
    """PostgreSQL: position in the WAL."""
    mysql: MySQLBackupStatus | None = None
    """MySQL: transactions."""
    verification: BackupVerificationStatus | None = None
    """The last verification by restoring. The condition Verified has its outcome."""
    message: str | None = None
    """Progress, or the cause of a failure."""


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["bkp"],
    categories=["all"],
    columns=[
        PrinterColumn("Cluster", ".spec.clusterRef.name"),
        PrinterColumn("Type", ".spec.type"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Trigger", ".status.trigger"),
        PrinterColumn("Stopped", ".status.stopTime", "date"),
        PrinterColumn("Size", ".status.sizeBytes", "integer"),
        PrinterColumn("Stored", ".status.storedBytes", "integer"),
        PrinterColumn("Verified", '.status.conditions[?(@.type=="Verified")].reason'),
        PrinterColumn("ID", ".status.backupId", priority=1),
        PrinterColumn("Database", ".spec.databaseRef.name", priority=1),
        PrinterColumn("Message", ".status.message", priority=1),
    ],
    rules=[
        Rule(
            rule="!has(self.spec.clusterRef) || !has(self.spec.clusterRef.kind)"
            " || self.spec.clusterRef.kind != 'MySQLCluster' || !has(self.spec.type) || self.spec.type == 'Full'",
            message="type must be Full on MySQL: each backup is complete, and only its changes are stored",
            field_path=".spec.type",
        ),
    ],
)
class Backup(Resource[BackupSpec, BackupStatus]):
    """A backup of a cluster or database in an object store."""

    @property
    def source_kind(self) -> str:
        """Kind of the cluster, or ``Database``."""
        reference = self.spec.cluster_ref
        return "Database" if reference is None else reference.kind

    @property
    def source_name(self) -> str:
        """Name of the object that is backed up."""
        reference = self.spec.cluster_ref or self.spec.database_ref
        return "" if reference is None else reference.name
