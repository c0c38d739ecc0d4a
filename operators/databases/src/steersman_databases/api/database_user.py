"""``DatabaseUser``: a user of a database server and its privileges."""

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
from steersman_databases.api.grants import SERVER_PRIVILEGES, PrivilegeGrant, RoleGrant
from steersman_databases.api.group import GROUP, VERSION, DeletionPolicy, EngineName
from steersman_databases.api.names import PRINTABLE, SUBDOMAIN, ObjectName, SqlName
from steersman_databases.api.references import (
    ON_MYSQL,
    SAME_SERVER_RULE,
    ClusterReference,
    KeySelector,
    ServerReference,
    engine_of,
)

_MYSQL = f"(has(self.engine) ? self.engine == 'mysql' : {ON_MYSQL})"
_ON_SERVER = f"[{', '.join(repr(word) for word in ('ALL', *SERVER_PRIVILEGES))}]"


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
class PasswordRotation(FrozenStruct):
    """Rotation of the password.

    The previous password stays valid for a time.
    """

    every: Annotated[Duration, Field(max_length=32)]
    """Rotation interval, such as 720h. At least 5m."""
    overlap: Annotated[Duration, Field(max_length=32)] = Duration("1h")
    """Validity of the previous password after a rotation."""


class HourlyLimitSettings(FrozenStruct):
    """Limits of a user per hour; 0 means unlimited."""

    queries: Annotated[int, Field(ge=0, le=4294967295, format="int64")] = 0
    """Statements."""
    updates: Annotated[int, Field(ge=0, le=4294967295, format="int64")] = 0
    """Statements that write."""
    connections: Annotated[int, Field(ge=0, le=4294967295, format="int64")] = 0
    """Logins."""


@schema(
    rules=[
        at_most_one_of("clusterRef", "serverRef"),
        SAME_SERVER_RULE,
        at_most_one_of("password", "rotation"),
        Rule(
            rule="!has(self.engine) || !has(self.clusterRef)",
            message="engine cannot be set with clusterRef: its kind determines the engine",
            field_path=".engine",
        ),
        Rule(
            rule="!has(self.serverRef) || has(self.engine)",
            message="engine is required with serverRef: postgresql or mysql",
            field_path=".engine",
        ),
        Rule(
            rule=f"!has(self.grants) || !{_MYSQL} || self.grants.all(g, !has(g.schema) && !has(g.sequences)"
            " && (!has(g.future) || !g.future))",
            message="schema, sequences and future are supported on PostgreSQL only: on MySQL, grant on a database "
            "or its tables",
            field_path=".grants",
        ),
        Rule(
            rule=f"!has(self.grants) || {_MYSQL} || self.grants.all(g, has(g.schema) || !(has(g.tables)"
            " || has(g.functions)))",
            message="on PostgreSQL, schema is required with tables and functions",
            field_path=".grants",
        ),
        Rule(
            rule=f"!has(self.grants) || {_MYSQL} || self.grants.all(g, has(g.schema) || g.privileges.all(p, p in"
            " ['ALL', 'CONNECT', 'TEMPORARY', 'CREATE']))",
            message="the privileges on a PostgreSQL database are CONNECT, TEMPORARY, CREATE and ALL",
            field_path=".grants",
        ),
        Rule(
            rule=f"!{_MYSQL} || !(has(self.createDatabase) && self.createDatabase"
            " || has(self.bypassRowLevelSecurity) && self.bypassRowLevelSecurity)",
            message="createDatabase and bypassRowLevelSecurity are supported on PostgreSQL only: remove them",
        ),
        Rule(
            rule=f"{_MYSQL} || !has(self.limits)",
            message="limits are supported on MySQL only: remove them",
            field_path=".limits",
        ),
        Rule(
            rule=f"!{_MYSQL} || !has(self.connectionLimit) || self.connectionLimit != 0",
            message="0 means unlimited on MySQL: set login to false instead",
            field_path=".connectionLimit",
        ),
        Rule(
            rule=f"!has(self.grants) || !{_MYSQL} || self.grants.all(g, g.database != '*' || !(has(g.tables)"
            " || has(g.functions) || has(g.withGrantOption) && g.withGrantOption)"
            f" && g.privileges.all(p, p in {_ON_SERVER}))",
            message=f"the privileges on a whole MySQL server are {', '.join(SERVER_PRIVILEGES)} and ALL, "
            "without grant option",
            field_path=".grants",
        ),
        Rule(
            rule=f"!has(self.rotation) || {_MYSQL} || !(has(self.replication) && self.replication"
            " || has(self.bypassRowLevelSecurity) && self.bypassRowLevelSecurity)",
            message="replication and bypassRowLevelSecurity exclude rotation: the second role of the user would "
            "not have them",
            field_path=".rotation",
        ),
        Rule(
            rule="!has(self.rotation) || !has(self.login) || self.login",
            message="rotation needs a user with login: set login to true, or remove rotation",
            field_path=".rotation",
        ),
    ]
)
class DatabaseUserSpec(Spec):
    """Declared state of the user."""

    user: Annotated[str, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)]
    """Name of the user on the server. Immutable."""
    cluster_ref: Annotated[ClusterReference | None, Field(immutable=True)] = None
    """Cluster with the user. Defaults to the cluster of this namespace that the label target names, unless serverRef
    is set. Immutable."""
    server_ref: ServerReference | None = None
    """Server that this operator does not manage. It cannot be added or removed later. Host, service and port are
    immutable."""
    engine: Annotated[EngineName | None, Field(immutable=True)] = None
    """Database engine: postgresql or mysql. Required with serverRef, optional with the label target. Immutable."""
    password: KeySelector | None = None
    """Key of a Secret with the password. Defaults to a generated password."""
    secret_name: Annotated[str | None, Field(min_length=1, max_length=253, pattern=SUBDOMAIN, immutable=True)] = None
    """Secret for applications: host, port, dbname, user, password and uri. Defaults to the name of this object with
    the suffix -user. Immutable."""
    database: ObjectName | None = None
    """Database in that Secret. Defaults to the first database of grants."""
    login: Annotated[bool, Field(default=True)] = True
    """Allow logins. Otherwise the user is a role for members, without a password."""
    inherit: Annotated[bool, Field(default=True)] = True
    """Use the privileges of roles without SET ROLE."""
    create_database: bool = False
    """PostgreSQL: allow CREATE DATABASE."""
    replication: bool = False
    """Allow replication, which reads all changes. On MySQL, REPLICATION SLAVE."""
    bypass_row_level_security: bool = False
    """PostgreSQL: bypass row-level security."""
    connection_limit: Annotated[int, Field(ge=-1, le=262143, format="int32")] = -1
    """Maximum number of sessions; -1 means unlimited."""
    limits: HourlyLimitSettings | None = None
    """MySQL: limits per hour."""
    valid_until: datetime | None = None
    """Expiry of the password. Defaults to never. On MySQL the operator locks the account at that time."""
    roles: Annotated[tuple[RoleGrant, ...], Field(list_map_keys=("name",), max_items=64)] = ()
    """Roles that the user is a member of. Other memberships are undeclared."""
    grants: Annotated[tuple[PrivilegeGrant, ...], Field(list_type="atomic", max_items=64)] = ()
    """Declared privileges. Ownership, roles and PUBLIC can add others."""
    undeclared_grants: Literal["Revoke", "Keep"] = "Revoke"
    """Treatment of undeclared privileges and memberships of the user: Revoke or Keep."""
    rotation: PasswordRotation | None = None
    """Rotation of the password. The user name in the Secret may change with it."""
    reassign_to: SqlName | None = None
    """PostgreSQL: new owner of the user's objects when it is dropped. Defaults to the owner of the database."""
    adopt: bool = False
    """Adopt an existing user of this name that has no ownership mark."""
    deletion_policy: DeletionPolicy = "Delete"
    """Effect of the deletion of this object on the user. Delete drops the user, Retain keeps it on the server."""


class UserCondition(Condition):
    """One aspect of the observed state of a user."""

    last_update_time: datetime | None = None
    """Time of the last change of reason or message."""


def set_user_condition(
    conditions: Iterable[UserCondition], condition: UserCondition, now: datetime
) -> tuple[UserCondition, ...]:
    """Return ``conditions`` with ``condition`` set, and both of its times.

    The transition time changes with the status. The update time changes with the reason or message.
    """
    current = tuple(conditions)
    previous = find_condition(current, condition.type)
    same = previous is not None and (previous.reason, previous.message) == (condition.reason, condition.message)
    kept = previous.last_update_time if previous is not None and same else None
    return set_condition(current, replace(condition, last_update_time=kept or now.replace(microsecond=0)), now)


class DatabaseUserStatus(Status):
    """Observed state of the user."""

    conditions: Annotated[tuple[UserCondition, ...], Field(list_map_keys=("type",))] = ()
    """Latest observations of the user's state."""
    server: str | None = None
    """Server of the user, as host and port."""
    secret_name: str | None = None
    """Secret for applications."""
    last_rotation_time: datetime | None = None
    """Time of the last password rotation."""


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
    """A user of a PostgreSQL or MySQL server, with attributes and privileges."""

    @property
    def secret_name(self) -> str:
        """Name of the Secret for applications, default included."""
        return self.spec.secret_name or f"{self.metadata.name}-user"

    @property
    def engine(self) -> EngineName:
        """Engine, default included."""
        return self.spec.engine or engine_of(self.spec.cluster_ref)

    @property
    def database(self) -> str | None:
        """Database for connections. None if no database is declared."""
        return self.spec.database or next((g.database for g in self.spec.grants if not self.is_on_server(g)), None)

    def is_on_server(self, grant: PrivilegeGrant) -> bool:
        """Return True if a grant applies to the whole MySQL server."""
        return self.engine == "mysql" and grant.database == "*"
