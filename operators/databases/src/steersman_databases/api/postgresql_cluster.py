"""``PostgreSQLCluster``: a primary and its replicas."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from steersman.meta import (
    Field,
    FrozenDict,
    FrozenStruct,
    Quantity,
    Resource,
    Rule,
    Scale,
    exactly_one_of,
    resource,
    schema,
)
from steersman_databases.api.autopilot.healing import PostgreSQLHealingSettings
from steersman_databases.api.autopilot.sizing import Sizing
from steersman_databases.api.autopilot.tuning import PostgreSQLTuningSettings
from steersman_databases.api.backups.backup_common import RecoverySettings, recovery_target_rules
from steersman_databases.api.cluster_common import (
    COLUMNS,
    NAME_RULE,
    ClusterMember,
    ClusterSpec,
    ClusterStatus,
    PoolerSettings,
    SecretReference,
    SqlReferences,
    VolumeSettings,
)
from steersman_databases.api.group import GROUP, VERSION
from steersman_databases.api.read_replicas import MAX_SENDERS, ReadReplicaSettings, ReadReplicasStatus
from steersman_databases.api.volume_sizes import size_rule

SynchronousMode = Literal["Disabled", "Priority", "Quorum"]


class SynchronousSettings(FrozenStruct):
    """Synchronous replication."""

    mode: SynchronousMode | None = None
    """Disabled, Priority (the first replicas in a list) or Quorum (any replicas). Defaults to Quorum with two or
    more instances, otherwise to Disabled."""
    standbys: Annotated[int, Field(ge=1, le=8)] = 1
    """Number of synchronous replicas."""
    required: bool = False
    """Block writes while fewer synchronous replicas are available. Otherwise the primary continues without them."""


@schema(
    rules=[
        Rule(
            rule="has(self.plugin) == has(self.database)",
            message="a logical slot needs plugin and database: set both, or none for a physical slot",
        ),
        Rule(
            rule="has(self.plugin) == has(oldSelf.plugin) && (!has(self.plugin) || self.plugin == oldSelf.plugin)"
            " && (!has(self.database) || self.database == oldSelf.database)",
            message="plugin and database of a slot cannot change: declare another slot",
        ),
    ]
)
class ReplicationSlot(FrozenStruct):
    """A replication slot on every primary."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=63,
            pattern="^[a-z0-9_]+$",
            rules=(
                Rule(
                    rule="!self.startsWith('steersman_') && !self.matches('_[0-9]+_0$')",
                    message="names of slots cannot start with steersman_, or end with _<number>_0 as those of "
                    "instances: choose another name",
                ),
            ),
        ),
    ]
    """Name of the slot."""
    plugin: Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Za-z0-9_]+$")] | None = None
    """Output plugin of a logical slot, such as pgoutput."""
    database: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Database of a logical slot."""


MAX_REPLICATION_SLOTS = 10


class PostgreSQLSettings(FrozenStruct):
    """Configuration of the servers."""

    parameters: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=1024)]],
        Field(
            max_properties=300,
            rules=(
                Rule(
                    rule="self.all(k, k.size() <= 128 && k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$'))",
                    message="names of parameters consist of lower-case letters, digits, '_' and at most one '.',"
                    " such as work_mem",
                ),
                Rule(
                    rule="self.all(k, !self[k].matches('[\\\\r\\\\n\\\\x00]'))",
                    message="values of parameters cannot contain line breaks",
                ),
            ),
        ),
    ] = FrozenDict()
    """Parameters as in postgresql.conf, such as max_connections: "200"."""
    sizing: Sizing | None = None
    """FromResources derives parameters for memory and parallelism from ``spec.resources.limits``. Defaults keeps the
    defaults of the server. ``parameters`` override both. Defaults to FromResources for new clusters; other clusters
    keep the mode in ``status.sizing``."""
    pg_hba: Annotated[
        tuple[
            Annotated[
                str,
                Field(
                    min_length=1,
                    max_length=1024,
                    rules=(
                        Rule(
                            rule="!self.matches('[\\\\r\\\\n]')",
                            message="rules cannot contain line breaks: split them into several items",
                        ),
                    ),
                ),
            ],
            ...,
        ],
        Field(max_items=100, list_type="atomic"),
    ] = ()
    """Rules as in pg_hba.conf. They follow the operator's own rules and precede those that accept password logins
    over TLS."""
    enable_superuser_access: Annotated[bool, Field(default=False)] = False
    """Allow network logins of the superuser postgres. The password is in the Secret <cluster>-admin. Without it, the
    superuser is available only by exec into a pod. Defaults to false."""
    shared_preload_libraries: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9_]+$")], ...],
        Field(max_items=32, list_type="set"),
    ] = ()
    """Libraries that the server loads at start, such as pg_stat_statements."""
    synchronous: SynchronousSettings = SynchronousSettings()
    """Synchronous replication."""
    replication_slots: Annotated[
        tuple[ReplicationSlot, ...], Field(max_items=MAX_REPLICATION_SLOTS, list_map_keys=("name",))
    ] = ()
    """Replication slots that exist on every primary, also after a failover. A slot that is removed here is not
    dropped: drop it on each instance. Slots that are not declared exist on one server only."""


_SYSTEM_DATABASES = "['postgres', 'template0', 'template1']"


def _unreserved_role(name: str) -> str:
    reserved = "['postgres', 'public', 'none']"
    return f"(!({name} in {reserved}) && !{name}.startsWith('pg_') && !{name}.startsWith('steersman_'))"


class InitDb(FrozenStruct):
    """A new cluster with a database."""

    database: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=63,
                rules=(
                    Rule(
                        rule=f"!(self in {_SYSTEM_DATABASES})",
                        message="PostgreSQL reserves this database name: choose another name",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """Bootstrap database. Defaults to the name of the cluster."""
    owner: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=63,
                rules=(
                    Rule(
                        rule=_unreserved_role("self"),
                        message="this role name is reserved: choose another name",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """Owner of the database, with all privileges on it and none elsewhere. Defaults to the name of the database."""
    secret: SecretReference | None = None
    """Secret of type kubernetes.io/basic-auth with the owner's name and password. Defaults to a generated Secret. A
    change of the Secret changes the password."""
    post_init_application_sql_refs: SqlReferences | None = msgspec.field(
        default=None, name="postInitApplicationSQLRefs"
    )
    """SQL that the owner runs once in the bootstrap database. It runs in one transaction."""
    encoding: Annotated[str, Field(min_length=1, max_length=63)] = "UTF8"
    """Encoding of databases."""
    locale_provider: Literal["builtin", "icu", "libc"] | None = None
    """Locale provider. Defaults to builtin from version 17 on, otherwise to libc."""
    locale: Annotated[str, Field(min_length=1, max_length=63)] = "C.UTF-8"
    """Locale of databases."""
    wal_segment_size: Annotated[
        int,
        Field(
            ge=1,
            le=1024,
            rules=(
                Rule(
                    rule="self in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]",
                    message="walSegmentSize is a power of 2, in MB",
                ),
            ),
        ),
    ] = 16
    """Size of a WAL segment, in MB."""


@schema(rules=[exactly_one_of("initdb", "recovery")])
class Bootstrap(FrozenStruct):
    """Source of the first data."""

    initdb: InitDb | None = None
    """A new cluster with a database."""
    recovery: RecoverySettings | None = None
    """Recovery of the data from backups and an archive."""


_INITDB = "(has(self.spec.bootstrap) && has(self.spec.bootstrap.initdb))"
_SYNCHRONOUS = "self.postgresql.synchronous"


@schema(
    rules=[
        Rule(
            rule="has(self.walStorage) == has(oldSelf.walStorage)",
            message="walStorage cannot be added or removed later: create a new cluster",
            field_path=".walStorage",
        ),
        Rule(
            rule=f"!has({_SYNCHRONOUS}.mode) || {_SYNCHRONOUS}.mode == 'Disabled' || self.instances >= 2",
            message="synchronous replication needs a replica: set instances to 2 or more, or mode to Disabled",
            field_path=".postgresql.synchronous.mode",
        ),
        Rule(
            rule=f"(has({_SYNCHRONOUS}.mode) ? {_SYNCHRONOUS}.mode == 'Disabled' : self.instances < 3)"
            f" || {_SYNCHRONOUS}.standbys < self.instances",
            message="standbys must be less than instances: the primary does not count",
            field_path=".postgresql.synchronous.standbys",
        ),
        Rule(
            rule="!has(self.bootstrap) || !has(self.bootstrap.initdb) || !has(self.bootstrap.initdb.localeProvider)"
            " || self.bootstrap.initdb.localeProvider != 'builtin' || int(self.version) >= 17",
            message="the locale provider builtin needs version 17",
            field_path=".bootstrap.initdb.localeProvider",
        ),
        Rule(
            rule="!has(self.bootstrap) || !has(self.bootstrap.initdb) || self.bootstrap.initdb.locale != 'C.UTF-8'"
            " || (has(self.bootstrap.initdb.localeProvider) && self.bootstrap.initdb.localeProvider == 'icu')"
            " || self.bootstrap.initdb.encoding.upperAscii() in ['UTF8', 'UTF_8', 'UTF-8', 'UNICODE', 'SQL_ASCII']",
            message="locale C.UTF-8 needs encoding UTF8: set locale to C, or encoding to UTF8",
            field_path=".bootstrap.initdb.encoding",
        ),
        Rule(
            # Only a declared provider: the default changes with an upgrade, and the data keep theirs.
            rule="!has(self.bootstrap) || !has(self.bootstrap.initdb) || !has(self.bootstrap.initdb.localeProvider)"
            " || self.bootstrap.initdb.localeProvider != 'builtin'"
            " || self.bootstrap.initdb.locale in ['C', 'C.UTF-8', 'C.UTF8']",
            message="the locale provider builtin has the locales C and C.UTF-8: set localeProvider to icu or libc",
            field_path=".bootstrap.initdb.locale",
        ),
        Rule(
            rule="!has(self.pooler) || !self.pooler.readOnly || self.services.ro.enabled",
            message="pooler.readOnly needs services.ro: enable it, or set pooler.readOnly to false",
            field_path=".pooler.readOnly",
        ),
        Rule(
            rule="!has(self.readReplicas) || self.instances + (has(self.readReplicas.max) ? self.readReplicas.max"
            f" : self.readReplicas.min) <= {MAX_SENDERS}",
            message=f"instances and readReplicas.max must be at most {MAX_SENDERS} together",
            field_path=".readReplicas",
        ),
        Rule(
            rule=f"!has(self.readReplicas) || !{_SYNCHRONOUS}.required",
            message="read replicas cannot be combined with postgresql.synchronous.required: without a synchronous "
            "standby, PostgreSQL would count a read replica as one",
            field_path=".readReplicas",
        ),
        Rule(
            rule=f"!has(oldSelf.readReplicas) || !{_SYNCHRONOUS}.required",
            message="postgresql.synchronous.required cannot be set in the update that removes readReplicas: remove "
            "the read replicas first",
            field_path=".postgresql.synchronous.required",
        ),
        Rule(
            rule="!has(self.postgresql.replicationSlots) || self.postgresql.replicationSlots.all(s, !has(s.plugin))"
            " || !has(self.postgresql.parameters) || !('wal_level' in self.postgresql.parameters)"
            " || self.postgresql.parameters['wal_level'] == 'logical'",
            message="logical replication slots need wal_level logical: remove the parameter",
            field_path=".postgresql.parameters",
        ),
        *recovery_target_rules("postgresql"),
    ]
)
class PostgreSQLClusterSpec(ClusterSpec):
    """Declared state of the cluster."""

    version: Annotated[
        str,
        Field(
            pattern="^[1-9][0-9]$",
            rules=(
                Rule(
                    rule="self == oldSelf || self in ['15', '17', '18']",
                    message="version is not supported: set 15, 17 or 18",
                ),
            ),
        ),
    ] = "17"
    """Major version of PostgreSQL: 15, 17 or 18. A higher version upgrades the data in place. A lower one is
    rejected, unless the servers still run it."""
    upgrade_image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image with the servers of both versions for a major upgrade. Defaults to the operator's image. If ``image``
    contains your own extensions, this image must contain them for both versions."""
    postgresql: PostgreSQLSettings = PostgreSQLSettings()
    """Configuration of the servers."""
    tuning: PostgreSQLTuningSettings | None = None
    """Recommendations for parameters, and the trial of a value. Defaults to none."""
    bootstrap: Bootstrap | None = None
    """Source of the first data. Defaults to an empty cluster without a database. Immutable, except that encoding,
    locale and segment size of ``initdb`` can be corrected before the first server runs."""
    wal_storage: VolumeSettings | None = None
    """Separate volume for WAL of each instance. It cannot be added or removed later."""
    shm_size: Annotated[
        Quantity,
        Field(
            rules=(
                Rule(
                    rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                    message="shmSize must be greater than 0, such as 256Mi",
                ),
            )
        ),
    ] = Quantity("256Mi")
    """Size of /dev/shm, which parallel queries use. It counts as memory."""
    pooler: PoolerSettings | None = None
    """Connection poolers (PgBouncer) in front of the cluster. Defaults to none."""
    read_replicas: ReadReplicaSettings | None = None
    """Read replicas for the Service -ro. They never become primary. Defaults to none."""
    healing: PostgreSQLHealingSettings = PostgreSQLHealingSettings()
    """Failures that the operator corrects."""


class PostgreSQLMember(ClusterMember):
    """Observed state of an instance."""

    lag_bytes: int | None = None
    """Replication lag in bytes, rounded down to MiB."""
    timeline: int | None = None
    """Timeline of the server."""
    synchronous: bool | None = None
    """The replica has all committed transactions by synchronous replication. A failover to it loses none."""


class PostgreSQLClusterStatus(ClusterStatus):
    """Observed state of the cluster."""

    timeline: int | None = None
    """Timeline of the primary."""
    members: Annotated[tuple[PostgreSQLMember, ...], Field(list_map_keys=("name",), max_items=32)] = ()
    """Instances of the cluster."""
    read_replicas: ReadReplicasStatus | None = None
    """Read replicas, with ``spec.readReplicas``."""


def _unchanged(name: str) -> str:
    new, old = (f"{each}.spec.bootstrap.initdb.{name}" for each in ("self", "oldSelf"))
    return f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"


_OLD_INITDB = _INITDB.replace("self.", "oldSelf.")
_HAS_SERVED = "(has(self.status) && has(self.status.version))"
_KEPT = " && ".join(map(_unchanged, ("database", "owner", "secret", "postInitApplicationSQLRefs")))
_BOOTSTRAP_RULE = Rule(
    rule="has(self.spec.bootstrap) == has(oldSelf.spec.bootstrap) && (!has(self.spec.bootstrap)"
    " || self.spec.bootstrap == oldSelf.spec.bootstrap"
    f" || (!{_HAS_SERVED} && {_INITDB} && {_OLD_INITDB} && {_KEPT}))",
    message="bootstrap is immutable: only encoding, localeProvider, locale and walSegmentSize of initdb can change, "
    "before the first server runs",
    field_path=".spec.bootstrap",
)


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["pg"],
    categories=["all"],
    scale=Scale(".spec.instances", ".status.instances", ".status.selector"),
    columns=COLUMNS,
    rules=[
        NAME_RULE,
        size_rule("storage", "dataCapacity"),
        size_rule("walStorage", "walCapacity"),
        _BOOTSTRAP_RULE,
        Rule(
            rule=f"!{_INITDB} || has(self.spec.bootstrap.initdb.database)"
            f" || !(self.metadata.name in {_SYSTEM_DATABASES})",
            message="the default database, the cluster's name, is reserved: set another name",
            field_path=".spec.bootstrap.initdb.database",
        ),
        Rule(
            rule=f"!{_INITDB} || has(self.spec.bootstrap.initdb.owner)"
            " || (has(self.spec.bootstrap.initdb.database)"
            f" ? {_unreserved_role('self.spec.bootstrap.initdb.database')}"
            f" : {_unreserved_role('self.metadata.name')})",
            message="the default owner, the database's name, is reserved: set another name",
            field_path=".spec.bootstrap.initdb.owner",
        ),
        Rule(
            rule="int(self.spec.version) >= int(oldSelf.spec.version)"
            " || (has(self.status) && has(self.status.version)"
            " && self.status.version.startsWith(self.spec.version + '.'))",
            message="version cannot be lowered: data cannot be downgraded",
            field_path=".spec.version",
        ),
    ],
)
class PostgreSQLCluster(Resource[PostgreSQLClusterSpec, PostgreSQLClusterStatus]):
    """A PostgreSQL primary and its replicas, with automatic failover."""

    @property
    def synchronous_mode(self) -> SynchronousMode:
        """Mode of synchronous replication, default included."""
        return self.spec.postgresql.synchronous.mode or ("Quorum" if self.spec.instances >= 2 else "Disabled")
