"""Inspected state of a server, independent of the engine. Fields that an engine does not support stay empty."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from .desired import EMPTY_TEMPLATE, NO_LIMITS, AccountLimits, DesiredDatabase, DesiredUser, SecurableKind

PUBLIC = ""
"""Grantee that stands for all users."""
NOT_INSPECTED = "not inspected yet: other databases of the server come first"
"""Reason for an absent inspection of a database that may be healthy."""


@dataclass(frozen=True, slots=True)
class SecuredObject:
    """Object that privileges are granted on. With a `creator`: all objects of the kind that this role will create.

    `arguments` are a function's types, as the server writes and quotes them. `column` restricts a table to a column.
    """

    kind: SecurableKind
    database: str
    schema: str | None = None
    name: str | None = None
    arguments: str | None = None
    column: str | None = None
    creator: str | None = None

    def __str__(self) -> str:
        """Name in messages: `table shop.public.orders`."""
        if self.kind is SecurableKind.SERVER:
            return "the whole server"
        place = ".".join(part for part in (self.database, self.schema, self.name) if part is not None)
        if self.arguments is not None:
            place += f"({self.arguments})"
        if self.column is not None:
            return f"column {self.column} of table {place}"
        if self.creator is not None:
            return f"each {self.kind.value} that {self.creator} creates in {place}"
        return f"{self.kind.value} {place}"


@dataclass(frozen=True, slots=True)
class HeldPrivilege:
    """Privilege that a role holds on one object other than by ownership.

    `owner_has_same_name`: the grantee is a role with the name of a user, who gains nothing by it (MariaDB).
    """

    grantee: str
    target: SecuredObject
    privilege: str
    grantor: str
    grantable: bool = False
    owner_has_same_name: bool = False


@dataclass(frozen=True, slots=True)
class UngrantablePrivilege:
    """Privilege on an object that no grant can name (PostgreSQL).

    Examples are types, languages and tablespaces.
    """

    grantee: str
    target: str
    privilege: str
    grantor: str


@dataclass(frozen=True, slots=True)
class RoleMembership:
    """Membership in a role, as granted by one grantor.

    MySQL has no grantors. Its roles have a host, which takes the grantor's place.
    """

    role: str
    grantor: str
    admin: bool = False
    inherit: bool | None = None
    set_role: bool | None = None


@dataclass(frozen=True, slots=True)
class UserState:
    """State of a role or an account.

    Attributes:
        verifier: what the server stores for the password. `None` means no password, but only if the inspection says
            `verifiers_readable`. A superuser's verifier may be a digest that no password matches.
        second_verifier: verifier of a retained password (MySQL), or of all other credentials (MariaDB).
        certificate: a login needs a client certificate as well (MySQL).
        superuser: on MySQL it holds, by itself or by a role, privileges that lead to the administrator's rights.
        replication: on MySQL it holds the privilege of that name.
        settings: settings of the role in all databases.
        acts_as: accounts that it may act as (MySQL's PROXY).
        unrevocable: privileges on the whole server that the administrator lacks and so cannot revoke (MySQL).
        members: memberships of others in this role; `role` is the member.
        granted_members: roles and grantors of these memberships (PostgreSQL 16 and later).
        superuser_via: roles with privileges on the whole server that it is or can act as (PostgreSQL).
        has_privileges_in: databases in which it owns objects or holds privileges.
        has_privileges_inside: databases with privileges on objects inside.
        owns_in: databases with objects that it owns.
    """

    name: str
    login: bool = True
    locked: bool = False
    inherit: bool = True
    superuser: bool = False
    create_role: bool = False
    create_database: bool = False
    replication: bool = False
    bypass_row_level_security: bool = False
    connection_limit: int = -1
    limits: AccountLimits = NO_LIMITS
    valid_until: datetime | None = None
    verifier: str | None = field(default=None, repr=False)
    second_verifier: str | None = field(default=None, repr=False)
    certificate: bool = False
    mark: str | None = None
    settings: frozenset[str] = frozenset()
    memberships: frozenset[RoleMembership] = frozenset()
    acts_as: frozenset[str] = frozenset()
    unrevocable: frozenset[str] = frozenset()
    members: frozenset[RoleMembership] = frozenset()
    granted_members: frozenset[tuple[str, str]] = frozenset()
    superuser_via: frozenset[str] = frozenset()
    has_privileges_in: frozenset[str] = frozenset()
    has_privileges_inside: frozenset[str] = frozenset()
    owns_in: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """A database, as seen from outside of it. `privileges` are those of everybody on the database itself.

    MySQL has no owners: `marked_owner` should have all privileges, as stored with the mark.
    MySQL keeps privileges on databases that are not there: then `exists` is false, and they are those of everybody.
    """

    name: str
    owner: str = ""
    encoding: str = ""
    collation: str = ""
    character_type: str = ""
    locale_provider: str = ""
    connection_limit: int = -1
    allows_connections: bool = True
    is_template: bool = False
    mark: str | None = None
    marked_owner: str = ""
    exists: bool = True
    privileges: frozenset[HeldPrivilege] = frozenset()


@dataclass(frozen=True, slots=True)
class ExtensionState:
    """An extension that is installed in a database."""

    version: str
    schema: str
    owner: str


@dataclass(frozen=True, slots=True)
class ExtensionOnDisk:
    """Extension that the server can install. A trusted extension needs no superuser."""

    default_version: str
    versions: frozenset[str]
    trusted: bool


@dataclass(frozen=True, slots=True)
class DatabaseContents:
    """Contents of a database: owners of schemas and objects, extensions, privileges.

    Attributes:
        objects: owners of objects in the schemas of the scope (`""` for members of extensions, which control their
            own
            privileges), and columns of tables whose columns the scope names.
        privileges: privileges of the scope's users, and those that they passed on.
        other_privileges: further privileges of their second logins (PostgreSQL).
        unassumable_roles: owners that the operator cannot act as.
    """

    schemas: Mapping[str, str] = field(default_factory=dict[str, str])
    objects: Mapping[SecuredObject, str] = field(default_factory=dict[SecuredObject, str])
    extensions: Mapping[str, ExtensionState] = field(default_factory=dict[str, ExtensionState])
    available_extensions: Mapping[str, ExtensionOnDisk] = field(default_factory=dict[str, ExtensionOnDisk])
    privileges: frozenset[HeldPrivilege] = frozenset()
    other_privileges: frozenset[UngrantablePrivilege] = frozenset()
    unassumable_roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Inspection:
    """Result of one inspection.

    Attributes:
        product: name of the server: `PostgreSQL`, `MySQL` or `MariaDB`.
        version: major and minor number.
        administrator: user of the inspection.
        can_elevate: a superuser login exists besides.
        login_results: for users whose verifiers cannot be read: True if a login with the desired password succeeded.
        host_accounts: users with accounts for single hosts (MySQL): True if one has privileges on the whole server.
        orphaned: absent users that views or stored programs still act as, with their previous mark (MySQL).
        definers: for users to drop: descriptions of the objects that act as them.
        invisible_databases: databases that the operator cannot see but that exist, with their mark (MySQL).
        lower_case_names: names of databases and tables are case-insensitive (MySQL).
        effective_roles: the administrator and the roles that give it its rights (MySQL).
        async_commit_roles: roles for which commits are set to wait for no replica.
        accounts_altered: the cluster's own accounts differ from their definition (PostgreSQL).
        uninspected: databases that the operator could not inspect, with the reason (PostgreSQL).
        maintenance_database: database for statements that concern the whole server (PostgreSQL).
        unassumable_roles: grantors to a second login that the operator cannot act as (PostgreSQL).
    """

    product: str
    version: tuple[int, int]
    administrator: str
    superuser: bool = True
    can_elevate: bool = False
    verifiers_readable: bool = True
    users: Mapping[str, UserState] = field(default_factory=dict[str, UserState])
    databases: Mapping[str, DatabaseState] = field(default_factory=dict[str, DatabaseState])
    contents: Mapping[str, DatabaseContents] = field(default_factory=dict[str, DatabaseContents])
    login_results: Mapping[str, bool] = field(default_factory=dict[str, bool])
    host_accounts: Mapping[str, bool] = field(default_factory=dict[str, bool])
    orphaned: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    definers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    invisible_databases: Mapping[str, str] = field(default_factory=dict[str, str])
    lower_case_names: bool = False
    effective_roles: frozenset[str] = frozenset()
    async_commit_roles: frozenset[str] = frozenset()
    accounts_altered: bool = False
    uninspected: Mapping[str, str] = field(default_factory=dict[str, str])
    maintenance_database: str = ""
    unassumable_roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InspectionScope:
    """Scope of an inspection: names, and databases with needed contents.

    Concurrent requests for one server share an inspection: `|` merges two scopes.

    Attributes:
        users: users whose databases are inspected too, wherever they own or were granted something.
        without_contents: users whose databases are not inspected.
        columns: columns to look up.
        commit_settings: also find roles whose commits do not wait.
        system_accounts: also compare the cluster's own accounts with their definition.
        dropped_databases: users that are to be dropped: also find what acts as them, which is expensive (MySQL).
    """

    users: frozenset[str] = frozenset()
    databases: frozenset[str] = frozenset()
    contents: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    extensions: frozenset[str] = frozenset()
    columns: frozenset[SecuredObject] = frozenset()
    without_contents: frozenset[str] = frozenset()
    commit_settings: bool = False
    system_accounts: bool = False
    dropped_databases: frozenset[str] = frozenset()

    @property
    def all_users(self) -> frozenset[str]:
        """All users, with and without the contents of their databases."""
        return self.users | self.without_contents

    @classmethod
    def of(cls, desired: Iterable[DesiredDatabase | DesiredUser]) -> InspectionScope:
        """Scope that plans for these objects need."""
        return cls.union(
            _scope_of_database(one) if isinstance(one, DesiredDatabase) else _scope_of_user(one) for one in desired
        )

    @classmethod
    def union(cls, scopes: Iterable[InspectionScope]) -> InspectionScope:
        """Merge scopes, in linear time for thousands of objects."""
        every = list(scopes)
        inside: dict[str, set[str]] = defaultdict(set)
        for scope in every:
            for database, schemas in scope.contents.items():
                inside[database] |= schemas
        return cls(
            frozenset[str]().union(*(scope.users for scope in every)),
            frozenset[str]().union(*(scope.databases for scope in every)),
            {database: frozenset(schemas) for database, schemas in inside.items()},
            frozenset[str]().union(*(scope.extensions for scope in every)),
            frozenset[SecuredObject]().union(*(scope.columns for scope in every)),
            frozenset[str]().union(*(scope.without_contents for scope in every)),
            any(scope.commit_settings for scope in every),
            any(scope.system_accounts for scope in every),
            frozenset[str]().union(*(scope.dropped_databases for scope in every)),
        )

    def __or__(self, other: InspectionScope) -> InspectionScope:
        return InspectionScope.union((self, other))


def _scope_of_database(desired: DesiredDatabase) -> InspectionScope:
    schemas = frozenset({"public", *(schema.name for schema in desired.schemas)})
    owners = frozenset({desired.owner, *(schema.owner for schema in desired.schemas if schema.owner)})
    return InspectionScope(
        users=owners,
        databases=frozenset({desired.name, desired.template} - {EMPTY_TEMPLATE}),
        contents={desired.name: schemas},
        extensions=frozenset(extension.name for extension in desired.extensions),
    )


def _scope_of_user(desired: DesiredUser) -> InspectionScope:
    scopes = [
        InspectionScope(
            users=frozenset({desired.name, *(role.role for role in desired.roles)}),
            databases=frozenset(grant.database for grant in desired.grants),
        )
    ]
    for grant in desired.grants:
        inside: dict[str, frozenset[str]] = {}
        if grant.kind.is_in_database:
            inside[grant.database] = frozenset({grant.schema} if grant.schema else ())
        columns = {
            SecuredObject(grant.kind, grant.database, grant.schema, name, column=column)
            for name in grant.names
            for column in grant.columns
        }
        scopes.append(InspectionScope(users=frozenset(grant.created_by), contents=inside, columns=frozenset(columns)))
    return InspectionScope.union(scopes)
