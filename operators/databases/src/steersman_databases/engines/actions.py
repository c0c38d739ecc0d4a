"""Everything that a plan can do to a server, in values.

An engine makes statements of them, the model applies them to what it remembers: so one plan is judged by both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from .desired import HourlyLimits
from .survey import Membership, SecuredObject

HALF_MADE = 1_935_764_851
"""The connection limit of a new database until it is finished, by which it is known: CREATE DATABASE leaves no mark.
A database that somebody closed has another."""

FOREVER = datetime.max.replace(tzinfo=UTC)
"""The end of what does not expire."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a role or an account may do by itself. `None` leaves it as it is."""

    login: bool | None = None
    locked: bool | None = None
    inherit: bool | None = None
    superuser: bool | None = None
    create_role: bool | None = None
    create_database: bool | None = None
    replication: bool | None = None
    bypass_row_level_security: bool | None = None
    connection_limit: int | None = None
    limits: HourlyLimits | None = None
    certificate: bool | None = None
    valid_until: datetime | None = None
    """`FOREVER` for no end."""


@dataclass(frozen=True, slots=True)
class CreateUser:
    """A new role or account, with its mark, in one go."""

    name: str
    attributes: Attributes
    verifier: str | None = field(repr=False)
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class AlterUser:
    """Only what differs. `elevated`: the operator may not alter this role by rights of its own."""

    name: str
    attributes: Attributes
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class SetVerifier:
    """What opens: the verifier of a password, or `None` for nothing. `retain`: the former opens as well
    (MySQL). `beside`: so does what this is of (MariaDB, where nothing else does then). `elevated` is as for
    `AlterUser`."""

    name: str
    verifier: str | None = field(repr=False)
    retain: bool = False
    beside: str | None = field(default=None, repr=False)
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class DiscardSecond:
    """The former password opens no more."""

    name: str


@dataclass(frozen=True, slots=True)
class SetRoleSetting:
    """Whoever logs in as `name` acts as `role`."""

    name: str
    role: str


@dataclass(frozen=True, slots=True)
class MarkUser:
    """Leave a claim's text at a user. `elevated`: it is not one that the operator made."""

    name: str
    text: str
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class MarkDatabase:
    """Leave a claim's text at a database: as its owner, or, where databases have none, with its owner's name.

    `ahead`: of one that is to be made (MySQL). One that is there, seen or not, keeps what it bears."""

    name: str
    text: str
    owner: str
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class GrantRole:
    """`elevated`: the role is one that the operator does not administer."""

    member: str
    membership: Membership
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class RevokeRole:
    """The membership that this grantor gave."""

    member: str
    role: str
    grantor: str
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class SetDefaultRoles:
    """The roles, of those that it is a member of, that are active from the login on (MySQL)."""

    name: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on one object, given as `as_role`, which the grantor then is."""

    grantee: str
    on: SecuredObject
    privileges: tuple[str, ...]
    as_role: str
    grantable: bool = False


@dataclass(frozen=True, slots=True)
class Revoke:
    """`only_option` leaves the privileges and takes the right to pass them on."""

    grantee: str
    on: SecuredObject
    privileges: tuple[str, ...]
    as_role: str
    only_option: bool = False


@dataclass(frozen=True, slots=True)
class RevokeLeft:
    """What a former database left somebody, and would open the next of its name (MySQL). `role`: it is a role beside
    a user of its name (MariaDB). `there`: the database is there, and what goes is what everybody has on it."""

    grantee: str
    on: SecuredObject
    privileges: tuple[str, ...]
    role: bool = False
    there: bool = False


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """A new database: until it is finished the administrator's, closed to everybody, with the limit `HALF_MADE`."""

    name: str
    encoding: str
    collation: str | None
    character_type: str | None
    template: str


@dataclass(frozen=True, slots=True)
class FinishDatabase:
    """Mark, owner and opening of a new database, all in one."""

    name: str
    owner: str
    connection_limit: int
    mark: str | None


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """`None` leaves it as it is. `former` is the present owner. MySQL has `encoding` and `collation` alone."""

    name: str
    former: str
    owner: str | None = None
    connection_limit: int | None = None
    allows_connections: bool | None = None
    is_template: bool | None = None
    encoding: str | None = None
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A database, and what `former` owns inside it, becomes `owner`'s, who owns nothing there; all in one."""

    database: str
    former: str
    owner: str


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """`elevated`: its owner is not the database's."""

    database: str
    name: str
    owner: str
    elevated: bool


@dataclass(frozen=True, slots=True)
class AlterSchemaOwner:
    """Only a superuser may, in a database that is somebody's."""

    database: str
    name: str
    owner: str


@dataclass(frozen=True, slots=True)
class DropSchema:
    """Only an empty one. `elevated`: its owner is not the database's."""

    database: str
    name: str
    owner: str
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class CreateExtension:
    """`elevated`: the server wants a superuser for it."""

    database: str
    name: str
    schema: str
    version: str | None
    as_role: str
    elevated: bool


@dataclass(frozen=True, slots=True)
class UpdateExtension:
    """`schema` is the one that it is in by then."""

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
class EndSessions:
    """Who is logged in as `name` is so no more, and nothing that it was about to commit is."""

    name: str


@dataclass(frozen=True, slots=True)
class Reassign:
    """What `name` owns inside a database becomes the heir's, and what was granted to it there is gone.

    `heir` at `None`: it owns nothing there.
    """

    database: str
    name: str
    heir: str | None


@dataclass(frozen=True, slots=True)
class DropUser:
    """Its sessions end first. `role`: it is a role, where roles are no accounts (MariaDB)."""

    name: str
    role: bool = False


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """Sessions in it end first."""

    name: str


Action = (
    CreateUser
    | AlterUser
    | SetVerifier
    | DiscardSecond
    | SetRoleSetting
    | MarkUser
    | MarkDatabase
    | GrantRole
    | RevokeRole
    | SetDefaultRoles
    | Grant
    | Revoke
    | RevokeLeft
    | CreateDatabase
    | FinishDatabase
    | AlterDatabase
    | GiveBack
    | CreateSchema
    | AlterSchemaOwner
    | DropSchema
    | CreateExtension
    | UpdateExtension
    | MoveExtension
    | DropExtension
    | EndSessions
    | Reassign
    | DropUser
    | DropDatabase
)
