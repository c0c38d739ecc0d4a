"""``MySQLCluster``: a primary and its replicas, in one group."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from steersman.meta import Field, FrozenDict, FrozenStruct, Resource, Rule, Scale, exactly_one_of, resource, schema
from steersman_databases.api.autopilot.healing import HealingSettings
from steersman_databases.api.autopilot.sizing import Sizing
from steersman_databases.api.autopilot.tuning import TuningSettings
from steersman_databases.api.backups.backup_common import RecoverySettings, full_backups_rule, recovery_target_rules
from steersman_databases.api.cluster_common import (
    COLUMNS,
    NAME_RULE,
    ClusterMember,
    ClusterSpec,
    ClusterStatus,
    SecretReference,
    SqlReferences,
)
from steersman_databases.api.group import GROUP, VERSION
from steersman_databases.api.volume_sizes import size_rule

MAX_PARAMETERS = 300
_MAX_USER_CHARACTERS = 32
_SYSTEM_DATABASES = "['mysql', 'sys', 'information_schema', 'performance_schema', 'ndbinfo', 'steersman']"


def _unreserved_user(name: str) -> str:
    reserved = "['root', 'none', 'public', 'current_role', 'current_user']"
    operator_prefixes = " || ".join(
        f"{name}.startsWith('{prefix}')" for prefix in ("mysql.", "mariadb.", "steersman_")
    )
    return f"(!({name} in {reserved}) && !({operator_prefixes}))"


class MySQLSettings(FrozenStruct):
    """Configuration of the servers."""

    parameters: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=1024)]],
        Field(
            max_properties=MAX_PARAMETERS,
            rules=(
                Rule(
                    rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_.]*$'))",
                    message="names of parameters are lower-case letters, digits, '_' and '.': max_connections",
                ),
            ),
        ),
    ] = FrozenDict()
    """System variables as in SET GLOBAL, such as max_connections: "200"."""
    sizing: Sizing | None = None
    """FromResources derives parameters for memory and parallelism from ``spec.resources.limits``. Defaults keeps the
    defaults of the server. ``parameters`` override both. Defaults to FromResources for new clusters; other clusters
    keep the mode in ``status.sizing``."""


class MySQLInitDb(FrozenStruct):
    """A new cluster with a database."""

    database: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=64,
                rules=(
                    Rule(
                        rule=f"!(self in {_SYSTEM_DATABASES})",
                        message="this database name is reserved: choose another name",
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
                max_length=_MAX_USER_CHARACTERS,
                rules=(
                    Rule(
                        rule=_unreserved_user("self"),
                        message="this user name is reserved: choose another name",
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
    """SQL that the owner runs once in the bootstrap database. MySQL cannot roll back CREATE or ALTER: if a statement
    fails, the effects of earlier statements remain."""
    character_set: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9_]+$")] = "utf8mb4"
    """Character set of the database."""
    collation: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9_]+$")] | None = None
    """Default collation of the database. Defaults to that of the character set."""


@schema(rules=[exactly_one_of("initdb", "recovery")])
class MySQLBootstrap(FrozenStruct):
    """Source of the first data."""

    initdb: MySQLInitDb | None = None
    """A new cluster with a database."""
    recovery: RecoverySettings | None = None
    """Recovery of the data from backups and an archive."""


class DataLoss(FrozenStruct):
    """Data loss of a forced recovery."""

    transactions: Annotated[str, Field(max_length=32768)] = ""
    """Transactions of other instances that this instance lacks (GTID set). Empty if there are none."""
    instances: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_items=32, list_type="set")] = ()
    """Unreachable instances. Transactions that only they have are lost."""


class ForceRecovery(FrozenStruct):
    """Approval of a forced recovery from one instance, with its data loss."""

    epoch: Annotated[int, Field(ge=0)]
    """Outage that the approval is for: status.outage.epoch. It does not apply to any other outage."""
    instance: Annotated[str, Field(min_length=1, max_length=63)]
    """Instance with the data to recover from."""
    loss: DataLoss = DataLoss()
    """Data loss, exactly as status.outage lists it for this instance."""


@schema(
    rules=[
        Rule(
            rule="!has(self.image) || !self.image.lowerAscii().contains('mariadb')",
            message="clusters need MySQL: MariaDB has no Group Replication. A MariaDB of your own takes databases "
            "and users by serverRef",
            field_path=".image",
        ),
        full_backups_rule(),
        *recovery_target_rules("mysql"),
    ]
)
class MySQLClusterSpec(ClusterSpec):
    """Declared state of the cluster."""

    version: Annotated[
        str,
        Field(
            pattern=r"^[1-9][0-9]?\.[0-9]{1,2}$",
            rules=(
                Rule(
                    rule="self in ['9.7']",
                    message="version must be 9.7, of MySQL. MariaDB has no Group Replication: databases and users "
                    "on a "
                    "MariaDB server are supported by serverRef",
                ),
            ),
        ),
    ] = "9.7"
    """Version of MySQL: 9.7."""
    mysql: MySQLSettings = MySQLSettings()
    """Configuration of the servers."""
    tuning: TuningSettings | None = None
    """Recommendations for system variables. Defaults to none."""
    bootstrap: Annotated[MySQLBootstrap | None, Field(immutable=True)] = None
    """Source of the first data. Defaults to an empty cluster without a database. Immutable."""
    force_recovery: ForceRecovery | None = None
    """Approval of data loss for a cluster that cannot recover automatically.

    It is needed after a complete outage.
    """
    healing: HealingSettings = HealingSettings()
    """Failures that the operator corrects."""


class RestoredParameters(FrozenStruct):
    """Parameters that were changed on a running server and reverted."""

    time: datetime
    """Time of the revert."""
    parameters: Annotated[tuple[str, ...], Field(max_items=MAX_PARAMETERS, list_type="set")] = ()
    """Names of the parameters."""


class MySQLMember(ClusterMember):
    """Observed state of an instance."""

    apply_queue: int | None = None
    """Transactions that are received and not applied yet, rounded."""
    errant_gtids: str | None = None
    """Errant transactions, as a set of GTIDs. The group does not admit the instance with them."""
    version: str | None = None
    """Version of the server."""
    restored_parameters: RestoredParameters | None = None
    """Parameters that were last reverted on this server."""


class OutageChoice(FrozenStruct):
    """An instance that the group can recover from."""

    instance: str
    """Name of the instance."""
    loss: DataLoss = DataLoss()
    """Data loss of this choice."""


class OutageStatus(FrozenStruct):
    """A complete outage that needs the user's approval to recover."""

    epoch: int
    """Number of the outage: how many groups existed before."""
    choices: Annotated[tuple[OutageChoice, ...], Field(list_map_keys=("instance",), max_items=32)] = ()
    """Instances that the group can recover from, with their data loss."""


class MySQLClusterStatus(ClusterStatus):
    """Observed state of the cluster."""

    last_primary: str | None = None
    """The last primary. It stays set while no primary exists."""
    members: Annotated[tuple[MySQLMember, ...], Field(list_map_keys=("name",), max_items=32)] = ()
    """Instances of the cluster."""
    outage: OutageStatus | None = None
    """Choices for a forced recovery during a complete outage."""


_INITDB = "(has(self.spec.bootstrap) && has(self.spec.bootstrap.initdb))"
_OWNER = "self.spec.bootstrap.initdb.owner"
_DATABASE = "self.spec.bootstrap.initdb.database"


@resource(
    group=GROUP,
    version=VERSION,
    plural="mysqlclusters",
    short_names=["my"],
    categories=["all"],
    scale=Scale(".spec.instances", ".status.instances", ".status.selector"),
    columns=COLUMNS,
    rules=[
        NAME_RULE,
        size_rule("storage", "dataCapacity"),
        Rule(
            rule=f"!{_INITDB} || has({_DATABASE}) || !(self.metadata.name in {_SYSTEM_DATABASES})",
            message="the default database, the cluster's name, is reserved: set another name",
            field_path=".spec.bootstrap.initdb.database",
        ),
        Rule(
            rule=f"!{_INITDB} || has({_OWNER}) || (has({_DATABASE})"
            f" ? {_unreserved_user(_DATABASE)} && {_DATABASE}.size() <= {_MAX_USER_CHARACTERS}"
            f" : {_unreserved_user('self.metadata.name')} && self.metadata.name.size() <= {_MAX_USER_CHARACTERS})",
            message="the default owner, the database's name, is reserved or longer than 32 characters: set "
            "another name",
            field_path=".spec.bootstrap.initdb.owner",
        ),
    ],
)
class MySQLCluster(Resource[MySQLClusterSpec, MySQLClusterStatus]):
    """A MySQL primary and its replicas, with automatic failover."""
