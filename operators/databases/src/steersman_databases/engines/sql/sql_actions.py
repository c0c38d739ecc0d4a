"""Actions that a plan can carry out on a server, as values.

An engine turns them into statements. The fake server of the tests applies them to its state, so that one plan can
be checked against both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from .desired import AccountLimits
from .inspection import RoleMembership, SecuredObject

INCOMPLETE_MARKER = 1_935_764_851
"""Connection limit that marks an incomplete database.

CREATE DATABASE cannot set an ownership mark. A database that was closed by a user has another limit.
"""

NO_EXPIRY = datetime.max.replace(tzinfo=UTC)
"""`valid_until` of a role that does not expire."""


@dataclass(frozen=True, slots=True)
class RoleAttributes:
    """Attributes of a role or an account. `None` leaves an attribute unchanged."""

    login: bool | None = None
    locked: bool | None = None
    inherit: bool | None = None
    superuser: bool | None = None
    create_role: bool | None = None
    create_database: bool | None = None
    replication: bool | None = None
    bypass_row_level_security: bool | None = None
    connection_limit: int | None = None
    limits: AccountLimits | None = None
    certificate: bool | None = None
    valid_until: datetime | None = None
    """`NO_EXPIRY` if the role does not expire."""


@dataclass(frozen=True, slots=True)
class CreateRole:
    """Create a role or an account together with its mark."""

    name: str
    attributes: RoleAttributes
    verifier: str | None = field(repr=False)
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class AlterRole:
    """Change attributes that differ. `elevated`: the operator's own rights do not suffice for this role."""

    name: str
    attributes: RoleAttributes
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class SetVerifier:
    """Set the verifier of a password, or `None` for no password.

    `retain`: the previous password stays valid (MySQL). `beside`: the password of this verifier stays valid, and no
    other (MariaDB). `elevated` as in `AlterRole`.
    """

    name: str
    verifier: str | None = field(repr=False)
    retain_current: bool = False
    second_verifier: str | None = field(default=None, repr=False)
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class DiscardOldPassword:
    """End the validity of the previous password."""

    name: str


@dataclass(frozen=True, slots=True)
class SetRoleSetting:
    """Let sessions of `name` act as `role`."""

    name: str
    role: str


@dataclass(frozen=True, slots=True)
class TagUser:
    """Store an ownership mark at a user. `elevated`: the operator did not create the user."""

    name: str
    text: str
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class TagDatabase:
    """Store an ownership mark for a database.

    `ahead`: the database is about to be created (MySQL). An existing database keeps its mark.
    """

    name: str
    text: str
    owner: str
    before_creation: bool = False


@dataclass(frozen=True, slots=True)
class GrantRole:
    """Grant a role. `elevated`: the operator does not administer the role."""

    member: str
    membership: RoleMembership
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class RevokeRole:
    """Revoke the membership that this grantor granted."""

    member: str
    role: str
    grantor: str
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class SetActiveRoles:
    """Set the roles that are active from login on (MySQL)."""

    name: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrantPrivileges:
    """Grant privileges on one object as `as_role`, which becomes the grantor."""

    grantee: str
    target: SecuredObject
    privileges: tuple[str, ...]
    as_role: str
    grantable: bool = False


@dataclass(frozen=True, slots=True)
class RevokePrivileges:
    """Revoke privileges. `only_option` revokes only the grant option."""

    grantee: str
    target: SecuredObject
    privileges: tuple[str, ...]
    as_role: str
    grant_option_only: bool = False


@dataclass(frozen=True, slots=True)
class RevokeOrphaned:
    """Revoke privileges on a dropped database (MySQL).

    They would apply to a new database of that name. `role`: the grantee is a role that has the name of a user
    (MariaDB). `there`: the database exists, and the privileges of all users on it are revoked.
    """

    grantee: str
    target: SecuredObject
    privileges: tuple[str, ...]
    is_role: bool = False
    database_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """Create a database that accepts no other connections yet.

    Until it is complete, the administrator owns it and `INCOMPLETE_MARKER` is its connection limit.
    """

    name: str
    encoding: str
    collation: str | None
    character_type: str | None
    template: str
    locale_provider: str | None = None
    locale: str | None = None


@dataclass(frozen=True, slots=True)
class FinishDatabase:
    """Set mark, owner and connection limit in one transaction."""

    name: str
    owner: str
    connection_limit: int
    mark: str | None


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """Change a database. `None` leaves a property unchanged. MySQL supports `encoding` and `collation` only."""

    name: str
    previous_owner: str
    owner: str | None = None
    connection_limit: int | None = None
    allows_connections: bool | None = None
    is_template: bool | None = None
    encoding: str | None = None
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreOwnership:
    """Give a database and its owner's objects to `owner`.

    All objects of the present owner in the database change owner in one transaction.
    """

    database: str
    previous_owner: str
    owner: str


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """Create a schema. `elevated`: its owner is not the owner of the database."""

    database: str
    name: str
    owner: str
    elevated: bool


@dataclass(frozen=True, slots=True)
class AlterSchemaOwner:
    """Change the owner of a schema. In a database with an owner this needs a superuser."""

    database: str
    name: str
    owner: str


@dataclass(frozen=True, slots=True)
class DropSchema:
    """Drop an empty schema. `elevated`: its owner is not the owner of the database."""

    database: str
    name: str
    owner: str
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class CreateExtension:
    """Create an extension. `elevated`: the server requires a superuser."""

    database: str
    name: str
    schema: str
    version: str | None
    as_role: str
    elevated: bool


@dataclass(frozen=True, slots=True)
class UpdateExtension:
    """Update an extension. `schema` is the schema that contains it by then."""

    database: str
    name: str
    schema: str
    version: str
    as_role: str
    elevated: bool


@dataclass(frozen=True, slots=True)
class MoveExtension:
    database: str
    name: str
    schema: str
    as_role: str
    elevated: bool


@dataclass(frozen=True, slots=True)
class DropExtension:
    database: str
    name: str
    as_role: str
    elevated: bool


@dataclass(frozen=True, slots=True)
class TerminateSessions:
    """Terminate all sessions of `name` and roll back their transactions."""

    name: str


@dataclass(frozen=True, slots=True)
class ReassignOwned:
    """Reassign the objects of `name` in a database, and revoke privileges.

    Without a new owner, `name` must own nothing there.
    """

    database: str
    name: str
    new_owner: str | None


@dataclass(frozen=True, slots=True)
class DropRole:
    """Terminate its sessions and drop a role. `role`: a role, where roles are not accounts (MariaDB)."""

    name: str
    is_role: bool = False


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """Terminate its sessions and drop a database."""

    name: str


SqlAction = (
    CreateRole
    | AlterRole
    | SetVerifier
    | DiscardOldPassword
    | SetRoleSetting
    | TagUser
    | TagDatabase
    | GrantRole
    | RevokeRole
    | SetActiveRoles
    | GrantPrivileges
    | RevokePrivileges
    | RevokeOrphaned
    | CreateDatabase
    | FinishDatabase
    | AlterDatabase
    | RestoreOwnership
    | CreateSchema
    | AlterSchemaOwner
    | DropSchema
    | CreateExtension
    | UpdateExtension
    | MoveExtension
    | DropExtension
    | TerminateSessions
    | ReassignOwned
    | DropRole
    | DropDatabase
)
