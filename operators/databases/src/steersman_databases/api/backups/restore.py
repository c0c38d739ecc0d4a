"""``Restore``: a cluster, a database or tables as of a moment."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import (
    Duration,
    Field,
    FrozenStruct,
    PrinterColumn,
    Resource,
    Rule,
    Spec,
    Status,
    resource,
    schema,
)
from steersman_databases.api.backups.backup_common import RecoveryTarget, VerificationStorage
from steersman_databases.api.group import GROUP, VERSION
from steersman_databases.api.names import Name, ObjectName
from steersman_databases.api.references import ClusterKind

RestorePhase = Literal["Pending", "Planned", "Running", "Completed", "Failed"]
RestoreMode = Literal["NewVolumes", "InPlace"]

MAX_ITEMS = 20
_KEEP_RULES = (
    Rule(
        rule="duration(self) >= duration('0s') && duration(self) <= duration('8760h')",
        message="must be between 0s and 8760h",
    ),
)
_MYSQL = "has(self.spec.clusterRef.kind) && self.spec.clusterRef.kind == 'MySQLCluster'"
_SYSTEM_DATABASES = ("mysql", "sys", "information_schema", "performance_schema")
_WHOLE_NOT_RESTORED = ("postgres", "template0", "template1")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _immutable(*names: str) -> tuple[Rule, ...]:
    """Return the rules of fields that never change."""
    return tuple(
        Rule(
            rule=f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
            message=f"a Restore runs once, and {name} is immutable: create a new Restore",
            field_path=f".{name}",
        )
        for name in names
    )


class RestoreClusterReference(FrozenStruct):
    """A cluster in the namespace of the ``Restore``."""

    name: Name
    """Name of the cluster."""
    kind: ClusterKind = "PostgreSQLCluster"
    """Kind of the cluster."""


class UndoneRestore(FrozenStruct):
    """A ``Restore`` of the same cluster."""

    name: Name
    """Name of the ``Restore``."""


@schema(
    rules=[
        Rule(
            rule="!has(self.schema) || has(self.table)",
            message="schema needs table: name each table of the schema, or remove schema to restore the database",
            field_path=".schema",
        ),
    ]
)
class RestoreItem(FrozenStruct):
    """A database, or a table of it."""

    database: ObjectName
    """Name of the database."""
    schema: ObjectName | None = None
    """PostgreSQL: schema of the table. Defaults to public."""
    table: ObjectName | None = None
    """Name of the table, without quotes. Defaults to the whole database."""


@schema(
    rules=[
        *_immutable("clusterRef", "target", "undo", "only", "into", "storage", "resources", "keepPrevious", "mode"),
        Rule(
            rule="has(self.target) != has(self.undo)",
            message="set target to restore from the archive, or undo to return to kept volumes",
            field_path=".target",
        ),
        Rule(
            rule="!has(self.undo) || !has(self.only)",
            message="undo returns the whole cluster to kept volumes: remove only",
            field_path=".undo",
        ),
        *(
            Rule(
                rule=f"has(self.only) || !has(self.{name})",
                message=f"{name} has no effect on a restore of the whole cluster: remove it, or set only",
                field_path=f".{name}",
            )
            for name in ("into", "storage", "resources")
        ),
        *(
            Rule(
                rule=f"!has(self.only) || !has(self.{name})",
                message=f"{name} is for a restore of the whole cluster: remove it, or remove only",
                field_path=f".{name}",
            )
            for name in ("confirm", "keepPrevious", "mode")
        ),
        *(
            Rule(
                rule=f"!has(self.mode) || self.mode != 'InPlace' || !has(self.{name})",
                message=f"mode InPlace {why}: remove {name}, or remove mode",
                field_path=f".{name}",
            )
            for name, why in (("undo", "restores from the archive"), ("keepPrevious", "keeps no previous volumes"))
        ),
        Rule(
            rule="!has(self.only) || self.only.all(i, i.database == self.only[0].database)",
            message="all items must name the same database: create one Restore for each database",
            field_path=".only",
        ),
        Rule(
            rule="!has(self.only) || self.only.size() == 1 || self.only.all(i, has(i.table))",
            message="an item without table is the whole database: it must be the only item",
            field_path=".only",
        ),
        Rule(
            rule="!has(self.into) || !self.into.startsWith('pg_') && !self.into.startsWith('steersman')",
            message="names that begin with pg_ or steersman are reserved",
            field_path=".into",
        ),
        Rule(
            rule="!has(self.into) || !has(self.only) || self.only.all(i, i.database != self.into)",
            message="into must differ from the present database: nothing is overwritten",
            field_path=".into",
        ),
    ]
)
class RestoreSpec(Spec):
    """The declared restore. Only ``confirm`` may change."""

    cluster_ref: RestoreClusterReference
    """The cluster. It serves during the restore."""
    target: RecoveryTarget | None = None
    """Moment to restore, such as the time before a DROP TABLE. Exactly one of target and undo is set."""
    undo: UndoneRestore | None = None
    """Whole cluster: completed restore whose previous volumes serve again. They must still be kept."""
    only: Annotated[tuple[RestoreItem, ...], Field(min_items=1, max_items=MAX_ITEMS)] | None = None
    """Tables of one database, or one database.

    Defaults to the whole cluster, which goes back to the moment in place.
    """
    mode: RestoreMode | None = None
    """Whole cluster: volumes that receive the data. Defaults to NewVolumes.

    NewVolumes restores while the cluster serves, and keeps the previous volumes for an undo. InPlace needs no other
    volumes. It stops the cluster first, restores over the volume of the primary, and cannot be undone.
    """
    confirm: Annotated[str, Field(max_length=64)] | None = None
    """Whole cluster: status.plan.id, which starts the restore.

    Another value does nothing.
    """
    keep_previous: Annotated[Duration, Field(max_length=32, rules=_KEEP_RULES)] | None = None
    """Whole cluster: time to keep the volumes of the previous instances. Defaults to 24h."""
    into: Annotated[ObjectName, Field(max_length=63)] | None = None
    """Name of the copy.

    It is a new schema of the same database for tables of PostgreSQL, otherwise a new database. Defaults to
    restored_<name> for a schema and to <database>_restored_<name> for a database, with the name of this object.
    """
    storage: VerificationStorage | None = None
    """Temporary volume.

    Defaults to spec.backup.verification.storage of the cluster.
    """
    resources: ResourceRequirements | None = None
    """Resources of the temporary pod. Defaults to spec.backup.verification.resources of the cluster, otherwise to
    requests of 100m CPU and 512Mi memory, and a limit of 1Gi memory."""


class RestoredTable(FrozenStruct):
    """A restored table."""

    name: str
    """Name of the present table, with its schema or database."""
    copy: str
    """Name of the copy, with its schema or database."""
    exists: bool
    """True if the present table existed at the end of the restore."""


class RestorePlan(FrozenStruct):
    """Outcome of a restore of the whole cluster, before it is confirmed."""

    id: str
    """Value for spec.confirm. It changes with everything that decides the restore.

    It begins with no-undo if the restore cannot be undone.
    """
    backup_id: str | None = None
    """ID of the backup to begin with."""
    volume: str | None = None
    """Undo: kept PVC whose data serve again."""
    timeline: int | None = None
    """PostgreSQL: timeline of the WAL to replay."""
    restores_to: datetime | None = None
    """Last transaction that is restored. All later ones are lost to the cluster.

    For an undo it is the time when the previous primary had stopped.
    """
    lost_transactions: int | None = None
    """Archived transactions that are lost to the cluster. Later ones are added until it is confirmed."""
    lost_is_minimum: bool | None = None
    """PostgreSQL: True if more than lostTransactions are lost.

    The plan counts at most 1 GiB of WAL, for a minute.
    """
    size_bytes: int | None = None
    """Size of the restored data."""
    volume_bytes: int | None = None
    """Size of each new volume.

    It is spec.storage.size of the cluster, or the size to which its volumes grew.
    The restore needs one volume, then one for each instance until the previous volumes are deleted.
    """
    estimated_seconds: int | None = None
    """Recovery time that the last verification measured.

    Absent if no backup was verified. More WAL or binary logs take longer.
    """
    newest_timeline: int | None = None
    """PostgreSQL: newest timeline in the archive."""

    @property
    def lost_in_archive(self) -> str:
        """Return the clause with the number of lost transactions, or ""."""
        if self.lost_transactions is None:
            return ""
        return f", {'at least ' if self.lost_is_minimum else ''}{self.lost_transactions} of them in the archive"


class RestoreStatus(Status):
    """The observed restore."""

    phase: RestorePhase | None = None
    """Pending, Planned, Running, Completed or Failed. Planned waits for spec.confirm."""
    plan: RestorePlan | None = None
    """Whole cluster: outcome of the restore, for which it waits for spec.confirm."""
    message: str | None = None
    """Progress, or the cause of a failure."""
    database: str | None = None
    """Database with the copy."""
    schema: str | None = None
    """PostgreSQL: schema with the copies of tables."""
    backup_id: str | None = None
    """ID of the backup that the restore began with."""
    recovered_to: datetime | None = None
    """Last restored commit."""
    owner: str | None = None
    """PostgreSQL: owner of the copy, which is that of the present database."""
    size_bytes: int | None = None
    """Size of the copy."""
    tables: Annotated[tuple[RestoredTable, ...], Field(max_items=MAX_ITEMS, list_type="atomic")] = ()
    """The restored tables, in the order of spec.only. Empty for a whole database."""
    start_time: datetime | None = None
    """Creation of the Job."""
    completion_time: datetime | None = None
    """End of the restore."""


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["rst"],
    categories=["all"],
    columns=[
        PrinterColumn("Cluster", ".spec.clusterRef.name"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Database", ".status.database"),
        PrinterColumn("Schema", ".status.schema"),
        PrinterColumn("Recovered To", ".status.recoveredTo"),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Complete")].reason', priority=1),
        PrinterColumn("Message", ".status.message", priority=1),
    ],
    rules=[
        Rule(
            rule=f"!({_MYSQL}) || !has(self.spec.only) || self.spec.only.all(i, !has(i.schema))",
            message="MySQL has no schemas in a database: remove schema",
            field_path=".spec.only",
        ),
        Rule(
            rule=f"!({_MYSQL}) || !has(self.spec.only)"
            f" || self.spec.only.all(i, !(i.database in [{_listed(_SYSTEM_DATABASES)}]))",
            message="system databases are not restored",
            field_path=".spec.only",
        ),
        Rule(
            rule=f"{_MYSQL} || !has(self.spec.only) || self.spec.only.all(i, has(i.table)"
            f" || !(i.database in [{_listed(_WHOLE_NOT_RESTORED)}]))",
            message="databases of the system are not restored as a whole: name tables",
            field_path=".spec.only",
        ),
        Rule(
            rule=f"!({_MYSQL}) || !has(self.spec.target)"
            " || !has(self.spec.target.lsn) && !has(self.spec.target.name)",
            message="target.lsn and target.name are not supported on MySQL: set latest, time or gtid",
            field_path=".spec.target",
        ),
        Rule(
            rule=f"{_MYSQL} || !has(self.spec.target) || !has(self.spec.target.gtid)",
            message="target.gtid is not supported on PostgreSQL: set latest, time, lsn or name",
            field_path=".spec.target",
        ),
    ],
)
class Restore(Resource[RestoreSpec, RestoreStatus]):
    """A cluster as of a moment, or copies of its tables."""
