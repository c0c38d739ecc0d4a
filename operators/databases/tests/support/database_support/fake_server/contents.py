"""What a server in memory holds, and who stands where in it. What actions make of it: `model_state`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from steersman_databases.engines.postgresql.sql.database_inspection import DATABASE_OWNER
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import (
    PUBLIC,
    DatabaseState,
    ExtensionOnDisk,
    ExtensionState,
    HeldPrivilege,
    SecuredObject,
    UserState,
)

ON_DISK = {
    "pgcrypto": ExtensionOnDisk("1.3", frozenset({"1.2", "1.3"}), trusted=True),
    "pageinspect": ExtensionOnDisk("1.12", frozenset({"1.12"}), trusted=False),
}
"""The extensions that the model could install."""


@dataclass(slots=True)
class FakeDatabaseContents:
    """The inside of one database."""

    schemas: dict[str, str] = field(default_factory=dict[str, str])
    objects: dict[SecuredObject, str] = field(default_factory=dict[SecuredObject, str])
    extensions: dict[str, ExtensionState] = field(default_factory=dict[str, ExtensionState])
    privileges: set[HeldPrivilege] = field(default_factory=set[HeldPrivilege])

    def owners(self) -> Iterator[str]:
        """Who owns something in it, some more than once."""
        yield from self.schemas.values()
        yield from self.objects.values()

    def is_referenced(self, name: str) -> bool:
        """Whether somebody owns something in it, was granted something, or granted it."""
        return name in self.owners() or any(remains(one, name) for one in self.privileges)


class ServerContents:
    """Everything on one server, and who may do what there.

    Args:
        owners_matter: PostgreSQL has owners, MySQL has not.
        administrator: who may change everything.
    """

    def __init__(self, owners_matter: bool, administrator: UserState) -> None:
        self.has_owners = owners_matter
        self.administrator = administrator.name
        self.users = {administrator.name: administrator}
        self.databases: dict[str, DatabaseState] = {}
        self.contents: dict[str, FakeDatabaseContents] = {}
        self.on_server: frozenset[HeldPrivilege] = frozenset()
        """MySQL: what is held on all of it, in its own databases, and by patterns of names."""
        self.orphaned: frozenset[HeldPrivilege] = frozenset()
        """MySQL: what is held on databases that are not there."""
        self._marks: dict[tuple[str, str], str] = {}
        """MySQL: of what is about to be created."""

    def pending_marks(self) -> dict[str, str]:
        """MySQL: the marks of databases that are not there."""
        return {name: mark for (kind, name), mark in self._marks.items() if kind == "database"}

    def has_privileges_in(self, name: str) -> frozenset[str]:
        """PostgreSQL: the databases in which a role owns or was granted something, themselves included."""
        if not self.has_owners:
            return frozenset()
        return frozenset(
            database
            for database, inside in self.contents.items()
            if _is_granted(self.databases[database], name) or inside.is_referenced(name)
        )

    def owns_in(self, name: str) -> frozenset[str]:
        """The databases inside of which a role owns something."""
        return frozenset(database for database, inside in self.contents.items() if name in inside.owners())

    def granted_members(self, name: str) -> frozenset[tuple[str, str]]:
        """The roles that somebody made others members of, with each of these."""
        given = ((one, user.name) for user in self.users.values() for one in user.memberships)
        return frozenset((one.role, member) for one, member in given if one.grantor == name)

    def roles_of(self, name: str) -> set[str]:
        """A role and all whose rights it has: PUBLIC's, what it inherits, and who it acts as."""
        found, waiting = {PUBLIC}, [name]
        while waiting:
            role = waiting.pop()
            user = self.users.get(role)
            if role in found or user is None:
                continue
            found.add(role)
            acts_as = {setting.removeprefix("role=") for setting in user.settings}
            waiting += [
                one.role
                for one in user.memberships
                if one.role in acts_as or (user.inherit if one.inherit is None else one.inherit)
            ]
        return found

    def reachable_roles(self, name: str) -> set[str]:
        """A user and all roles that it could act as, by others too."""
        found, waiting = set[str](), [name]
        while waiting:
            role = waiting.pop()
            if role not in found and role in self.users:
                found.add(role)
                waiting += [one.role for one in self.users[role].memberships]
        return found

    def holds(self, name: str, privilege: str, target: SecuredObject) -> bool:
        """Whether a role may do something to an object, by owning it, by grant, by membership or as everybody."""
        user = self.users[name]
        if user.superuser:
            return True
        roles = self.roles_of(name)
        database = self.databases[target.database]
        if database.owner in roles and self.has_owners:
            roles.add(DATABASE_OWNER)
        inside = self.contents[target.database]
        held = database.privileges if target.kind is SecurableKind.DATABASE else inside.privileges
        covering = {target, replace(target, column=None)}
        if not self.has_owners:
            covering.add(SecuredObject(SecurableKind.DATABASE, target.database))
            held = held | database.privileges
        if any(one.grantee in roles and one.privilege == privilege and one.target in covering for one in held):
            return True
        owner = (
            inside.schemas.get(target.schema or "")
            if target.kind is SecurableKind.SCHEMA
            else inside.objects.get(target)
        )
        return self.has_owners and owner in roles and target.kind is not SecurableKind.SCHEMA

    def create(self, target: SecuredObject, owner: str) -> None:
        """An object that an application made; what was granted in advance is granted now."""
        inside = self.contents[target.database]
        inside.objects[target] = owner
        for one in list(inside.privileges):
            kind = one.target
            if kind.creator == owner and kind.kind is target.kind and kind.schema in (None, target.schema):
                inside.privileges.add(replace(one, target=target, grantor=owner))


def remains(one: HeldPrivilege, name: str) -> bool:
    """Whether it is somebody's, by whatever word."""
    return name in (one.grantee, one.grantor, one.target.creator)


def _is_granted(state: DatabaseState, name: str) -> bool:
    """Owning it, or something on it; what its owner has by that is written down nowhere else."""
    return state.owner == name or any(remains(one, name) for one in state.privileges)
