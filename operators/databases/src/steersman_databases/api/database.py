"""``Database``: a logical database on a cluster or server."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import (
    Field,
    FrozenStruct,
    PrinterColumn,
    Quantity,
    Resource,
    Rule,
    Spec,
    Status,
    at_most_one_of,
    exactly_one_of,
    resource,
    schema,
)
from steersman_databases.api.autopilot.automation import AutogrowSettings
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings
from steersman_databases.api.autopilot.sizing import Sizing
from steersman_databases.api.backups.backup_common import (
    BackupSettings,
    BackupSummary,
    RecoverySettings,
    full_backups_rule,
    recovery_target_rules,
)
from steersman_databases.api.backups.import_source import ImportSettings
from steersman_databases.api.cluster_common import MonitoringSettings
from steersman_databases.api.group import GROUP, NAME_PATTERN, VERSION, DeletionPolicy, EngineName, Presence
from steersman_databases.api.names import PRINTABLE, ObjectName, SqlName
from steersman_databases.api.references import (
    ON_MYSQL,
    SAME_SERVER_RULE,
    ClusterReference,
    ServerReference,
    engine_of,
)
from steersman_databases.api.volume_sizes import StorageStatus

DatabasePhase = Literal["Pending", "Provisioning", "Ready", "Failed", "Deleting"]

DEFAULT_STORAGE_SIZE = Quantity("1Gi")

_EFFECTIVE_DATABASE_NAME = "(has({0}.spec.databaseName) ? {0}.spec.databaseName : {0}.metadata.name)"
_EFFECTIVE_USERNAME = "(has({0}.spec.username) ? {0}.spec.username : " + _EFFECTIVE_DATABASE_NAME + ")"
_SIZE = "(has({0}.storageSize) ? quantity(string({0}.storageSize)) : quantity('1Gi'))"
_CAPACITY = "self.status.storage.dataCapacity"
_REACHED = (
    f"has(self.status) && has(self.status.storage) && has({_CAPACITY})"
    f" && {_SIZE.format('self.spec')}.compareTo(quantity(string({_CAPACITY}))) >= 0"
)
_ON_POSTGRESQL = f"(has(self.engine) ? self.engine == 'postgresql' : !{ON_MYSQL})"

_DEDICATED_MYSQL = "has(self.engine) && self.engine == 'mysql'"


def _unchanged(expression: str) -> str:
    return f"{expression.format('self')} == {expression.format('oldSelf')}"


def _postgresql_only(*fields: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            rule=f"{_ON_POSTGRESQL} || !has(self.{field})",
            message=f"{field} is supported on PostgreSQL only: remove it",
            field_path=f".{field}",
        )
        for field in fields
    )


def _dedicated_only(*fields: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            rule=f"!(has(self.clusterRef) || has(self.serverRef)) || !has(self.{field})",
            message=f"{field} cannot be set with clusterRef or serverRef: set it on the server",
            field_path=f".{field}",
        )
        for field in fields
    )


_EXISTING_SERVER = "(has(self.clusterRef) || has(self.serverRef))"
_RECOVERY = "(has(self.bootstrap) && has(self.bootstrap.recovery))"
_IMPORT = "(has(self.bootstrap) && has(self.bootstrap.__import__))"
_DUMP_RULES = (
    Rule(
        rule="!has(self.clusterRef) || !has(self.backup)",
        message="backup cannot be set with clusterRef: set it on the cluster",
        field_path=".backup",
    ),
    Rule(
        rule="!has(self.serverRef) || !has(self.backup) || !has(self.backup.schedules)"
        " || self.backup.schedules.all(s, !has(s.type) || s.type == 'Full')",
        message="type must be Full with serverRef: each dump is complete",
        field_path=".backup.schedules",
    ),
    Rule(
        rule="!has(self.serverRef) || !has(self.backup) || !has(self.backup.verification)",
        message="verification cannot be set with serverRef: remove it, and restore a dump into another database",
        field_path=".backup",
    ),
    Rule(
        rule=f"!{_EXISTING_SERVER} || !{_RECOVERY} || !has(self.bootstrap.recovery.cluster)",
        message="recovery.cluster cannot be set with clusterRef or serverRef: name a Backup or the path of dumps",
        field_path=".bootstrap",
    ),
    Rule(
        rule=f"!{_EXISTING_SERVER} || !{_RECOVERY} || !has(self.bootstrap.recovery.target)",
        message="recovery.target cannot be set with clusterRef or serverRef: a dump has one moment. Name its Backup",
        field_path=".bootstrap",
    ),
    Rule(
        rule=f"!{_EXISTING_SERVER} || !{_RECOVERY} || !has(self.owner)",
        message="owner cannot be set with bootstrap.recovery: set username, as which the dump is restored",
        field_path=".owner",
    ),
    Rule(
        rule=f"!{_IMPORT} || !has(self.owner)",
        message="owner cannot be set with bootstrap.import: set username, as which the data are imported",
        field_path=".owner",
    ),
)
"""Rules for dumps and for the first data of a database."""


@schema(rules=[exactly_one_of("recovery", "import")])
class DatabaseBootstrap(FrozenStruct):
    """Source of the first data."""

    recovery: RecoverySettings | None = None
    """Recovery of its own server from backups and an archive. With clusterRef or serverRef: restore of a dump."""
    import_: ImportSettings | None = msgspec.field(default=None, name="import")
    """Import from a running server. It runs once."""


class Extension(FrozenStruct):
    """An extension in the database."""

    name: SqlName
    """Name of the extension, such as pg_trgm."""
    version: SqlName | None = None
    """Version to install or update to. Defaults to the server's default version."""
    schema: SqlName | None = None
    """Schema of the extension's objects. Defaults to the schema that the extension requires, otherwise to public."""
    ensure: Annotated[Presence, Field(default=None)] = "Present"
    """Present, or Absent to drop the extension. Defaults to Present. It is not dropped while other objects depend on
    it."""


class Schema(FrozenStruct):
    """A schema in the database."""

    name: SqlName
    """Name of the schema."""
    owner: SqlName | None = None
    """Owner of the schema. Defaults to the owner of the database."""
    ensure: Annotated[Presence, Field(default=None)] = "Present"
    """Present, or Absent to drop the schema. Defaults to Present. A schema with objects is not dropped."""


@schema(
    rules=[
        at_most_one_of("clusterRef", "serverRef"),
        SAME_SERVER_RULE,
        Rule(
            rule="has(self.engine) || has(self.clusterRef)",
            message="engine is required without clusterRef",
            field_path=".engine",
        ),
        Rule(
            rule=f"!has(self.engine) || !has(self.clusterRef) || (self.engine == 'mysql') == {ON_MYSQL}",
            message="engine differs from clusterRef.kind: remove it, or set it to the engine of the cluster",
            field_path=".engine",
        ),
        Rule(
            rule="has(self.clusterRef) || has(self.serverRef) || has(self.version)",
            message="version is required without clusterRef and serverRef",
            field_path=".version",
        ),
        Rule(
            rule="!(has(self.clusterRef) || has(self.serverRef)) || !has(self.version)",
            message="version cannot be set with clusterRef or serverRef: remove it",
            field_path=".version",
        ),
        Rule(
            rule="!(has(self.clusterRef) || has(self.serverRef)) || !has(self.storageSize)",
            message="storageSize cannot be set with clusterRef or serverRef: remove it",
            field_path=".storageSize",
        ),
        *_dedicated_only("sizing", "resources", "monitoring", "autogrow", "maintenance"),
        *_DUMP_RULES,
        Rule(
            rule="!has(self.autogrow)"
            f" || quantity(string(self.autogrow.maxSize)).compareTo({_SIZE.format('self')}) >= 0",
            message="maxSize must be at least storageSize: volumes never shrink",
            field_path=".autogrow.maxSize",
        ),
        full_backups_rule(_DEDICATED_MYSQL),
        *recovery_target_rules("mysql", _DEDICATED_MYSQL),
        *recovery_target_rules("postgresql", f"!({_DEDICATED_MYSQL})"),
        Rule(
            rule="!has(self.owner) || !has(self.username)",
            message="owner (an existing role) and username (a role to create) exclude each other: set one of them",
            field_path=".owner",
        ),
        *_postgresql_only("extensions", "schemas", "template", "connectionLimit", "localeProvider"),
        Rule(
            rule="has(self.locale) == (has(self.localeProvider) && self.localeProvider != 'libc')",
            message="the locale providers builtin and icu need locale; libc uses collation and characterType",
            field_path=".locale",
        ),
    ]
)
class DatabaseSpec(Spec):
    """Declared state of the database."""

    engine: Annotated[EngineName | None, Field(immutable=True)] = None
    """Database engine: postgresql or mysql. Required without clusterRef. Immutable."""
    cluster_ref: Annotated[ClusterReference | None, Field(immutable=True)] = None
    """Cluster with the database. Immutable."""
    server_ref: ServerReference | None = None
    """Server that this operator does not manage. It cannot be added or removed later. Host, service and port are
    immutable."""
    version: Annotated[str, Field(min_length=1, max_length=32)] | None = None
    """Version of its own server, such as "17" or, for MySQL, "9.7"."""
    storage_size: (
        Annotated[
            Quantity,
            Field(
                rules=(
                    Rule(
                        rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                        message="storageSize must be greater than 0, such as 1Gi",
                    ),
                )
            ),
        ]
        | None
    ) = None
    """Volume size of this Database's own server. Defaults to 1Gi. It can grow if the StorageClass allows volume
    expansion. It never shrinks. A size that no volume has reached can be lowered."""
    database_name: ObjectName | None = None
    """Name of the database on the server. Defaults to the name of this object. Immutable."""
    username: SqlName | None = None
    """User that is created as owner of the database. Defaults to databaseName. Immutable."""
    owner: SqlName | None = None
    """Existing role that owns the database. The operator then creates no user and no Secret."""
    encoding: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = None
    """Encoding. Defaults to UTF8, on MySQL to utf8mb4. Immutable."""
    collation: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = None
    """Collation. Defaults to that of the server. Immutable."""
    character_type: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = (
        None
    )
    """PostgreSQL: character classification (LC_CTYPE). Defaults to the collation. Immutable."""
    locale_provider: Annotated[Literal["builtin", "icu", "libc"] | None, Field(immutable=True)] = None
    """PostgreSQL: locale provider. builtin needs version 17. Defaults to that of the template. Immutable."""
    locale: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = None
    """PostgreSQL: locale of icu or builtin, such as de-DE. Immutable."""
    template: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = None
    """PostgreSQL: database to copy. Defaults to template0. Immutable."""
    connection_limit: (
        Annotated[
            int,
            Field(
                ge=-1,
                le=262143,
                format="int32",
                rules=(
                    Rule(
                        rule="self != 0",
                        message="connectionLimit 0 would block the operator, too: set login of its users to false",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """PostgreSQL: maximum number of sessions; -1 means unlimited. 0 is rejected."""
    extensions: Annotated[tuple[Extension, ...], Field(list_map_keys=("name",), max_items=64)] = ()
    """PostgreSQL: extensions in the database. Undeclared extensions stay unchanged."""
    schemas: Annotated[tuple[Schema, ...], Field(list_map_keys=("name",), max_items=256)] = ()
    """PostgreSQL: schemas in the database. Undeclared schemas stay unchanged."""
    adopt: bool = False
    """Adopt an existing database or user of this name without ownership mark."""
    deletion_policy: DeletionPolicy = "Retain"
    """Effect of the deletion of this object on the database. For its own server, it applies to the volume and its
    Secrets. Retain keeps them, and a new Database of the same name adopts them."""
    backup: BackupSettings | None = None
    """Archiving, backups and retention of this Database's own server. With serverRef: store, schedules and retention
    of dumps. Defaults to no backups."""
    bootstrap: Annotated[DatabaseBootstrap | None, Field(immutable=True)] = None
    """Source of the first data: a recovery, a dump or another server. Defaults to no data. Immutable."""
    sizing: Sizing | None = None
    """Parameters of this Database's own server. FromResources derives them from its resource limits, and Defaults
    keeps the defaults of the server. Defaults to FromResources for new servers."""
    resources: ResourceRequirements | None = None
    """Resource requirements of this Database's own server. Defaults to requests of 100m and 384Mi and a memory limit
    of 768Mi. A change resizes the running pod if possible, otherwise the server restarts."""
    monitoring: MonitoringSettings | None = None
    """PodMonitor, alerts and user queries of this Database's own server. Defaults to no PodMonitor."""
    autogrow: AutogrowSettings | None = None
    """Automatic growth of the volume of this Database's own server. Needs a StorageClass that allows volume
    expansion. Defaults to none."""
    maintenance: MaintenanceSettings | None = None
    """Maintenance windows and minor upgrades of this Database's own server. Defaults to no windows."""


class DumpStatus(FrozenStruct):
    """Observed dumps of a database."""

    last_backup: BackupSummary | None = None
    """The last completed dump."""
    next_backup: datetime | None = None
    """The next dump of the schedules."""
    stored_bytes: int | None = None
    """Size that all dumps added to the object store."""
    path: str | None = None
    """Path of the dumps in the object store."""


class DatabaseStatus(Status):
    """Observed state of the database."""

    phase: DatabasePhase | None = None
    """Phase of the database.

    Pending (waits for its server), Provisioning, Ready, Failed (needs user action) or Deleting.
    """
    engine: EngineName | None = None
    """Engine of the server or cluster."""
    connection_string: str | None = None
    """Connection URI with <secret> instead of the password, which is in the Secret."""
    secret_name: str | None = None
    """Secret for applications: host, port, dbname, user, password and uri."""
    backup: DumpStatus | None = None
    """Dumps of the database, with serverRef and backup."""
    storage: StorageStatus | None = None
    """Observed size of the volumes of this Database's own server."""


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["db"],
    categories=["all"],
    columns=[
        PrinterColumn("Engine", ".status.engine"),
        PrinterColumn("Version", ".spec.version"),
        PrinterColumn("Size", ".spec.storageSize"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Connection", ".status.connectionString", priority=1),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ],
    rules=[
        Rule(
            rule=f"self.metadata.name.matches('{NAME_PATTERN}')",
            message="metadata.name must be at most 45 lower-case letters, digits and '-', starting with a letter: "
            "Services are named after it",
        ),
        Rule(
            rule=_unchanged(_EFFECTIVE_DATABASE_NAME),
            message="databaseName is immutable: create a new Database instead",
            field_path=".spec.databaseName",
        ),
        Rule(
            rule=_unchanged(_EFFECTIVE_USERNAME),
            message="username is immutable: create a new Database instead",
            field_path=".spec.username",
        ),
        Rule(
            rule=f"{_SIZE.format('self.spec')}.compareTo({_SIZE.format('oldSelf.spec')}) >= 0 || ({_REACHED})",
            message="storageSize cannot be lowered below status.storage.dataCapacity: volumes never shrink",
            field_path=".spec.storageSize",
        ),
    ],
)
class Database(Resource[DatabaseSpec, DatabaseStatus]):
    """A database and its owner, on a PostgreSQL or MySQL server."""

    @property
    def database_name(self) -> str:
        """Name of the database on the server, default included."""
        return self.spec.database_name or self.metadata.name

    @property
    def username(self) -> str:
        """Name of the owner, default included."""
        return self.spec.owner or self.generated_username

    @property
    def generated_username(self) -> str:
        """User that the operator creates without ``owner``. It may exist from an earlier declaration."""
        return self.spec.username or self.database_name

    @property
    def engine(self) -> EngineName:
        """Engine, default included."""
        return self.spec.engine or engine_of(self.spec.cluster_ref)

    @property
    def makes_cluster(self) -> bool:
        """Return True if the operator creates a cluster for this database."""
        return self.spec.cluster_ref is None and self.spec.server_ref is None

    @property
    def import_settings(self) -> ImportSettings | None:
        """The declared import, or None."""
        return None if self.spec.bootstrap is None else self.spec.bootstrap.import_

    @property
    def restores_dump(self) -> bool:
        """Return True if a Job loads the first data."""
        return self.spec.bootstrap is not None and (self.import_settings is not None or not self.makes_cluster)

    @property
    def version(self) -> str:
        """Version of its own server. Empty on other servers."""
        return self.spec.version or ""

    @property
    def storage_size(self) -> Quantity:
        """Volume size of its own server, default included."""
        return self.spec.storage_size or DEFAULT_STORAGE_SIZE
