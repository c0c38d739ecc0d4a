"""Backup settings and recovery sources of clusters, and their status."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from steersman.api.core_v1 import ResourceRequirements, Toleration
from steersman.meta import Duration, Field, FrozenDict, FrozenStruct, Object, Quantity, Rule, exactly_one_of, schema
from steersman_databases.api.group import GROUP, DeletionPolicy, EngineName
from steersman_databases.api.names import PRINTABLE, SUBDOMAIN, Name, Namespace

BackupType = Literal["Full", "Differential", "Incremental"]
BackupSource = Literal["PreferReplica", "Primary", "Replica"]
FinalBackupPolicy = Literal["Required", "IfPossible", "Disabled"]
VolumeFullPolicy = Literal["StopWrites", "DropArchive"]

ARCHIVE_PATH_ANNOTATION = f"{GROUP}/archive-path"
"""Path of the archive in the object store. On the PVCs of a cluster's data."""
SKIP_FINAL_BACKUP_ANNOTATION = f"{GROUP}/skip-final-backup"
"""``"true"`` on a cluster during its deletion: continue without the final backup.

The volumes stay.
"""


def is_final_backup_skipped(obj: Object) -> bool:
    """Return True if an annotation skips the final backup of ``obj``."""
    return obj.metadata.annotations.get(SKIP_FINAL_BACKUP_ANNOTATION, "").strip().lower() == "true"


_UNIT_SECONDS = {"h": 3600, "d": 86400, "w": 604800}
_PERIOD = "[1-9][0-9]{0,4}[hdw]"
Period = Annotated[
    str,
    Field(
        max_length=8,
        rules=(
            Rule(rule=f"self.matches('^{_PERIOD}$')", message="must be hours, days or weeks, such as 36h, 14d or 2w"),
        ),
    ),
]
"""Hours, days or weeks, such as ``14d``."""
PeriodOrForever = Annotated[
    str,
    Field(
        max_length=8,
        rules=(
            Rule(
                rule=f"self.matches('^({_PERIOD}|Forever)$')",
                message="must be hours, days or weeks, such as 36h, 14d or 2w, or Forever",
            ),
        ),
    ),
]
"""A ``Period``, or ``Forever``."""


def period(text: str) -> timedelta | None:
    """Parse hours, days or weeks. ``Forever`` is None.

    Args:
        text: a value of type ``Period`` or ``PeriodOrForever``.

    Raises:
        ValueError: the text is neither.
    """
    if text == "Forever":
        return None
    amount, unit = text[:-1], text[-1:]
    if unit not in _UNIT_SECONDS or not (amount.isascii() and amount.isdigit()):
        raise ValueError(f"{text!r} is not a period: write hours, days or weeks, such as 36h, 14d or 2w")
    return timedelta(seconds=int(amount) * _UNIT_SECONDS[unit])


class StoreReference(FrozenStruct):
    """A ``BackupStore``."""

    name: Name
    """Name of the BackupStore."""
    namespace: Namespace | None = None
    """Its namespace. Defaults to that of this object. A store elsewhere must permit this namespace by
    allowedNamespaces."""


class ArchiveSettings(FrozenStruct):
    """Continuous archiving of WAL or binary logs."""

    interval: (
        Annotated[
            Duration,
            Field(
                max_length=32,
                rules=(
                    Rule(
                        rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",
                        message="interval must be from 1s to 1h",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """Longest time until a committed transaction is archived. It assumes a reachable object store. Defaults to 60s
    on PostgreSQL and 5s on MySQL."""
    on_volume_full: VolumeFullPolicy = "StopWrites"
    """Reaction when files that wait for the object store fill the volume. StopWrites keeps them until writes fail.
    DropArchive deletes them, which leaves a gap in the archive and starts a new backup."""

    def interval_seconds(self, engine: EngineName) -> float:
        """The interval in seconds, default included."""
        if self.interval is not None:
            return self.interval.seconds
        return 60.0 if engine == "postgresql" else 5.0


class RetentionSettings(FrozenStruct):
    """Retention of backups and archives."""

    window: Period = "14d"
    """Period that point-in-time recovery covers, such as 14d."""
    minimum_full_backups: Annotated[int, Field(ge=1, le=1000, format="int32")] = 2
    """Full backups that are kept in any case."""


CronExpression = Annotated[str, Field(min_length=1, max_length=128, pattern=PRINTABLE)]
TimeZoneName = Annotated[str, Field(min_length=1, max_length=64, pattern="^[-+_/A-Za-z0-9]+$")]


class BackupSchedule(FrozenStruct):
    """A schedule of backups."""

    name: Annotated[str, Field(min_length=1, max_length=40, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the schedule."""
    schedule: CronExpression
    """Cron expression of five fields, such as "30 2 * * *". They are minute, hour, day, month and day of the week."""
    time_zone: Annotated[TimeZoneName, Field(default=None)] = "UTC"
    """Time zone of the expression, such as Europe/Berlin. Defaults to UTC."""
    type: Annotated[BackupType, Field(default=None)] = "Full"
    """Type of the backups.

    Full, Differential (changes since the last full backup) or Incremental (changes since the last backup). MySQL
    supports Full only, and stores only the changes. Defaults to Full.
    """
    suspend: Annotated[bool, Field(default=None)] = False
    """True to start no backups by this schedule. Defaults to false."""


class BackupJobSettings(FrozenStruct):
    """Pods of the Jobs for backup and recovery."""

    resources: ResourceRequirements | None = None
    """Resources of the pods."""
    node_selector: Annotated[FrozenDict[str, Annotated[str, Field(max_length=63)]], Field(max_properties=64)] = (
        FrozenDict()
    )
    """Labels of the nodes."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_items=32, list_type="atomic")] = ()
    """Taints that are tolerated."""
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Priority of the pods. Setting it needs permission to create pods."""
    processes: Annotated[int, Field(ge=1, le=32, format="int32")] = 1
    """Parallel processes of a backup or a recovery."""


class VerificationStorage(FrozenStruct):
    """Temporary volume of a verification."""

    size: (
        Annotated[
            Quantity,
            Field(
                rules=(
                    Rule(
                        rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                        message="the size must be greater than 0, such as 1Gi",
                    ),
                )
            ),
        ]
        | None
    ) = None
    """Size. Defaults to that of the cluster's volumes, at least 1Gi more than 1.2 times the size of the backup."""
    storage_class: Annotated[str | None, Field(min_length=1, max_length=253, pattern=SUBDOMAIN)] = None
    """StorageClass. Defaults to that of the cluster's data volumes."""


class VerificationSettings(FrozenStruct):
    """Verification of backups by restoring them."""

    schedule: CronExpression
    """Cron expression of five fields, such as "0 5 * * 0". They are minute, hour, day, month and day of the week.
    The last completed backup is verified."""
    time_zone: TimeZoneName = "UTC"
    """Time zone of the expression, such as Europe/Berlin."""
    suspend: bool = False
    """True to start no verifications by the schedule."""
    resources: ResourceRequirements | None = None
    """Resources of the pods. Defaults to requests of 100m CPU and 512Mi memory, and a limit of 1Gi memory."""
    storage: VerificationStorage = VerificationStorage()
    """Temporary volume of the pods."""


class BackupSettings(FrozenStruct):
    """Archiving, backups and their retention."""

    store_ref: Annotated[
        StoreReference,
        Field(
            rules=(
                Rule(
                    rule="self == oldSelf",
                    message="storeRef is immutable: existing backups are not moved. Remove backup from the spec,"
                    " then add it with the other store",
                ),
            )
        ),
    ]
    """Object store for archives and backups. Immutable."""
    archive: ArchiveSettings = ArchiveSettings()
    """Continuous archiving of WAL or binary logs."""
    retention: RetentionSettings = RetentionSettings()
    """Retention of backups and archives."""
    schedules: Annotated[tuple[BackupSchedule, ...], Field(list_map_keys=("name",), max_items=8)] = ()
    """Schedules of backups."""
    verification: VerificationSettings | None = None
    """Verification of backups by restoring them. Defaults to none by schedule."""
    source: BackupSource = "PreferReplica"
    """Instance that is backed up. PreferReplica takes the primary if no replica is ready."""
    final_backup: FinalBackupPolicy | None = None
    """Backup of the last state when the cluster is deleted. Required: the deletion waits for it. IfPossible: the
    deletion continues without it after 10 minutes, and volumes stay. Defaults to Required if deletionPolicy is
    Delete, otherwise to Disabled."""
    retention_after_deletion: PeriodOrForever = "30d"
    """Retention of the final backup, such as 30d, or Forever. It becomes spec.retainUntil of the Backup. Afterwards
    nothing is deleted: backups of a deleted cluster stay in the object store."""
    jobs: BackupJobSettings = BackupJobSettings()
    """Pods of the Jobs for backup and recovery."""

    def final_backup_policy(self, deletion_policy: DeletionPolicy) -> FinalBackupPolicy:
        """The policy of the final backup, default included."""
        return self.final_backup or ("Required" if deletion_policy == "Delete" else "Disabled")


class BackupReference(FrozenStruct):
    """A ``Backup`` in the namespace of this object."""

    name: Name
    """Name of the Backup."""


class RecoveryClusterReference(FrozenStruct):
    """A cluster of the same kind."""

    name: Name
    """Name of the cluster."""
    namespace: Namespace | None = None
    """Its namespace. Defaults to that of this object. A cluster elsewhere must permit this namespace by
    allowedNamespaces."""


class StorePath(FrozenStruct):
    """The archive of a cluster in an object store, by its path."""

    store_ref: StoreReference
    """Object store."""
    path: Annotated[
        str,
        Field(min_length=1, max_length=512, pattern="^[A-Za-z0-9][-._A-Za-z0-9]*(/[A-Za-z0-9][-._A-Za-z0-9]*)*$"),
    ]
    """Path of the archive, as status.backup.path of the cluster shows it."""


class LatestTarget(FrozenStruct):
    """The last recovery point of the archive."""


_TARGETS: dict[EngineName, tuple[str, tuple[str, ...], str]] = {
    "postgresql": ("PostgreSQL", ("gtid",), "latest, time, lsn or name"),
    "mysql": ("MySQL", ("lsn", "name"), "latest, time or gtid"),
}
"""Product, unsupported recovery targets and supported ones in words, by engine."""
_GTID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:[a-z_][a-z0-9_]{0,31})?:[1-9][0-9]*$"


@schema(rules=[exactly_one_of("before", "through")])
class GtidTarget(FrozenStruct):
    """A transaction of MySQL."""

    before: Annotated[str, Field(max_length=128, pattern=_GTID)] | None = None
    """First transaction that is not recovered, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23."""
    through: Annotated[str, Field(max_length=128, pattern=_GTID)] | None = None
    """Last transaction that is recovered."""


@schema(rules=[exactly_one_of("latest", "time", "lsn", "name", "gtid")])
class RecoveryTarget(FrozenStruct):
    """The moment of a point-in-time recovery."""

    latest: LatestTarget | None = None
    """The last recovery point of the archive."""
    time: datetime | None = None
    """Time of the last recovered transaction, such as 2026-03-01T12:30:00Z. Transactions that committed at this time
    are included."""
    lsn: Annotated[str, Field(max_length=17, pattern="^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$")] | None = None
    """PostgreSQL: a position in the WAL, such as 0/3000028."""
    name: Annotated[str, Field(min_length=1, max_length=63, pattern=PRINTABLE)] | None = None
    """PostgreSQL: a restore point that pg_create_restore_point() created."""
    gtid: GtidTarget | None = None
    """MySQL: a transaction."""


@schema(rules=[exactly_one_of("backup", "cluster", "store")])
class RecoverySettings(FrozenStruct):
    """Recovery of the data from backups and an archive."""

    backup: BackupReference | None = None
    """A Backup in the namespace of this object. Recovery begins with it."""
    cluster: RecoveryClusterReference | None = None
    """A cluster of the same kind with ``spec.backup``. The new cluster becomes its clone."""
    store: StorePath | None = None
    """An archive in an object store, for example of a deleted cluster."""
    target: RecoveryTarget | None = None
    """The moment to recover to. Defaults to the last recovery point."""


def recovery_target_rules(engine: EngineName, when: str = "true") -> tuple[Rule, ...]:
    """Return rules that reject recovery targets of the other engine.

    Args:
        engine: the engine of the cluster.
        when: CEL expression of the specs that the rules apply to. Defaults to all.
    """
    product, fields, supported = _TARGETS[engine]
    target = "self.bootstrap.recovery.target"
    present = f"has(self.bootstrap) && has(self.bootstrap.recovery) && has({target})"
    return tuple(
        Rule(
            rule=f"!({when}) || !({present} && has({target}.{field}))",
            message=f"target.{field} is not supported on {product}: set {supported}",
            field_path=".bootstrap",
        )
        for field in fields
    )


def full_backups_rule(when: str = "true") -> Rule:
    """Return the rule that rejects MySQL backups other than Full.

    Args:
        when: CEL expression of the specs that the rule applies to. Defaults to all.
    """
    return Rule(
        rule=f"!({when}) || !has(self.backup) || !has(self.backup.schedules)"
        " || self.backup.schedules.all(s, !has(s.type) || s.type == 'Full')",
        message="type must be Full on MySQL: each backup is complete, and only its changes are stored",
        field_path=".backup.schedules",
    )


class BackupSummary(FrozenStruct):
    """A completed backup."""

    name: str
    """Name of the Backup."""
    time: datetime | None = None
    """End of the backup."""
    type: BackupType | None = None
    """Full, Differential or Incremental."""


class VerificationSummary(FrozenStruct):
    """The last verification that had a result."""

    name: str
    """Name of the Backup."""
    time: datetime
    """End of the verification."""
    verified: bool
    """True if the Backup was restored and all data were read."""
    message: str | None = None
    """Damaged or missing part, if it is not verified."""
    recovered_to: datetime | None = None
    """Last commit that was restored."""
    recovery_seconds: int | None = None
    """Seconds from the start of the restore until the server accepted connections."""
    data_loss_seconds: int | None = None
    """Age of the last restored commit at the start, in seconds."""


class ClusterBackupStatus(FrozenStruct):
    """Observed backups and archive of a cluster."""

    first_recovery_point: datetime | None = None
    """The earliest moment of a point-in-time recovery."""
    last_recovery_point: datetime | None = None
    """The latest moment of a point-in-time recovery."""
    last_backup: BackupSummary | None = None
    """The last completed backup."""
    last_full_backup: BackupSummary | None = None
    """The last completed full backup."""
    next_backup: datetime | None = None
    """The next backup of the schedules."""
    last_verification: VerificationSummary | None = None
    """The last verification that had a result."""
    next_verification: datetime | None = None
    """The next verification of the schedule."""
    stored_bytes: int | None = None
    """Size of all backups in the object store."""
    path: str | None = None
    """Path of the archive in the object store."""
