"""``Restore``: copies of tables or a database as of a moment."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import (
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
from steersman_databases.api.backup_common import RecoveryTarget, VerificationStorage
from steersman_databases.api.group import GROUP, VERSION
from steersman_databases.api.names import Name, ObjectName
from steersman_databases.api.references import ClusterKind

RestorePhase = Literal["Pending", "Running", "Completed", "Failed"]

MAX_ITEMS = 20
_MYSQL = "has(self.spec.clusterRef.kind) && self.spec.clusterRef.kind == 'MySQLCluster'"
_SYSTEM_DATABASES = ("mysql", "sys", "information_schema", "performance_schema")
_WHOLE_NOT_RESTORED = ("postgres", "template0", "template1")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


class RestoreClusterReference(FrozenStruct):
    """A cluster in the namespace of the ``Restore``."""

    name: Name
    """Name of the cluster."""
    kind: ClusterKind = "PostgreSQLCluster"
    """Kind of the cluster."""


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
        Rule(
            rule="self == oldSelf",
            message="a Restore runs once, and its spec is immutable: create a new Restore",
        ),
        Rule(
            rule="has(self.only)",
            message="only is required: list the tables or the database to restore. For a whole cluster, create a new"
            " one by kubectl steersman clone",
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
    """The declared restore. Immutable."""

    cluster_ref: RestoreClusterReference
    """The cluster. It serves during the restore."""
    target: RecoveryTarget
    """Moment to restore, such as the time before a DROP TABLE."""
    only: Annotated[tuple[RestoreItem, ...], Field(min_items=1, max_items=MAX_ITEMS)] | None = None
    """Tables of one database, or one database. Required."""
    into: Annotated[ObjectName, Field(max_length=63)] | None = None
    """Name of the copy.

    It is a new schema of the same database for tables of PostgreSQL, otherwise a new database. Defaults to
    restored_<name> for a schema and to <database>_restored_<name> for a database, with the name of this object.
    """
    storage: VerificationStorage = VerificationStorage()
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


class RestoreStatus(Status):
    """The observed restore."""

    phase: RestorePhase | None = None
    """Pending, Running, Completed or Failed."""
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
            rule=f"!({_MYSQL}) || !has(self.spec.target.lsn) && !has(self.spec.target.name)",
            message="target.lsn and target.name are not supported on MySQL: set latest, time or gtid",
            field_path=".spec.target",
        ),
        Rule(
            rule=f"{_MYSQL} || !has(self.spec.target.gtid)",
            message="target.gtid is not supported on PostgreSQL: set latest, time, lsn or name",
            field_path=".spec.target",
        ),
    ],
)
class Restore(Resource[RestoreSpec, RestoreStatus]):
    """Copies of tables or of a database as of a moment."""
