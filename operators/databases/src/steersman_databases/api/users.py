"""``DatabaseUser``: a user of a database server, and all that it may do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal

from msgspec.structs import replace

from steersman.meta import (
    Condition,
    Duration,
    Field,
    FrozenStruct,
    PrinterColumn,
    Resource,
    Rule,
    Spec,
    Status,
    at_most_one_of,
    find_condition,
    resource,
    schema,
    set_condition,
)
from steersman_databases.api.grants import ON_SERVER, Grant, Membership
from steersman_databases.api.group import GROUP, VERSION, DeletionPolicy, EngineName
from steersman_databases.api.names import PRINTABLE, SUBDOMAIN, ObjectName, SqlName
from steersman_databases.api.references import (
    KEPT_SERVER,
    ON_MYSQL,
    ClusterReference,
    KeySelector,
    ServerReference,
    engine_of,
)

_MYSQL = f"(has(self.engine) ? self.engine == 'mysql' : {ON_MYSQL})"
_ON_SERVER = f"[{', '.join(repr(word) for word in ('ALL', *ON_SERVER))}]"


@schema(
    rules=[
        Rule(
            rule="duration(self.every) >= duration('5m')",
            message="every must be 5m or more",
            field_path=".every",
        ),
        Rule(
            rule="duration(self.overlap) < duration(self.every) && duration(self.overlap) >= duration('0s')",
            message="overlap must be shorter than every: only two credentials are valid at once",
            field_path=".overlap",
        ),
    ]
)
class Rotation(FrozenStruct):
    """A new password from time to time, while the former one is still valid."""

    every: Annotated[Duration, Field(max_length=32)]
    """How long a password is used, such as 720h; 5m or more."""
    overlap: Annotated[Duration, Field(max_length=32)] = Duration("1h")
    """How long the former is valid after the Secret holds the new one."""


class HourlyLimits(FrozenStruct):
    """How often a user may do something within an hour; 0 is no limit."""

    queries: Annotated[int, Field(ge=0, le=4294967295, format="int64")] = 0
    """Statements of any kind."""
    updates: Annotated[int, Field(ge=0, le=4294967295, format="int64")] = 0
    """Statements that change something."""
    connections: Annotated[int, Field(ge=0, le=4294967295, format="int64")] = 0
    """Logins."""


@schema(
    rules=[
        at_most_one_of("clusterRef", "serverRef"),
        KEPT_SERVER,
        at_most_one_of("password", "rotation"),
        Rule(
            rule="!has(self.engine) || !has(self.clusterRef)",
            message="engine is not for clusterRef: its kind says it",
            field_path=".engine",
        ),
        Rule(
            rule="!has(self.serverRef) || has(self.engine)",
            message="engine is needed with serverRef: postgresql or mysql",
            field_path=".engine",
        ),
        Rule(
            rule=f"!has(self.grants) || !{_MYSQL} || self.grants.all(g, !has(g.schema) && !has(g.sequences)"
            " && (!has(g.future) || !g.future))",
            message="schema, sequences and future are PostgreSQL's: on MySQL, grant on a database or its tables",
            field_path=".grants",
        ),
        Rule(
            rule=f"!has(self.grants) || {_MYSQL} || self.grants.all(g, has(g.schema) || !(has(g.tables)"
            " || has(g.functions)))",
            message="tables and functions of PostgreSQL are in a schema: set schema",
            field_path=".grants",
        ),
        Rule(
            rule=f"!has(self.grants) || {_MYSQL} || self.grants.all(g, has(g.schema) || g.privileges.all(p, p in"
            " ['ALL', 'CONNECT', 'TEMPORARY', 'CREATE']))",
            message="the privileges on a database of PostgreSQL are CONNECT, TEMPORARY, CREATE, or ALL",
            field_path=".grants",
        ),
        Rule(
            rule=f"!{_MYSQL} || !(has(self.createDatabase) && self.createDatabase"
            " || has(self.bypassRowLevelSecurity) && self.bypassRowLevelSecurity)",
            message="createDatabase and bypassRowLevelSecurity are PostgreSQL's",
        ),
        Rule(
            rule=f"{_MYSQL} || !has(self.limits)",
            message="limits are MySQL's",
            field_path=".limits",
        ),
        Rule(
            rule=f"!{_MYSQL} || !has(self.connectionLimit) || self.connectionLimit != 0",
            message="0 is no limit to MySQL: set login to false instead",
            field_path=".connectionLimit",
        ),
        Rule(
            rule=f"!has(self.grants) || !{_MYSQL} || self.grants.all(g, g.database != '*' || !(has(g.tables)"
            " || has(g.functions) || has(g.withGrantOption) && g.withGrantOption)"
            f" && g.privileges.all(p, p in {_ON_SERVER}))",
            message=f"on the whole server of MySQL there are {', '.join(ON_SERVER)}, or ALL; not to be passed on",
            field_path=".grants",
        ),
        Rule(
            rule=f"!has(self.rotation) || {_MYSQL} || !(has(self.replication) && self.replication"
            " || has(self.bypassRowLevelSecurity) && self.bypassRowLevelSecurity)",
            message="replication and bypassRowLevelSecurity cannot be had with rotation: a second role of the user "
            "would not have them",
            field_path=".rotation",
        ),
        Rule(
            rule="!has(self.rotation) || !has(self.login) || self.login",
            message="rotation is for users that log in",
            field_path=".rotation",
        ),
    ]
)
class DatabaseUserSpec(Spec):
    """The user that is wanted."""

    user: Annotated[str, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)]
    """Name of the user on the server. Immutable."""
    cluster_ref: Annotated[ClusterReference | None, Field(immutable=True)] = None
    """The cluster that the user is on; without this and serverRef, the one of this namespace that the label target
    names. Immutable."""
    server_ref: ServerReference | None = None
    """The server that the user is on, where it is none of this operator's. Neither given nor taken away
    later; host, service and port are immutable."""
    engine: Annotated[EngineName | None, Field(immutable=True)] = None
    """Database engine: postgresql or mysql. Needed with serverRef, allowed with the label target. Immutable."""
    password: KeySelector | None = None
    """The key of a Secret with the password. One is generated unless given."""
    secret_name: Annotated[str | None, Field(min_length=1, max_length=253, pattern=SUBDOMAIN, immutable=True)] = None
    """Secret for applications: host, port, dbname, user, password and uri; the name of this object with -user behind
    it unless given. Immutable."""
    database: ObjectName | None = None
    """The database in that Secret; the first in grants unless given."""
    login: Annotated[bool, Field(default=True)] = True
    """Whether the user may log in. Without, it is a role that others are members of, and has no password."""
    inherit: Annotated[bool, Field(default=True)] = True
    """Whether the rights of its roles are the user's without SET ROLE."""
    create_database: bool = False
    """PostgreSQL: whether the user may create databases."""
    replication: bool = False
    """Whether the user may replicate, and so read all changes; on MySQL, REPLICATION SLAVE."""
    bypass_row_level_security: bool = False
    """PostgreSQL: whether row-level security is not for this user."""
    connection_limit: Annotated[int, Field(ge=-1, le=262143, format="int32")] = -1
    """How many sessions the user may have at once; -1 is no limit."""
    limits: HourlyLimits | None = None
    """MySQL: what the user may do within an hour."""
    valid_until: datetime | None = None
    """When the password ends to be valid; never unless given. On MySQL the operator locks the account then."""
    roles: Annotated[tuple[Membership, ...], Field(list_map_keys=("name",), max_items=64)] = ()
    """Roles that the user is a member of, and no others."""
    grants: Annotated[tuple[Grant, ...], Field(list_type="atomic", max_items=64)] = ()
    """All that the user may do, beside what it owns, what its roles may and what everybody may."""
    undeclared_grants: Literal["Revoke", "Keep"] = "Revoke"
    """What becomes of privileges and memberships that the user has and that are not declared."""
    rotation: Rotation | None = None
    """A new password from time to time. The user name in the Secret may change with it."""
    reassign_to: SqlName | None = None
    """PostgreSQL: who owns what the user made when it is dropped; the owner of the database unless given."""
    adopt: bool = False
    """Take a user of this name that is on the server already, and that nobody claims."""
    deletion_policy: DeletionPolicy = "Delete"
    """What becomes of the user on the server when this object is deleted."""


class UserCondition(Condition):
    """One aspect of the current state of a user."""

    last_update_time: datetime | None = None
    """When the reason or the message last changed."""


def set_user_condition(
    conditions: Iterable[UserCondition], condition: UserCondition, now: datetime
) -> tuple[UserCondition, ...]:
    """``conditions`` with ``condition`` in its type's place, and both of its times.

    The transition time moves when the status does, the update time when reason or message do; otherwise each is kept.
    """
    current = tuple(conditions)
    former = find_condition(current, condition.type)
    same = former is not None and (former.reason, former.message) == (condition.reason, condition.message)
    kept = former.last_update_time if former is not None and same else None
    return set_condition(current, replace(condition, last_update_time=kept or now.replace(microsecond=0)), now)


class DatabaseUserStatus(Status):
    """The user as it is."""

    conditions: Annotated[tuple[UserCondition, ...], Field(list_map_keys=("type",))] = ()
    """The latest observations of the user's state."""
    server: str | None = None
    """The server that the user is on, as host and port."""
    secret_name: str | None = None
    """Secret for applications."""
    last_rotation_time: datetime | None = None
    """When the password was last rotated."""


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["dbu"],
    columns=[
        PrinterColumn("User", ".spec.user"),
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message'),
        PrinterColumn("Server", ".status.server", priority=1),
        PrinterColumn("Secret", ".status.secretName", priority=1),
        PrinterColumn("Rotated", ".status.lastRotationTime", type="date", priority=1),
    ],
)
class DatabaseUser(Resource[DatabaseUserSpec, DatabaseUserStatus]):
    """A user of a PostgreSQL or MySQL server: its password, its attributes, and all that it may do."""

    @property
    def secret_name(self) -> str:
        """The name of the Secret for applications, default included."""
        return self.spec.secret_name or f"{self.metadata.name}-user"

    @property
    def engine(self) -> EngineName:
        """The engine, the cluster's included."""
        return self.spec.engine or engine_of(self.spec.cluster_ref)

    @property
    def database(self) -> str | None:
        """The database for connections, if any is named."""
        return self.spec.database or next((g.database for g in self.spec.grants if not self.is_on_server(g)), None)

    def is_on_server(self, grant: Grant) -> bool:
        """Whether a grant is on the whole server, which MySQL has."""
        return self.engine == "mysql" and grant.database == "*"
