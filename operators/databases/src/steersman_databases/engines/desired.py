"""What is wanted inside a server, in values: the same for every engine, which refuses what it does not have."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

ALL = "ALL"
"""As a privilege: every one that this kind of object has on this server."""

EACH = "*"
"""As the only name in a grant: each object of the kind that is there."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose something on a server is. Its text is left on the server, at the thing itself.

    `cluster` tells Kubernetes clusters apart that share a server.
    """

    cluster: str
    kind: str
    namespace: str
    name: str

    PREFIX = "steersman: "

    @property
    def text(self) -> str:
        """As it stands on the server: `steersman: 5f0c4a71 DatabaseUser shop/clerk`."""
        return f"{self.PREFIX}{self.cluster} {self.kind} {self.namespace}/{self.name}"

    @classmethod
    def read(cls, text: str | None) -> Claim | None:
        """The claim in a text that was found on a server, or `None` where it holds none."""
        words = (text or "").removeprefix(cls.PREFIX).split(" ")
        if not text or not text.startswith(cls.PREFIX) or len(words) != 3 or words[2].count("/") != 1:
            return None
        return cls(words[0], words[1], *words[2].split("/"))


class ObjectKind(Enum):
    """What privileges are granted on. The value is the word that messages have for it."""

    SERVER = "server"
    """All of it, whatever is in it (MySQL)."""
    DATABASE = "database"
    SCHEMA = "schema"
    TABLE = "table"
    SEQUENCE = "sequence"
    FUNCTION = "function"

    @property
    def is_inside(self) -> bool:
        """Whether such objects are inside of a database."""
        return self not in (ObjectKind.SERVER, ObjectKind.DATABASE)


class NoPassword(Enum):
    """What may stand in a password's place."""

    UNCHANGED = "unchanged"
    """Whatever is set on the server stays."""
    NONE = "none"
    """None opens."""


Password = str | NoPassword


@dataclass(frozen=True, slots=True)
class SecondCredential:
    """The other one of two credentials that are valid at the same time, while a password rotates.

    On PostgreSQL it is a role of its own (`Contents.second_username`), on MySQL the account's former password, which
    has no end of its own: `valid_until` is not looked at there. The user's own `valid_until` does not count here.
    """

    password: Password = field(repr=False)
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class HourlyLimits:
    """How often an account may do something within an hour (MySQL); 0 is no limit."""

    queries: int = 0
    updates: int = 0
    connections: int = 0


NO_LIMITS = HourlyLimits()


@dataclass(frozen=True, slots=True)
class DesiredMembership:
    """Being a member of a role. `inherit` and `set_role` at `None` are the user's own and the server's default.

    On MySQL a role that is inherited is one that is active from the login on.
    """

    role: str
    admin: bool = False
    inherit: bool | None = None
    set_role: bool | None = None


@dataclass(frozen=True, slots=True)
class DesiredGrant:
    """Privileges on objects of one kind in one database, or on the whole server (`database` is `EACH` then).

    `names` are those of tables, sequences or functions (`total(integer)`), or `EACH` alone; none for a database or
    a schema itself. `columns` narrows the tables to these. `future` grants on what the roles in `created_by` (none:
    the database's owner) create later.
    """

    database: str
    privileges: frozenset[str]
    kind: ObjectKind = ObjectKind.DATABASE
    schema: str | None = None
    names: tuple[str, ...] = ()
    with_grant_option: bool = False
    future: bool = False
    created_by: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DesiredUser:
    """One user, exactly.

    `second` is `None` for who has one credential only. With `exact`, privileges and memberships that are not
    declared are revoked; what comes by owning a database is not counted. Without a `claim`, whatever is found under
    the name is taken as this user's; with `adopt` as well, unless another object of this cluster has it.
    On MySQL `replication` is the privilege of that name on the whole server, and `valid_until` is nothing that an
    account has: who has `ended` is locked.
    A `guest` is from another namespace than the server, and may refer only to what its own namespace made there.
    """

    name: str
    password: Password = field(repr=False)
    second: SecondCredential | None = None
    login: bool = True
    inherit: bool = True
    create_database: bool = False
    replication: bool = False
    bypass_row_level_security: bool = False
    connection_limit: int = -1
    limits: HourlyLimits = NO_LIMITS
    valid_until: datetime | None = None
    ended: bool = False
    roles: tuple[DesiredMembership, ...] = ()
    grants: tuple[DesiredGrant, ...] = ()
    exact: bool = True
    claim: Claim | None = None
    adopt: bool = False
    guest: bool = False


EMPTY_TEMPLATE = "template0"
"""What PostgreSQL makes a database from that is to have nothing in it."""


@dataclass(frozen=True, slots=True)
class DesiredSchema:
    """A schema. `owner` at `None` is the database's. Absent ones are dropped, if they are empty."""

    name: str
    owner: str | None = None
    present: bool = True


@dataclass(frozen=True, slots=True)
class DesiredExtension:
    """An extension. `version` at `None` is whichever is there, or the default; `schema` at `None` is `public`."""

    name: str
    version: str | None = None
    schema: str | None = None
    present: bool = True


@dataclass(frozen=True, slots=True)
class DesiredDatabase:
    """One database and who owns it; nobody else may connect unless granted.

    `encoding`, `collation` and `character_type` at `None` are the engine's UTF-8 and the server's own. MySQL has
    `encoding` (a character set) and `collation` alone, and gives the owner every privilege, as it knows no owners.
    `guest` is as for a user.
    """

    name: str
    owner: str
    encoding: str | None = None
    collation: str | None = None
    character_type: str | None = None
    template: str = EMPTY_TEMPLATE
    connection_limit: int = -1
    extensions: tuple[DesiredExtension, ...] = ()
    schemas: tuple[DesiredSchema, ...] = ()
    claim: Claim | None = None
    adopt: bool = False
    guest: bool = False
