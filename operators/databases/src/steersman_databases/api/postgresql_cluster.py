"""``PostgreSQLCluster``: a primary and its replicas."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from steersman.api.core_v1 import (
    Affinity,
    LocalObjectReference,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from steersman.meta import (
    Field,
    FrozenDict,
    FrozenStruct,
    PrinterColumn,
    Quantity,
    Resource,
    Rule,
    Scale,
    Spec,
    Status,
    resource,
    schema,
)
from steersman_databases.api.cluster_parts import (
    ClusterMember,
    ClusterSecrets,
    ClusterTls,
    PodDisruptionBudget,
    PodMetadata,
    Pooler,
    PullPolicy,
    SecretReference,
    Services,
    Storage,
)
from steersman_databases.api.group import GROUP, NAME_PATTERN, VERSION, DeletionPolicy
from steersman_databases.api.references import KeySelector, Namespace

ClusterPhase = Literal["Pending", "Provisioning", "Ready", "Degraded", "Failed", "Hibernated", "Deleting"]
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
                    rule="self.all(k, k.size() <= 128 && k.matches('^[a-z_][a-z0-9_.]*$'))",
                    message="names of parameters are lower-case letters, digits, '_' and '.', such as work_mem",
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


class SqlReferences(FrozenStruct):
    """SQL in Secrets and ConfigMaps of the cluster's namespace: first the Secrets', then the ConfigMaps', each list
    in its order."""

    secret_refs: Annotated[tuple[KeySelector, ...], Field(max_items=32, list_type="atomic")] = ()
    """Keys of Secrets."""
    config_map_refs: Annotated[tuple[KeySelector, ...], Field(max_items=32, list_type="atomic")] = ()
    """Keys of ConfigMaps."""


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
    ]
)
class PostgreSQLClusterSpec(Spec):
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
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of the servers; the operator's for this version unless given."""
    upgrade_image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The image that upgrades data of another major version, with the programs of both; the operator's unless given.
    Where ``image`` brings extensions of your own, this one must bring them, too, for both versions."""
    image_pull_policy: PullPolicy = "IfNotPresent"
    """When nodes pull the image."""
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], Field(list_map_keys=("name",), max_items=16)] = ()
    """Secrets for the registry."""
    instances: Annotated[int, Field(ge=1, le=9, format="int32")] = 3
    """How many instances: a primary and its replicas."""
    postgresql: PostgreSQLSettings = PostgreSQLSettings()
    """The servers' configuration."""
    bootstrap: Annotated[Bootstrap | None, Field(immutable=True)] = None
    """Where the first data come from; an empty cluster without a database unless given. Immutable."""
    storage: Storage = Storage()
    """The volume for data, one for each instance."""
    wal_storage: Storage | None = None
    """A volume of its own for the write-ahead log, one for each instance. It is neither added nor removed later."""
    resources: ResourceRequirements | None = None
    """Resources of each instance; requests of 100m and 384Mi and a limit of 768Mi unless given."""
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
    affinity: Affinity | None = None
    """Which nodes; instances are kept apart where that is possible unless given."""
    node_selector: Annotated[FrozenDict[str, Annotated[str, Field(max_length=63)]], Field(max_properties=64)] = (
        FrozenDict()
    )
    """Labels of the nodes."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_items=32, list_type="atomic")] = ()
    """Taints that are borne."""
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...], Field(max_items=16, list_type="atomic")
    ] = ()
    """How instances are spread. Without a selector of its own, each is about the pods of this cluster."""
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Priority of the pods."""
    pod_metadata: PodMetadata = PodMetadata()
    """Labels and annotations of the pods beside the operator's own."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """How many instances a drain may take away at once."""
    services: Services = Services()
    """The Services: -rw, -ro and -r, and more."""
    tls: ClusterTls = ClusterTls()
    """How connections are encrypted."""
    pooler: Pooler | None = None
    """Connection poolers (PgBouncer) in front of the cluster; none unless given."""
    allowed_namespaces: Annotated[tuple[Namespace, ...], Field(max_items=256, list_type="set")] = ()
    """Namespaces whose databases and users may be on this cluster; "*" is each one."""
    network_policy: Literal["Managed", "None"] = "Managed"
    """Managed: a NetworkPolicy lets in who needs the instances. None: there is none."""
    minor_upgrades: Literal["OnRequest", "Automatic"] = "OnRequest"
    """Whether a newer image of the operator's for this version is taken by itself."""
    hibernated: bool = False
    """Stop all instances and keep the data."""
    replace_failed_instances: Literal["Automatic", "OnRequest"] = "Automatic"
    """Whether an instance whose data or volume is lost is made anew by itself."""
    deletion_policy: DeletionPolicy = "Retain"
    """What becomes of the volumes, and of the Secrets that open them, when this object is deleted. What was retained
    is adopted by a new cluster of the same name."""


class LastSwitchover(FrozenStruct):
    """The last switchover that somebody asked for."""

    time: datetime | None = None
    """When it was asked for, and when it ended."""
    former: str | None = None
    """The former primary."""
    to: str | None = None
    """The primary since, or who should have become it."""
    outcome: str | None = None
    """Requested, Succeeded, or why not."""
    declared: str | None = None
    """For which generation it was asked for, and after which requested restart: nobody is asked twice for that."""
    refused: Annotated[tuple[str, ...], Field(max_items=32, list_type="set")] = ()
    """Who was asked before, for the same, and did not take over."""
    store_version: str | None = None
    """The resourceVersion of the ConfigMap that the request goes into, before it did. Until that bears it too, nobody
    has been asked yet."""


class PostgreSQLClusterStatus(Status):
    """The cluster as it is."""

    phase: ClusterPhase | None = None
    """Pending, Provisioning, Ready, Degraded (serves, and something is missing), Failed (needs a person), Hibernated
    or Deleting."""
    instances: int | None = None
    """How many instances there are."""
    ready_instances: int | None = None
    """How many take connections."""
    selector: str | None = None
    """Labels of the instances' pods, for autoscalers."""
    primary: str | None = None
    """The instance that takes writes."""
    timeline: int | None = None
    """The primary's timeline."""
    version: str | None = None
    """The version that runs, whole."""
    image: str | None = None
    """The image that runs."""
    available_image: str | None = None
    """The image of the operator's for this version, where another one runs."""
    members: Annotated[tuple[ClusterMember, ...], Field(list_map_keys=("name",), max_items=32)] = ()
    """The instances."""
    secrets: ClusterSecrets | None = None
    """Names of the Secrets."""
    last_switchover: LastSwitchover | None = None
    """The last switchover that somebody asked for."""


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["pg"],
    categories=["all"],
    scale=Scale(".spec.instances", ".status.instances", ".status.selector"),
    columns=[
        PrinterColumn("Instances", ".spec.instances", "integer"),
        PrinterColumn("Ready", ".status.readyInstances", "integer"),
        PrinterColumn("Primary", ".status.primary"),
        PrinterColumn("Version", ".status.version"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ],
    rules=[
        Rule(
            rule=f"self.metadata.name.matches('{NAME_PATTERN}')",
            message="metadata.name must be at most 45 lower-case letters, digits and '-', starting with a letter: "
            "Services are named after it",
        ),
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

    @property
    def initial_database(self) -> str | None:
        """The first database, default included; None where none is declared."""
        if self.spec.bootstrap is None:
            return None
        return self.spec.bootstrap.initdb.database or self.metadata.name

    @property
    def initial_owner(self) -> str | None:
        """Its owner, likewise."""
        declared = self.spec.bootstrap
        return None if declared is None else declared.initdb.owner or self.initial_database
