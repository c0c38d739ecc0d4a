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
    resource,
    schema,
)
from steersman_databases.api.cluster_parts import (
    COLUMNS,
    NAME_RULE,
    ClusterMember,
    ClusterSpec,
    ClusterStatus,
    Pooler,
    SecretReference,
    SqlReferences,
    Storage,
)
from steersman_databases.api.group import GROUP, VERSION

SynchronousMode = Literal["Off", "Priority", "Quorum"]


class Synchronous(FrozenStruct):
    """Which replicas must have a transaction before it counts as committed."""

    mode: SynchronousMode | None = None
    """Off, Priority (named replicas), Quorum (any of them); Quorum from three instances on unless given, else Off."""
    standbys: Annotated[int, Field(ge=1, le=8)] = 1
    """How many replicas."""
    required: bool = False
    """Whether writes wait where there are not as many; otherwise the primary goes on alone."""


class PostgreSQLSettings(FrozenStruct):
    """The servers' configuration."""

    parameters: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=1024)]],
        Field(
            max_properties=300,
            rules=(
                Rule(
                    rule="self.all(k, k.size() <= 128 && k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$'))",
                    message="names of parameters are lower-case letters, digits, '_' and at most one '.',"
                    " such as work_mem",
                ),
                Rule(
                    rule="self.all(k, !self[k].matches('[\\\\r\\\\n\\\\x00]'))",
                    message="values of parameters are one line, without line breaks",
                ),
            ),
        ),
    ] = FrozenDict()
    """Parameters as in postgresql.conf, such as max_connections: "200"."""
    pg_hba: Annotated[
        tuple[
            Annotated[
                str,
                Field(
                    min_length=1,
                    max_length=1024,
                    rules=(
                        Rule(rule="!self.matches('[\\\\r\\\\n]')", message="one rule a line, without line breaks"),
                    ),
                ),
            ],
            ...,
        ],
        Field(max_items=100, list_type="atomic"),
    ] = ()
    """Rules as in pg_hba.conf. They come behind the operator's own and before those that let everybody in with a
    password over TLS."""
    enable_superuser_access: Annotated[bool, Field(default=True)] = True
    """Whether postgres, the superuser, may log in over the network, with the password of the Secret <cluster>-admin;
    otherwise only who may exec into the pods is it."""
    shared_preload_libraries: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9_]+$")], ...],
        Field(max_items=32, list_type="set"),
    ] = ()
    """Libraries that are loaded at start, such as pg_stat_statements."""
    synchronous: Synchronous = Synchronous()
    """Synchronous replication."""


_KEPT_DATABASES = "['postgres', 'template0', 'template1']"


def _free_role(name: str) -> str:
    kept = "['postgres', 'public', 'none']"
    return f"(!({name} in {kept}) && !{name}.startsWith('pg_') && !{name}.startsWith('steersman_'))"


class InitDb(FrozenStruct):
    """A new cluster with a database in it."""

    database: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=63,
                rules=(
                    Rule(
                        rule=f"!(self in {_KEPT_DATABASES})",
                        message="PostgreSQL keeps this database for itself: choose another name",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """The first database; the name of the cluster unless given."""
    owner: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=63,
                rules=(
                    Rule(
                        rule=_free_role("self"),
                        message="PostgreSQL or the operator keeps this role for itself: choose another name",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """Its owner, who may do everything in it and nothing outside; the name of the database unless given."""
    secret: SecretReference | None = None
    """Secret of type kubernetes.io/basic-auth with the owner's name and password; generated unless given. Where it
    changes, the owner's password does."""
    post_init_application_sql_refs: SqlReferences | None = msgspec.field(
        default=None, name="postInitApplicationSQLRefs"
    )
    """SQL that is run once in the first database, by its owner, in one transaction."""
    encoding: Annotated[str, Field(min_length=1, max_length=63)] = "UTF8"
    """Encoding of databases."""
    locale_provider: Literal["builtin", "icu", "libc"] | None = None
    """Who orders texts; builtin from version 17 on unless given, else libc."""
    locale: Annotated[str, Field(min_length=1, max_length=63)] = "C.UTF-8"
    """How texts are ordered."""
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
    """Size of a segment of the write-ahead log, in MB."""


class Bootstrap(FrozenStruct):
    """Where the first data come from."""

    initdb: InitDb
    """A new cluster with a database in it."""


_SYNCHRONOUS = "self.postgresql.synchronous"


@schema(
    rules=[
        Rule(
            rule="has(self.walStorage) == has(oldSelf.walStorage)",
            message="walStorage is neither added nor removed later: create a new cluster",
            field_path=".walStorage",
        ),
        Rule(
            rule=f"!has({_SYNCHRONOUS}.mode) || {_SYNCHRONOUS}.mode == 'Off' || self.instances >= 2",
            message="synchronous replication needs a replica: set instances to 2 or more, or mode to Off",
            field_path=".postgresql.synchronous.mode",
        ),
        Rule(
            rule=f"(has({_SYNCHRONOUS}.mode) ? {_SYNCHRONOUS}.mode == 'Off' : self.instances < 3)"
            f" || {_SYNCHRONOUS}.standbys < self.instances",
            message="standbys must be less than instances: the primary is none of them",
            field_path=".postgresql.synchronous.standbys",
        ),
        Rule(
            rule="!has(self.bootstrap) || !has(self.bootstrap.initdb.localeProvider)"
            " || self.bootstrap.initdb.localeProvider != 'builtin' || int(self.version) >= 17",
            message="the locale provider builtin needs version 17",
            field_path=".bootstrap.initdb.localeProvider",
        ),
        Rule(
            rule="!has(self.pooler) || !self.pooler.readOnly || self.services.ro.enabled",
            message="pooler.readOnly needs services.ro: enable it, or set pooler.readOnly to false",
            field_path=".pooler.readOnly",
        ),
    ]
)
class PostgreSQLClusterSpec(ClusterSpec):
    """The cluster that is wanted."""

    version: Annotated[
        str,
        Field(
            pattern="^[1-9][0-9]$",
            rules=(
                Rule(
                    rule="self == oldSelf || self in ['15', '17']",
                    message="version can be changed to 15 or 17 only: the operator knows no other",
                ),
            ),
        ),
    ] = "17"
    """Major version of PostgreSQL: 15 or 17. A higher one upgrades the data in place; a lower one is refused, unless
    it is what still runs."""
    upgrade_image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The image that upgrades data of another major version, with the programs of both; the operator's unless given.
    Where ``image`` brings extensions of your own, this one must bring them, too, for both versions."""
    postgresql: PostgreSQLSettings = PostgreSQLSettings()
    """The servers' configuration."""
    bootstrap: Annotated[Bootstrap | None, Field(immutable=True)] = None
    """Where the first data come from; an empty cluster without a database unless given. Immutable."""
    wal_storage: Storage | None = None
    """A volume of its own for the write-ahead log, one for each instance. It is neither added nor removed later."""
    shm_size: Annotated[
        Quantity,
        Field(
            rules=(
                Rule(
                    rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                    message="shmSize must be more than 0, such as 256Mi",
                ),
            )
        ),
    ] = Quantity("256Mi")
    """Size of /dev/shm, which parallel queries use. It counts as memory."""
    pooler: Pooler | None = None
    """Connection poolers (PgBouncer) in front of the cluster; none unless given."""


class PostgreSQLMember(ClusterMember):
    """An instance as it is."""

    lag_bytes: int | None = None
    """How far it is behind the primary, rounded down to MiB."""
    timeline: int | None = None
    """Its timeline."""
    synchronous: bool | None = None
    """Whether it has all that was committed, by synchronous replication: it may take over without loss."""


class PostgreSQLClusterStatus(ClusterStatus):
    """The cluster as it is."""

    timeline: int | None = None
    """The primary's timeline."""
    members: Annotated[tuple[PostgreSQLMember, ...], Field(list_map_keys=("name",), max_items=32)] = ()
    """The instances."""


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["pg"],
    categories=["all"],
    scale=Scale(".spec.instances", ".status.instances", ".status.selector"),
    columns=COLUMNS,
    rules=[
        NAME_RULE,
        Rule(
            rule="!has(self.spec.bootstrap) || has(self.spec.bootstrap.initdb.database)"
            f" || !(self.metadata.name in {_KEPT_DATABASES})",
            message="PostgreSQL keeps the database of the cluster's name for itself: give another",
            field_path=".spec.bootstrap.initdb.database",
        ),
        Rule(
            rule="!has(self.spec.bootstrap) || has(self.spec.bootstrap.initdb.owner)"
            " || (has(self.spec.bootstrap.initdb.database)"
            f" ? {_free_role('self.spec.bootstrap.initdb.database')} : {_free_role('self.metadata.name')})",
            message="PostgreSQL keeps the role of the database's name for itself: give another",
            field_path=".spec.bootstrap.initdb.owner",
        ),
        Rule(
            rule="int(self.spec.version) >= int(oldSelf.spec.version)"
            " || (has(self.status) && has(self.status.version)"
            " && self.status.version.startsWith(self.spec.version + '.'))",
            message="version cannot be lowered: data are never brought back to a former one",
            field_path=".spec.version",
        ),
    ],
)
class PostgreSQLCluster(Resource[PostgreSQLClusterSpec, PostgreSQLClusterStatus]):
    """A PostgreSQL server with replicas, one of which takes over when the primary fails."""

    @property
    def synchronous_mode(self) -> SynchronousMode:
        """Synchronous replication, default included."""
        return self.spec.postgresql.synchronous.mode or ("Quorum" if self.spec.instances >= 3 else "Off")
