"""Desired state of a server, independent of the engine. An engine rejects what it does not support."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

ALL = "ALL"
"""Privilege: every privilege of this kind of object on this server."""

ANY = "*"
"""Only name of a grant: every existing object of the kind."""


@dataclass(frozen=True, slots=True)
class OwnershipMark:
    """Identifies the Kubernetes object that owns an object on a server.

    Its text is stored at the object on the server. `cluster` distinguishes Kubernetes clusters that share a server.
    `namespace_uid` distinguishes namespaces of the same name, one after the other. Marks of earlier versions lack it.
    """

    cluster: str
    kind: str
    namespace: str
    name: str
    namespace_uid: str = ""

    PREFIX = "steersman: "
    RESTORED = "restored"
    """Value instead of a cluster ID for marks of restored backups.

    An object of its namespace may adopt the object.
    """

    @property
    def text(self) -> str:
        """The stored form: `steersman: 5f0c4a71 DatabaseUser shop/clerk`, with the UID of the namespace if known."""
        uid = f" {self.namespace_uid}" if self.namespace_uid else ""
        return f"{self.PREFIX}{self.cluster} {self.kind} {self.namespace}/{self.name}{uid}"

    def is_of_same_object(self, other: OwnershipMark) -> bool:
        """Return True if both marks identify the same object."""
        return self.is_in_same_namespace(other) and (self.kind, self.name) == (other.kind, other.name)

    def is_in_same_namespace(self, other: OwnershipMark) -> bool:
        """Return True if both marks have the same namespace. One of them may lack its UID."""
        if (self.cluster, self.namespace) != (other.cluster, other.namespace):
            return False
        return "" in (self.namespace_uid, other.namespace_uid) or self.namespace_uid == other.namespace_uid

    def is_of_previous_namespace(self, other: OwnershipMark) -> bool:
        """Return True if `other` has a deleted namespace of this name."""
        same_name = (self.cluster, self.namespace) == (other.cluster, other.namespace)
        return same_name and not self.is_in_same_namespace(other)

    @classmethod
    def read(cls, text: str | None) -> OwnershipMark | None:
        """Parse a mark found on a server. Returns `None` if the text is not a mark."""
        words = (text or "").removeprefix(cls.PREFIX).split(" ")
        if not text or not text.startswith(cls.PREFIX) or len(words) not in (3, 4) or words[2].count("/") != 1:
            return None
        return cls(words[0], words[1], *words[2].split("/"), *words[3:])


class SecurableKind(Enum):
    """Kind of object that privileges are granted on. The value is its name in messages."""

    SERVER = "server"
    """The whole server (MySQL)."""
    DATABASE = "database"
    SCHEMA = "schema"
    TABLE = "table"
    SEQUENCE = "sequence"
    FUNCTION = "function"

    @property
    def is_in_database(self) -> bool:
        """Return True if objects of this kind are inside a database."""
        return self not in (SecurableKind.SERVER, SecurableKind.DATABASE)


class PasswordDirective(Enum):
    """Directive in place of a password."""

    UNCHANGED = "unchanged"
    """Keep the password that is set on the server."""
    NONE = "none"
    """No password is accepted."""


Password = str | PasswordDirective


@dataclass(frozen=True, slots=True)
class SecondCredential:
    """Second credential, valid at the same time while a password rotates.

    On PostgreSQL it is a role of its own (`SqlEngine.rotation_username`). On MySQL it is the account's retained
    password, which cannot expire: `valid_until` is ignored there. The user's own `valid_until` does not apply to it.
    """

    password: Password = field(repr=False)
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """Limits of an account per hour (MySQL). 0 means no limit."""

    queries: int = 0
    updates: int = 0
    connections: int = 0


NO_LIMITS = AccountLimits()


@dataclass(frozen=True, slots=True)
class DesiredMembership:
    """Membership in a role.

    `None` for `inherit` and `set_role` means the default of the user and of the server. On MySQL an inherited role
    is active from login on.
    """

    role: str
    admin: bool = False
    inherit: bool | None = None
    set_role: bool | None = None


@dataclass(frozen=True, slots=True)
class DesiredGrant:
    """Privileges on objects of one kind.

    The objects are in one database, or the whole server is meant (`database` is `ANY` then). `names` are tables,
    sequences or functions (`total(integer)`), or `ANY` alone. It is empty for a database or a schema itself.
    `columns` restricts tables to these columns. `future` grants on objects that the roles in `created_by` create
    later. `created_by` defaults to the owner of the database.
    """

    database: str
    privileges: frozenset[str]
    kind: SecurableKind = SecurableKind.DATABASE
    schema: str | None = None
    names: tuple[str, ...] = ()
    with_grant_option: bool = False
    future: bool = False
    created_by: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DesiredUser:
    """Complete desired state of one user.

    Attributes:
        second_credential: `None` if the user has one credential.
        revoke_undeclared: revoke privileges and memberships that are not declared. Rights of a database owner are
            not counted.
        mark: `None` takes over whatever has the name.
        adopt: take over a user without a mark, unless another object of this cluster owns it.
        replication: on MySQL the privilege of that name on the whole server.
        expired: lock the account; MySQL accounts have no `valid_until`.
        cross_namespace: the object is in another namespace than the server, and may refer only to objects that its
            own namespace created there.
    """

    name: str
    password: Password = field(repr=False)
    second_credential: SecondCredential | None = None
    login: bool = True
    inherit: bool = True
    create_database: bool = False
    replication: bool = False
    bypass_row_level_security: bool = False
    connection_limit: int = -1
    limits: AccountLimits = NO_LIMITS
    valid_until: datetime | None = None
    expired: bool = False
    roles: tuple[DesiredMembership, ...] = ()
    grants: tuple[DesiredGrant, ...] = ()
    revoke_undeclared: bool = True
    mark: OwnershipMark | None = None
    adopt: bool = False
    cross_namespace: bool = False


EMPTY_TEMPLATE = "template0"
"""Template of a PostgreSQL database without contents."""


@dataclass(frozen=True, slots=True)
class DesiredSchema:
    """A schema.

    `owner` defaults to the owner of the database. A schema that is not `present` is dropped if it is empty.
    """

    name: str
    owner: str | None = None
    present: bool = True


@dataclass(frozen=True, slots=True)
class DesiredExtension:
    """An extension. `version` defaults to the installed or default version, `schema` to `public`."""

    name: str
    version: str | None = None
    schema: str | None = None
    present: bool = True


@dataclass(frozen=True, slots=True)
class DesiredDatabase:
    """A database and its owner. Other users cannot connect unless a grant permits it.

    `encoding` defaults to the engine's UTF-8; collation, character type and locale to the server's settings. MySQL
    supports only `encoding` (a character set) and `collation`. Its owner receives every privilege, since MySQL has
    no owners. `cross_namespace` as in `DesiredUser`.
    """

    name: str
    owner: str
    encoding: str | None = None
    collation: str | None = None
    character_type: str | None = None
    locale_provider: str | None = None
    locale: str | None = None
    template: str = EMPTY_TEMPLATE
    connection_limit: int = -1
    extensions: tuple[DesiredExtension, ...] = ()
    schemas: tuple[DesiredSchema, ...] = ()
    mark: OwnershipMark | None = None
    adopt: bool = False
    cross_namespace: bool = False
