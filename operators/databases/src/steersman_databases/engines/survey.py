"""What was found on a server, in values: the same for every engine. What one engine does not have stays empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from .desired import EMPTY_TEMPLATE, NO_LIMITS, DesiredDatabase, DesiredUser, HourlyLimits, ObjectKind

PUBLIC = ""
"""The grantee that everybody is."""
NOT_YET = "not looked at yet: other databases of the server took the time"
"""Why nothing is known of what is inside a database that may be well."""


@dataclass(frozen=True, slots=True)
class SecuredObject:
    """Something that privileges are granted on. With a `creator`: all of the kind that this role will make.

    `arguments` are a function's types, as the server writes and quotes them; `column` narrows a table.
    """

    kind: ObjectKind
    database: str
    schema: str | None = None
    name: str | None = None
    arguments: str | None = None
    column: str | None = None
    creator: str | None = None

    def __str__(self) -> str:
        """As messages name it: `table shop.public.orders`."""
        if self.kind is ObjectKind.SERVER:
            return "the whole server"
        place = ".".join(part for part in (self.database, self.schema, self.name) if part is not None)
        if self.arguments is not None:
            place += f"({self.arguments})"
        if self.column is not None:
            return f"column {self.column} of table {place}"
        if self.creator is not None:
            return f"each {self.kind.value} that {self.creator} will make in {place}"
        return f"{self.kind.value} {place}"


@dataclass(frozen=True, slots=True)
class Privilege:
    """One privilege that somebody holds on one object, and not by owning it.

    `namesake`: the grantee is a role beside a user of the same name, who has nothing by that (MariaDB).
    """

    grantee: str
    on: SecuredObject
    privilege: str
    grantor: str
    grantable: bool = False
    namesake: bool = False


@dataclass(frozen=True, slots=True)
class OtherPrivilege:
    """One on what no grant names (PostgreSQL): a type, a language, a tablespace. `on` says in words on what."""

    grantee: str
    on: str
    privilege: str
    grantor: str


@dataclass(frozen=True, slots=True)
class Membership:
    """Being a member of a role, as one grantor gave it.

    MySQL knows no grantors, but a role has a host, which stands in the grantor's place.
    """

    role: str
    grantor: str
    admin: bool = False
    inherit: bool | None = None
    set_role: bool | None = None


@dataclass(frozen=True, slots=True)
class UserState:
    """A role or an account.

    `verifier` is what the server keeps in place of the password: `None` where there is none, and not to be looked at
    unless the survey says `verifiers_readable`. Of a superuser it may be a digest, which no password opens.
    `second_verifier` is that of a retained former password (MySQL), or of all other ways in (MariaDB).
    `certificate`: the password alone opens nothing without one (MySQL).
    On MySQL `superuser` says that it has, by itself or by a role, privileges with which one could become the
    administrator, and `replication` that it has the one of that name. `settings` are those of the role in all
    databases. `acts_as` are the accounts in whose place it may be (MySQL's PROXY), `out_of_reach` its privileges on
    the whole server that the administrator has not, and so cannot take from it (MySQL): they are listed nowhere else.
    In `members`, `role` is who is a member of it; `admitted` are roles with whom it made a member of them (PostgreSQL
    16 and later). `mighty_by` are those with rights over the whole server whom it is or could act as, itself included
    (PostgreSQL). `stands_in` are databases in which the role owns or was granted something, `stands_inside` and
    `owns_in` those where it does, or owns something, beside the database itself.
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
    limits: HourlyLimits = NO_LIMITS
    valid_until: datetime | None = None
    verifier: str | None = field(default=None, repr=False)
    second_verifier: str | None = field(default=None, repr=False)
    certificate: bool = False
    mark: str | None = None
    settings: frozenset[str] = frozenset()
    memberships: frozenset[Membership] = frozenset()
    acts_as: frozenset[str] = frozenset()
    out_of_reach: frozenset[str] = frozenset()
    members: frozenset[Membership] = frozenset()
    admitted: frozenset[tuple[str, str]] = frozenset()
    mighty_by: frozenset[str] = frozenset()
    stands_in: frozenset[str] = frozenset()
    stands_inside: frozenset[str] = frozenset()
    owns_in: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """A database, as seen from outside of it. `privileges` are those of everybody on the database itself.

    MySQL has no owners: `marked_owner` is who is to have all privileges, as stands beside the mark.
    MySQL keeps privileges on databases that are not there: then `exists` is false, and they are those of everybody.
    """

    name: str
    owner: str = ""
    encoding: str = ""
    collation: str = ""
    character_type: str = ""
    connection_limit: int = -1
    allows_connections: bool = True
    is_template: bool = False
    mark: str | None = None
    marked_owner: str = ""
    exists: bool = True
    privileges: frozenset[Privilege] = frozenset()


@dataclass(frozen=True, slots=True)
class ExtensionState:
    """An extension that is installed in a database."""

    version: str
    schema: str
    owner: str


@dataclass(frozen=True, slots=True)
class ExtensionOnDisk:
    """An extension that the server could install. A trusted one needs no superuser."""

    default_version: str
    versions: frozenset[str]
    trusted: bool


@dataclass(frozen=True, slots=True)
class Inside:
    """What was seen inside a database: owners of schemas and objects, extensions, and who may do what.

    `objects` holds those of the schemas that the scope names, by owner (`""` for members of extensions, which decide
    themselves who may use them), and columns of the tables whose columns it names; `privileges` those of the scope's
    users, and those that they passed on; `others` what their second logins have besides (PostgreSQL); `strangers` the
    owners among them as whom the operator may not act.
    """

    schemas: Mapping[str, str] = field(default_factory=dict[str, str])
    objects: Mapping[SecuredObject, str] = field(default_factory=dict[SecuredObject, str])
    extensions: Mapping[str, ExtensionState] = field(default_factory=dict[str, ExtensionState])
    on_disk: Mapping[str, ExtensionOnDisk] = field(default_factory=dict[str, ExtensionOnDisk])
    privileges: frozenset[Privilege] = frozenset()
    others: frozenset[OtherPrivilege] = frozenset()
    strangers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look found.

    `product` is the server's own name (`PostgreSQL`, `MySQL`, `MariaDB`), `version` its major and minor number,
    `administrator` who looked, `elevates` whether there is a superuser's login besides. `opened` says of users, whose
    verifiers could not be read, whether a login with the desired password was taken. `narrower` says which users have
    accounts for single hosts as well (MySQL), and whether one of them has rights over the whole server. `orphaned`
    are users who are not there, though views or stored programs act as them, with the mark that they had (MySQL).
    `acting` says of those who are to be dropped what acts as them, in words. `hidden` are databases that are not
    seen, with the mark that they bear if they are there nevertheless (MySQL). `lowers` says that the server does not
    tell capitals from small letters in names of databases and tables (MySQL). `acts_by` are the administrator and the
    roles by which it has what it has (MySQL).
    `hasty` says for whom it is set on the server that commits wait for no replica, `accounts_altered` whether a
    cluster's own accounts are other than they were made (PostgreSQL).
    `unseen` are databases in which the operator should have been and could not, and what was in its way (PostgreSQL).
    `maintenance` is the database that is nobody's, where one sees to what all have in common (PostgreSQL).
    `strangers` granted something to a second login, and are nobody as whom the operator may act (PostgreSQL).
    """

    product: str
    version: tuple[int, int]
    administrator: str
    superuser: bool = True
    elevates: bool = False
    verifiers_readable: bool = True
    users: Mapping[str, UserState] = field(default_factory=dict[str, UserState])
    databases: Mapping[str, DatabaseState] = field(default_factory=dict[str, DatabaseState])
    inside: Mapping[str, Inside] = field(default_factory=dict[str, Inside])
    opened: Mapping[str, bool] = field(default_factory=dict[str, bool])
    narrower: Mapping[str, bool] = field(default_factory=dict[str, bool])
    orphaned: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    acting: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    hidden: Mapping[str, str] = field(default_factory=dict[str, str])
    lowers: bool = False
    acts_by: frozenset[str] = frozenset()
    hasty: frozenset[str] = frozenset()
    accounts_altered: bool = False
    unseen: Mapping[str, str] = field(default_factory=dict[str, str])
    maintenance: str = ""
    strangers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Scope:
    """What to look at: names, and which databases to look inside of, for which of their schemas.

    `users` are followed: databases in which one of them stands are looked at and inside of, too, wherever nothing is
    declared. `unfollowed` are users who are not. `columns` are those to look for, as columns of tables. `commits`:
    also who does not wait with them. `accounts`: also whether somebody has changed those of the cluster itself.
    `dropped` are users who are to be dropped: also what acts as them, which is dear to find (MySQL).

    Those who look at one server share a look: of two scopes, `|` makes one that shows all that either would.
    """

    users: frozenset[str] = frozenset()
    databases: frozenset[str] = frozenset()
    inside: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    extensions: frozenset[str] = frozenset()
    columns: frozenset[SecuredObject] = frozenset()
    unfollowed: frozenset[str] = frozenset()
    commits: bool = False
    accounts: bool = False
    dropped: frozenset[str] = frozenset()

    @property
    def all_users(self) -> frozenset[str]:
        """Followed or not."""
        return self.users | self.unfollowed

    @classmethod
    def of(cls, desired: Iterable[DesiredDatabase | DesiredUser]) -> Scope:
        """All that plans for these need to know."""
        scope = cls()
        for one in desired:
            scope |= _of_database(one) if isinstance(one, DesiredDatabase) else _of_user(one)
        return scope

    def __or__(self, other: Scope) -> Scope:
        inside = dict(self.inside)
        for database, schemas in other.inside.items():
            inside[database] = inside.get(database, frozenset[str]()) | schemas
        return Scope(
            self.users | other.users,
            self.databases | other.databases,
            inside,
            self.extensions | other.extensions,
            self.columns | other.columns,
            self.unfollowed | other.unfollowed,
            self.commits or other.commits,
            self.accounts or other.accounts,
            self.dropped | other.dropped,
        )


def _of_database(desired: DesiredDatabase) -> Scope:
    schemas = frozenset({"public", *(schema.name for schema in desired.schemas)})
    owners = frozenset({desired.owner, *(schema.owner for schema in desired.schemas if schema.owner)})
    return Scope(
        users=owners,
        databases=frozenset({desired.name, desired.template} - {EMPTY_TEMPLATE}),
        inside={desired.name: schemas},
        extensions=frozenset(extension.name for extension in desired.extensions),
    )


def _of_user(desired: DesiredUser) -> Scope:
    scope = Scope(
        users=frozenset({desired.name, *(role.role for role in desired.roles)}),
        databases=frozenset(grant.database for grant in desired.grants),
    )
    for grant in desired.grants:
        inside: dict[str, frozenset[str]] = {}
        if grant.kind.is_inside:
            inside[grant.database] = frozenset({grant.schema} if grant.schema else ())
        columns = {
            SecuredObject(grant.kind, grant.database, grant.schema, name, column=column)
            for name in grant.names
            for column in grant.columns
        }
        scope |= Scope(users=frozenset(grant.created_by), inside=inside, columns=frozenset(columns))
    return scope
