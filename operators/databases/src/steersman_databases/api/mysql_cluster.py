"""``MySQLCluster``: a primary and its replicas, in one group."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from steersman.meta import Field, FrozenDict, FrozenStruct, Resource, Rule, Scale, resource, schema
from steersman_databases.api.cluster_parts import (
    COLUMNS,
    NAME_RULE,
    ClusterMember,
    ClusterSpec,
    ClusterStatus,
    SecretReference,
    SqlReferences,
)
from steersman_databases.api.group import GROUP, VERSION

MOST_PARAMETERS = 300
_LONGEST_USER = 32
_KEPT_DATABASES = "['mysql', 'sys', 'information_schema', 'performance_schema', 'ndbinfo', 'steersman']"


def _free_user(name: str) -> str:
    kept = "['root', 'none', 'public', 'current_role', 'current_user']"
    ours = " || ".join(f"{name}.startsWith('{prefix}')" for prefix in ("mysql.", "mariadb.", "steersman_"))
    return f"(!({name} in {kept}) && !({ours}))"


class MySQLSettings(FrozenStruct):
    """The servers' configuration."""

    parameters: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=1024)]],
        Field(
            max_properties=MOST_PARAMETERS,
            rules=(
                Rule(
                    rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_.]*$'))",
                    message="names of parameters are lower-case letters, digits, '_' and '.': max_connections",
                ),
            ),
        ),
    ] = FrozenDict()
    """System variables as in SET GLOBAL, such as max_connections: "200"."""


class MySQLInitDb(FrozenStruct):
    """A new cluster with a database in it."""

    database: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=64,
                rules=(
                    Rule(
                        rule=f"!(self in {_KEPT_DATABASES})",
                        message="MySQL or the operator keeps this database for itself: choose another name",
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
                max_length=_LONGEST_USER,
                rules=(
                    Rule(
                        rule=_free_user("self"),
                        message="MySQL or the operator keeps this user for itself: choose another name",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """The user who may do everything in it and nothing outside; the name of the database unless given."""
    secret: SecretReference | None = None
    """Secret of type kubernetes.io/basic-auth with the owner's name and password; generated unless given. Where it
    changes, the owner's password does."""
    post_init_application_sql_refs: SqlReferences | None = msgspec.field(
        default=None, name="postInitApplicationSQLRefs"
    )
    """SQL that is run once in the first database, by its owner. MySQL undoes no CREATE or ALTER: where a statement
    fails, those before it stay."""
    character_set: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9_]+$")] = "utf8mb4"
    """Character set of the database."""
    collation: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9_]+$")] | None = None
    """How its texts are ordered; the character set's own default unless given."""


class MySQLBootstrap(FrozenStruct):
    """Where the first data come from."""

    initdb: MySQLInitDb
    """A new cluster with a database in it."""


class Loss(FrozenStruct):
    """What is given up where one instance's data become everybody's."""

    transactions: Annotated[str, Field(max_length=32768)] = ""
    """The transactions that others have and this instance has not, as a set of GTIDs; empty where there are none."""
    instances: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_items=32, list_type="set")] = ()
    """Instances that nobody sees: what only they have is lost with them."""


class Recovery(FrozenStruct):
    """A person's consent that a group is founded anew with the data of one instance, and its loss named."""

    epoch: Annotated[int, Field(ge=0)]
    """Which outage is meant, as status.outage.epoch says. A consent is good for that one only."""
    instance: Annotated[str, Field(min_length=1, max_length=63)]
    """The instance whose data are to be the cluster's."""
    loss: Loss = Loss()
    """What is lost, exactly as status.outage says it of this instance."""


@schema(
    rules=[
        Rule(
            rule="!has(self.image) || !self.image.lowerAscii().contains('mariadb')",
            message="clusters need MySQL: MariaDB has no Group Replication. A MariaDB of your own takes databases "
            "and users by serverRef",
            field_path=".image",
        ),
    ]
)
class MySQLClusterSpec(ClusterSpec):
    """The cluster that is wanted."""

    version: Annotated[
        str,
        Field(
            pattern=r"^[1-9][0-9]?\.[0-9]{1,2}$",
            rules=(
                Rule(
                    rule="self in ['9.7']",
                    message="version must be 9.7, of MySQL. Clusters need MySQL's Group Replication, which MariaDB "
                    "has not: a MariaDB of your own takes databases and users by serverRef",
                ),
            ),
        ),
    ] = "9.7"
    """Version of MySQL: 9.7."""
    mysql: MySQLSettings = MySQLSettings()
    """The servers' configuration."""
    bootstrap: Annotated[MySQLBootstrap | None, Field(immutable=True)] = None
    """Where the first data come from; an empty cluster without a database unless given. Immutable."""
    recovery: Recovery | None = None
    """Consent to a loss, where a cluster does not come back by itself after all instances were away at once."""


class RestoredParameters(FrozenStruct):
    """Parameters that somebody else had set at a server that runs."""

    time: datetime
    """When they were set as declared again."""
    parameters: Annotated[tuple[str, ...], Field(max_items=MOST_PARAMETERS, list_type="set")] = ()
    """Their names."""


class MySQLMember(ClusterMember):
    """An instance as it is."""

    queued: int | None = None
    """Transactions that it has received and not applied yet, in coarse steps."""
    errant: str | None = None
    """Transactions that it has and the group has not, as a set of GTIDs. It is not let in with them."""
    version: str | None = None
    """The version of its server."""
    restored: RestoredParameters | None = None
    """What was last set there by somebody else, and was taken back."""


class OutageChoice(FrozenStruct):
    """An instance that could be the first of a new group."""

    instance: str
    """Its name."""
    loss: Loss = Loss()
    """What would be lost."""


class Outage(FrozenStruct):
    """No instance is in a group, and none may found one without a person's consent."""

    epoch: int
    """Which outage: the number of groups there were."""
    choices: Annotated[tuple[OutageChoice, ...], Field(list_map_keys=("instance",), max_items=32)] = ()
    """Who could be the first of a new group, and at what price."""


class MySQLClusterStatus(ClusterStatus):
    """The cluster as it is."""

    last_primary: str | None = None
    """The last instance that took writes, also while none does."""
    members: Annotated[tuple[MySQLMember, ...], Field(list_map_keys=("name",), max_items=32)] = ()
    """The instances."""
    outage: Outage | None = None
    """What a person may decide while all instances are out of the group."""


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
        Rule(
            rule=f"!has(self.spec.bootstrap) || has({_DATABASE}) || !(self.metadata.name in {_KEPT_DATABASES})",
            message="MySQL or the operator keeps the database of the cluster's name for itself: give another",
            field_path=".spec.bootstrap.initdb.database",
        ),
        Rule(
            rule=f"!has(self.spec.bootstrap) || has({_OWNER}) || (has({_DATABASE})"
            f" ? {_free_user(_DATABASE)} && {_DATABASE}.size() <= {_LONGEST_USER}"
            f" : {_free_user('self.metadata.name')} && self.metadata.name.size() <= {_LONGEST_USER})",
            message="the owner is called as the database unless given, and MySQL takes users of at most 32 "
            "characters that neither it nor the operator keeps for itself: give another",
            field_path=".spec.bootstrap.initdb.owner",
        ),
    ],
)
class MySQLCluster(Resource[MySQLClusterSpec, MySQLClusterStatus]):
    """A MySQL server with replicas, one of which takes over when the primary fails."""
